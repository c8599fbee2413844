package logstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

// sized returns an entry whose data identifies its position.
func sized(index uint64, size int) *raft.Log {
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(index), byte(index >> 8), byte(size)})
	_, _ = random.Read(data) // it cannot fail
	return &raft.Log{Index: index, Term: 3, Type: raft.LogCommand, Data: data}
}

func TestEntriesOfAnySizeAreReadAsStored(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), FileName)
	s, _ := openBolt(t, path)
	sizes := []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 2*chunkSize - 1, 2 * chunkSize, 3*chunkSize + 7, 512 << 10}
	for i, size := range sizes {
		if err := s.StoreLogs([]*raft.Log{sized(uint64(2*i+1), size), sized(uint64(2*i+2), 10)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := verifyPages(path); err != nil {
		t.Error(err)
	}
	s, f := openBolt(t, path)
	for i, size := range sizes {
		for _, want := range []*raft.Log{sized(uint64(2*i+1), size), sized(uint64(2*i+2), 10)} {
			var got raft.Log
			if err := s.GetLog(want.Index, &got); err != nil {
				t.Fatal(err)
			}
			if got.Index != want.Index || got.Term != want.Term || got.Type != want.Type || !bytes.Equal(got.Data, want.Data) {
				t.Errorf("entry %d of %d bytes is read as entry %d of term %d with %d bytes", want.Index, len(want.Data), got.Index, got.Term, len(got.Data))
			}
		}
	}
	first, err := s.FirstIndex()
	if err != nil || first != 1 {
		t.Errorf("the log starts at %d, %v", first, err)
	}
	if last, err := s.LastIndex(); err != nil || last != uint64(2*len(sizes)) {
		t.Errorf("the log ends at %d, %v", last, err)
	}
	if len(f.all()) > 0 {
		t.Errorf("fatal: %v", f.all())
	}
}

// TestChunkedEntriesMatchAReferenceModel compares the log with a map while entries are
// stored and deleted and the store is reopened.
func TestChunkedEntriesMatchAReferenceModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		path := filepath.Join(dir, FileName)
		defer func() { _ = os.Remove(path) }() // the next case begins again
		open := func() *Store {
			bolt, err := raftboltdb.New(raftboltdb.Options{Path: path, NoSync: true, BoltOptions: &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}})
			if err != nil {
				r.Fatal(err)
			}
			return &Store{backend: chunks{bolt}, path: path, hang: testTimeout, fatal: func(err error) { r.Fatal(err) }}
		}
		s := open()
		defer func() { _ = s.Close() }()
		model, first, last := make(map[uint64]int), uint64(1), uint64(0)
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			switch step := rapid.SampledFrom([]string{"store", "store", "front", "end", "open"}).Draw(r, "step"); {
			case step == "store":
				var logs []*raft.Log
				for _, size := range rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(chunkSize-9, chunkSize+9), rapid.IntRange(0, 70_000)), 1, 6).Draw(r, "sizes") {
					last++
					model[last] = size
					logs = append(logs, sized(last, size))
				}
				if err := s.StoreLogs(logs); err != nil {
					r.Fatal(err)
				}
			case step == "open":
				if err := s.Close(); err != nil {
					r.Fatal(err)
				}
				if _, err := verifyPages(path); err != nil {
					r.Fatal(err)
				}
				s = open()
			case last < first:
			case step == "front":
				to := rapid.Uint64Range(first, last).Draw(r, "to")
				if err := s.DeleteRange(first, to); err != nil {
					r.Fatal(err)
				}
				first = to + 1
			default:
				from := rapid.Uint64Range(first, last).Draw(r, "from")
				if err := s.DeleteRange(from, last); err != nil {
					r.Fatal(err)
				}
				last = from - 1
			}
			sameLog(r, s, model, first, last)
		}
	})
}

func sameLog(r *rapid.T, s *Store, sizes map[uint64]int, first, last uint64) {
	r.Helper()
	for index := first - 1; index <= last+1; index++ {
		var got raft.Log
		err := s.GetLog(index, &got)
		if index < first || index > last {
			if !errors.Is(err, raft.ErrLogNotFound) {
				r.Fatalf("entry %d is not in the log, and reading it gives %v", index, err)
			}
			continue
		}
		if want := sized(index, sizes[index]); err != nil || !bytes.Equal(got.Data, want.Data) || got.Index != index {
			r.Fatalf("entry %d of %d bytes: %v, %d bytes", index, len(want.Data), err, len(got.Data))
		}
	}
	gotFirst, err := s.FirstIndex()
	gotLast, lastErr := s.LastIndex()
	if last < first {
		first, last = 0, 0
	}
	if err := errors.Join(err, lastErr); err != nil || gotFirst != first || gotLast != last {
		r.Fatalf("the log is %d to %d, should be %d to %d; %v", gotFirst, gotLast, first, last, err)
	}
}

