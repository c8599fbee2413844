package logstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

// smallSegment is so small that a few entries fill a segment.
const smallSegment = 4 << 10

// openState opens the stores of an inspected directory, with small segments.
func openState(dir string, state *Contents) (*Store, *fatals, error) {
	path := filepath.Join(dir, FileName)
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: path, MsgpackUseNewTimeFormat: true, BoltOptions: &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}})
	if err != nil {
		return nil, nil, err
	}
	f := &fatals{}
	s := &Store{path: path, hang: testTimeout, fatal: f.record}
	if state.kind != WAL {
		s.backend = chunks{bolt}
		return s, f, nil
	}
	s.deletesAtOnce = true
	if s.backend, err = openWAL(dir, bolt, state, smallSegment, hclog.NewNullLogger()); err != nil {
		return nil, nil, errors.Join(err, bolt.Close())
	}
	return s, f, nil
}

// openSegments opens a Store over small segments in a directory.
func openSegments(dir string) (*Store, *fatals, error) {
	state, err := Inspect(dir)
	if err != nil {
		return nil, nil, err
	}
	if state.kind == "" {
		bolt, err := raftboltdb.NewBoltStore(filepath.Join(dir, FileName))
		if err != nil {
			return nil, nil, err
		}
		if err := errors.Join(state.setKind(bolt, WAL), bolt.Close()); err != nil {
			return nil, nil, err
		}
	}
	return openState(dir, state)
}

// mustSegments calls openSegments and closes the store after the test.
func mustSegments(t *testing.T, dir string) *Store {
	t.Helper()
	s, f, err := openSegments(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		if len(f.all()) > 0 {
			t.Errorf("fatal: %v", f.all())
		}
	})
	return s
}

