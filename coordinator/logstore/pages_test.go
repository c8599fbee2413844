package logstore

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/test/boltpages"
)

// TestValidPagesAreNotDamage uses a store with branch pages, values over many pages,
// and both ends of the log deleted repeatedly.
func TestValidPagesAreNotDamage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), FileName)
	random := rand.New(rand.NewPCG(3, 3))
	first, last := uint64(1), uint64(0)
	for range 12 {
		s, _ := openBolt(t, path)
		for range 8 {
			var logs []*raft.Log
			for range 1 + random.IntN(60) {
				last++
				size := random.IntN(200)
				if random.IntN(20) == 0 {
					size = random.IntN(40_000)
				}
				logs = append(logs, &raft.Log{Index: last, Term: 1, Data: make([]byte, size)})
			}
			if err := s.StoreLogs(logs); err != nil {
				t.Fatal(err)
			}
			if err := s.SetUint64(keyTerm, last); err != nil {
				t.Fatal(err)
			}
		}
		cut := last - random.Uint64N(20)
		if err := s.DeleteRange(cut, last); err != nil {
			t.Fatal(err)
		}
		last = cut - 1
		if to := first + random.Uint64N((last-first)/2); to > first {
			if err := s.DeleteRange(first, to); err != nil {
				t.Fatal(err)
			}
			first = to + 1
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := verifyPages(path); err != nil {
			t.Fatalf("entries %d to %d: %v", first, last, err)
		}
	}
}

func TestAPageThatMakesBboltPanicIsDamage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), FileName)
	s, _ := openBolt(t, path)
	if err := errors.Join(s.StoreLogs(entries(1, 20)), s.Close()); err != nil {
		t.Fatal(err)
	}
	entry := int64(-1) // the page of the entries
	for _, page := range boltpages.Used(t, path) {
		rewrite(t, path, func(content []byte) {
			if content[page*boltpages.Size+8] == leafFlag && content[page*boltpages.Size+10] == 20 {
				entry = page * boltpages.Size
			}
		})
	}
	if entry < 0 {
		t.Fatal("no page has 20 entries")
	}
	for what, change := range map[string]func(page []byte){
		"flags 0x":            func(page []byte) { page[pageHeader] ^= bucketFlag },
		"has the id":          func(page []byte) { page[0] ^= 64 },
		"neither branch":      func(page []byte) { page[8] = 0 },
		"elements":            func(page []byte) { page[11] = 255 },
		"not within the page": func(page []byte) { binary.NativeEndian.PutUint32(page[pageHeader+4:], 1<<30) },
		"should be at":        func(page []byte) { page[pageHeader+4] ^= 16 },
		"it is at":            func(page []byte) { page[10] = 16 },                       // the last four would be gone
		"out of order":        func(page []byte) { page[pageHeader+20*elementSize] = 1 }, // the first key
		"which do not exist":  func(page []byte) { page[13] = 1 },
	} {
		var before []byte
		rewrite(t, path, func(content []byte) {
			before = append(before, content...)
			change(content[entry:])
		})
		_, err := Inspect(filepath.Dir(path))
		if _, ok := errors.AsType[*DamageError](err); !ok || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want a DamageError with %q", err, what)
		}
		rewrite(t, path, func(content []byte) { copy(content, before) })
	}
	if _, err := Inspect(filepath.Dir(path)); err != nil {
		t.Error(err)
	}
}

func TestATruncatedFileIsDamageEvenIfOnlyFreePagesAreMissing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), FileName)
	s, _ := openBolt(t, path)
	for i := range uint64(20) { // all fits into one page, which is another one each time
		if err := s.SetUint64(keyTerm, i); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	p := &pages{file: file}
	_, ok := p.newestRoot()
	if err := file.Close(); err != nil || !ok {
		t.Fatalf("its root pages cannot be read: %v", err)
	}
	for size := int64(p.count)*p.page - 1; size > 2*p.page; size -= p.page { //nolint:gosec // a few
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		_, err := verifyPages(path)
		if _, damaged := errors.AsType[*DamageError](err); !damaged {
			t.Errorf("truncated to %d bytes of %d pages, it is accepted", size, p.count)
		}
	}
}