func TestAMissingOrMisplacedChunkOfAnEntryIsDamage(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(logs *bbolt.Bucket) error{
		"a piece is missing":      func(logs *bbolt.Bucket) error { return logs.Delete(key(firstChunk(2) + 1)) },
		"the last is missing":     func(logs *bbolt.Bucket) error { return logs.Delete(key(firstChunk(2) + 2)) },
		"the first is missing":    func(logs *bbolt.Bucket) error { return logs.Delete(key(firstChunk(2))) },
		"one in another's place":  func(logs *bbolt.Bucket) error { return logs.Put(key(firstChunk(2)+1), logs.Get(key(firstChunk(3)+1))) },
		"a byte of a later piece": func(logs *bbolt.Bucket) error { return flipLast(logs, key(firstChunk(2)+1)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), FileName)
			s, _ := openBolt(t, path)
			if err := s.StoreLogs([]*raft.Log{sized(1, 10), sized(2, 2*chunkSize+100), sized(3, 2*chunkSize+100)}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = db.Update(func(tx *bbolt.Tx) error { return harm(tx.Bucket(bucketLogs)) })
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			s, f := openBolt(t, path)
			wantDamage(t, s.check(), f)
		})
	}
}

// flipLast flips a bit in the middle of a value, which is data.
func flipLast(bucket *bbolt.Bucket, key []byte) error {
	value := bytes.Clone(bucket.Get(key))
	value[len(value)/2] ^= 1
	return bucket.Put(key, value)
}

func TestEntriesWithoutAKindOfStoreAreDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bolt, err := raftboltdb.NewBoltStore(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(bolt.StoreLogs(entries(1, 3)), bolt.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Inspect(dir)
	if _, damaged := errors.AsType[*DamageError](err); !damaged || !strings.Contains(err.Error(), "no kind of log store") {
		t.Errorf("got %v, want a DamageError that names the missing kind", err)
	}
}

func TestALogStoreOfANewerVersionIsRefusedWithoutDamageError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	s, _ := openBolt(t, path)
	if err := errors.Join(s.Set(keyKind, []byte("newer")), s.Close()); err != nil {
		t.Fatal(err)
	}
	_, err := Inspect(dir)
	if _, damaged := errors.AsType[*DamageError](err); err == nil || damaged || !strings.Contains(err.Error(), "newer") {
		t.Errorf("got %v, want an error that names a newer version and no DamageError", err)
	}
	corrupt(t, path, bucketConf, keyKind, func(value []byte) { value[len(value)-1] ^= 1 })
	if _, damaged := errors.AsType[*DamageError](second(Inspect(dir))); !damaged {
		t.Error("a flipped kind of store is not damage")
	}
}

func second[A, B any](_ A, b B) B { return b }

// TestLargeEntriesAreWrittenHardlyMoreThanOnce counts the bytes written to bbolt's file.
// Without chunks each byte of an entry of 64 KiB is written four to five times, and
// without fillers more than twice.
func TestLargeEntriesAreWrittenHardlyMoreThanOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size    int
		atMost  float64 // bytes written per byte
		entries int     // of a transaction
	}{{16 << 10, 2.5, 1}, {64 << 10, 1.5, 1}, {200 << 10, 1.2, 1}, {200 << 10, 1.15, 2}} {
		bolt, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(t.TempDir(), FileName), NoSync: true, BoltOptions: &bbolt.Options{NoFreelistSync: true}})
		if err != nil {
			t.Fatal(err)
		}
		s := &Store{backend: chunks{bolt}, hang: testTimeout, fatal: func(err error) { t.Error(err) }}
		const count = 40
		for first := uint64(1); first <= count; first += uint64(c.entries) { //nolint:gosec // not negative
			var logs []*raft.Log
			for i := range uint64(c.entries) { //nolint:gosec // not negative
				logs = append(logs, sized(first+i, c.size))
			}
			if err := s.StoreLogs(logs); err != nil {
				t.Fatal(err)
			}
		}
		stats := bolt.Stats()
		written := float64(stats.TxStats.GetPageAlloc()) / float64(c.size*count)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if written > c.atMost {
			t.Errorf("%d entries of %d bytes in a transaction: %.2f bytes written per byte, want at most %.2f", c.entries, c.size, written, c.atMost)
		}
	}
}

func TestFillersAreDeletedWithTheirEntry(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), FileName)
	s, _ := openBolt(t, path)
	for index := range uint64(4) { // each in a transaction with fillers
		if err := s.StoreLog(sized(index+1, 2*chunkSize+100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.DeleteRange(1, 1), s.DeleteRange(3, 4), s.Close()); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	var keys []uint64
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketLogs).ForEach(func(key, _ []byte) error {
			keys = append(keys, binary.BigEndian.Uint64(key)-firstChunk(2))
			return nil
		})
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if want := []uint64{0, 1, 2, 3, 4, 5, 6}; !slices.Equal(keys, want) { // three chunks, four fillers
		t.Errorf("the log has the chunks %v of entry 2, want %v", keys, want)
	}
}