func TestEntriesOfAnySizeAreReadFromASegmentAsStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := mustSegments(t, dir)
	sizes := []int{0, 1, 7, 8, smallSegment, 70_000, 512 << 10}
	for i, size := range sizes {
		if err := s.StoreLogs([]*raft.Log{sized(uint64(2*i+1), size), sized(uint64(2*i+2), 10)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustSegments(t, dir)
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
}

// TestSegmentsMatchAReferenceModel compares the log with a map while entries are stored
// and deleted and the store is reopened, also if all entries are deleted and the log
// starts again after a snapshot.
func TestSegmentsMatchAReferenceModel(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(root, "") //nolint:usetesting // one for each case
		if err != nil {
			r.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		open := func() *Store {
			s, _, err := openSegments(dir)
			if err != nil {
				r.Fatal(err)
			}
			return s
		}
		s := open()
		defer func() { _ = s.Close() }()
		model, first, last := make(map[uint64]int), uint64(1), uint64(0)
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			switch step := rapid.SampledFrom([]string{"store", "store", "store", "front", "end", "all", "open"}).Draw(r, "step"); {
			case step == "store":
				var logs []*raft.Log
				for _, size := range rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 9_000)), 1, 6).Draw(r, "sizes") {
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
				s = open()
			case last < first:
			case step == "all":
				if err := s.DeleteRange(first, last); err != nil {
					r.Fatal(err)
				}
				first = last + rapid.Uint64Range(1, 50).Draw(r, "gap")
				last = first - 1
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

// refusesLists is a raft.db that cannot store the list of segments.
type refusesLists struct {
	Backend

	lists int // how many more are taken
}

var errFull = errors.New("no space left on device")

func (b *refusesLists) Set(key, value []byte) error {
	if bytes.Equal(key, keySegments) {
		if b.lists--; b.lists < 0 {
			return errFull
		}
	}
	return b.Backend.Set(key, value)
}

// raft-wal creates the next segment in a goroutine of its own. If the process exits
// before, or that fails, raft-wal appends to a full segment after it is opened again.
func TestALogThatEndsWithAFullSegmentContinues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := mustSegments(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	state, err := Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	bolt, err := raftboltdb.NewBoltStore(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	w, err := openWAL(dir, &refusesLists{Backend: bolt}, state, smallSegment, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	f := &fatals{}
	s := &Store{backend: w, hang: testTimeout, fatal: f.record, deletesAtOnce: true}
	if err := s.StoreLogs([]*raft.Log{sized(1, smallSegment)}); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLogs([]*raft.Log{sized(2, 10)}); !errors.Is(err, errFull) || len(f.all()) != 1 {
		t.Errorf("the segment could not be created; the next entry returned %v, and fatal was called %d times", err, len(f.all()))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustSegments(t, dir)
	if err := errors.Join(s.StoreLogs([]*raft.Log{sized(2, 10)}), s.check(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if state, err := Inspect(dir); err != nil || state.First != 1 || state.Last != 2 || len(state.wal.list.Segments) != 2 {
		t.Errorf("the log is %d to %d in %d segments, %v", state.First, state.Last, len(state.wal.list.Segments), err)
	}
}

// Raft deletes the end of a log, whether the last segment is full or not.
func TestASegmentedLogContinuesAfterItsEndWasDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for round := range uint64(5) {
		s := mustSegments(t, dir)
		for i := range uint64(20) {
			if err := s.StoreLogs([]*raft.Log{sized(10*round+i+1, 300)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(s.DeleteRange(10*round+11, 10*round+20), s.Close()); err != nil {
			t.Fatal(err)
		}
		if state, err := Inspect(dir); err != nil || state.First != 1 || state.Last != 10*round+10 {
			t.Fatalf("round %d: the log is %d to %d, %v", round, state.First, state.Last, err)
		}
	}
}

func TestMissingOrUnknownSegmentsAreDamage(t *testing.T) {
	t.Parallel()
	whole := t.TempDir()
	s := mustSegments(t, whole)
	for i := range uint64(61) { // 60 fill a segment, and the next is created in the background
		if err := s.StoreLogs([]*raft.Log{sized(i+1, 300)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	state, err := Inspect(whole)
	if err != nil || len(state.wal.list.Segments) < 4 {
		t.Fatalf("%d segments, %v", len(state.wal.list.Segments), err)
	}
	segment := func(dir string, i int) string {
		return segmentPath(filepath.Join(dir, segmentsDir), state.wal.list.Segments[i])
	}
	tail := len(state.wal.list.Segments) - 1
	for what, harm := range map[string]func(dir string) error{
		"it is missing":   func(dir string) error { return os.Remove(segment(dir, 1)) },
		"was stored":      func(dir string) error { return os.Remove(segment(dir, tail)) },
		"the log existed": func(dir string) error { return os.RemoveAll(filepath.Join(dir, segmentsDir)) },
		"is older": func(dir string) error {
			return os.WriteFile(segment(dir, 1)[:len(segment(dir, 1))-10]+"ffffff.wal", nil, 0o600)
		},
		"not that of a segment":     func(dir string) error { return os.WriteFile(filepath.Join(dir, segmentsDir, "x.wal"), nil, 0o600) },
		"is not a file":             func(dir string) error { return os.Mkdir(filepath.Join(dir, segmentsDir, "x.wal"), 0o700) },
		"should be":                 func(dir string) error { return os.Rename(segment(dir, 2), segment(dir, 1)) },
		"cannot be read":            func(dir string) error { return os.Truncate(segment(dir, 1), 2000) },
		"the list of segments in":   func(dir string) error { return os.Remove(filepath.Join(dir, FileName)) },
		"the log can be read up to": func(dir string) error { return os.Truncate(segment(dir, tail), 0) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "image")
			if err := errors.Join(os.CopyFS(dir, os.DirFS(whole)), harm(dir)); err != nil {
				t.Fatal(err)
			}
			_, err := Inspect(dir)
			if _, damaged := errors.AsType[*DamageError](err); !damaged || !strings.Contains(err.Error(), what) {
				t.Errorf("got %v, want a DamageError with %q", err, what)
			}
		})
	}
}
