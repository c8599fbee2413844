package fsm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"
)

func noop(term uint64) []byte {
	return Encode(nil, Entry{Ops: []Op{&StartTerm{Term: term, ServerID: "n1"}}})
}

func TestMarksAreTheLastEntriesOldestFirst(t *testing.T) {
	t.Parallel()
	m := NewMachine()
	if got := m.Marks(0); len(got) != 0 {
		t.Fatalf("%d marks before the first entry", len(got))
	}
	const last = markCount + 100
	digests := make([]uint64, last+1)
	for i := uint64(1); i <= last; i++ {
		a, _ := m.Apply(i, noop(i)).(Applied)
		digests[i] = a.Digest
	}
	for from, want := range map[uint64]int{0: markCount, 101: markCount, 102: markCount - 1, last: 1, last + 1: 0} {
		got := m.Marks(from)
		if len(got) != want {
			t.Errorf("from %d: %d marks, want %d", from, len(got), want)
		}
		for i, k := range got {
			if k.Digest != digests[k.Index] || (i > 0 && k.Index != got[i-1].Index+1) {
				t.Errorf("from %d: mark %d is %+v", from, i, k)
			}
		}
	}
}

func TestTheTimeOfTheNextEntryIsKnownWhileItIsKept(t *testing.T) {
	t.Parallel()
	m := NewMachine()
	const last = 2 * (markCount + 100)
	for i := uint64(2); i <= last; i += 2 { // the others are Raft's own
		m.Apply(i, Encode(nil, Entry{NowMS: int64(1000 + i), Ops: []Op{&StartTerm{Term: i, ServerID: "n1"}}}))
	}
	oldest := uint64(last - 2*(markCount-1))
	for index, want := range map[uint64]int64{
		0: 0, oldest - 1: 0, oldest: int64(1002 + oldest), oldest + 1: int64(1002 + oldest), last - 2: 1000 + last, last - 1: 1000 + last, last: 0, last + 9: 0,
	} {
		if got, known := m.NextEntry(index); got != want || known != (want != 0) {
			t.Errorf("after %d: got %d, %t, want %d", index, got, known, want)
		}
	}
	if _, known := NewMachine().NextEntry(0); known {
		t.Error("known before the first entry")
	}
}

func TestAwaitReturnsWhenItsEntryIsApplied(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := NewMachine()
		done := make(chan error, 2)
		go func() { done <- m.Await(t.Context(), 2) }()
		gone, cancel := context.WithCancelCause(t.Context())
		go func() { done <- m.Await(gone, 99) }()
		m.Apply(1, noop(1))
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("returned too early: %v", err)
		default:
		}
		m.Apply(2, noop(2))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		cause := errors.New("nobody waits any more")
		cancel(cause)
		if err := <-done; !errors.Is(err, cause) || !strings.Contains(err.Error(), "log entry 99, applied 2") {
			t.Fatalf("got %v", err)
		}
	})
}

func TestARestoreWakesWaiters(t *testing.T) {
	t.Parallel()
	a, b := NewMachine(), NewMachine()
	for i := uint64(1); i <= 9; i++ {
		a.Apply(i, noop(i))
	}
	b.Apply(1, noop(77))
	changed := b.Changed(1)
	b.CacheDecoded([]byte{1}, Entry{})
	if err := a.Snapshot().carryTo(b); err != nil {
		t.Fatal(err)
	}
	<-changed
	<-b.Changed(8) // is already past
	if b.Index() != 9 || len(b.Marks(0)) != 0 || len(b.decoded) != 0 {
		t.Errorf("restored to %d with %d marks, %d expected entries", b.Index(), len(b.Marks(0)), len(b.decoded))
	}
	if err := b.Await(t.Context(), 9); err != nil {
		t.Error(err)
	}
}

func TestAFailedRestoreChangesNothing(t *testing.T) {
	t.Parallel()
	m := NewMachine()
	m.Apply(1, noop(1))
	before, _ := m.Fork()
	var b bytes.Buffer
	if err := m.Snapshot().Persist(&b); err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(bytes.NewReader(b.Bytes()[:b.Len()-1])); err == nil {
		t.Fatal("restored half a snapshot")
	}
	after, index := m.Fork()
	sameState(t, "after the failure", after, before)
	if index != 1 || len(m.Marks(0)) != 1 {
		t.Errorf("index %d with %d marks", index, len(m.Marks(0)))
	}
}

// full is a writer that has capacity for n bytes.
type full int

func (w *full) Write(b []byte) (int, error) {
	if *w -= full(len(b)); *w < 0 {
		return 0, errors.New("no space")
	}
	return len(b), nil
}

func TestASnapshotThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	m := NewMachine()
	m.Apply(1, noop(1))
	for room := range 20 {
		w := full(room)
		if err := m.Snapshot().Persist(&w); err == nil {
			t.Errorf("written into %d bytes", room)
		}
	}
}

func TestACachedEntryIsUsedOnceAndCanBeDropped(t *testing.T) {
	t.Parallel()
	m := NewMachine()
	data := noop(1)
	m.CacheDecoded(data, Entry{Ops: []Op{&StartTerm{Term: 50}}}) // not what the bytes say, to see which is used
	m.Apply(1, data)
	m.Read(func(s *State, index uint64) {
		if term, _ := s.Term(); term != 50 || index != 1 {
			t.Errorf("term %d at %d, want that of the expected entry", term, index)
		}
	})
	again := noop(60)
	m.CacheDecoded(again, Entry{})
	m.DropDecoded(again)
	m.Apply(2, again)
	if s, _ := m.Fork(); s.term != 60 {
		t.Errorf("term %d, want that of the bytes", s.term)
	}
}

// For the race detector: readers, forks, snapshots and waiters beside Apply,
// and a fork that is written to meanwhile, as the sequencer's is.
func TestReadersRunWhileEntriesAreApplied(t *testing.T) {
	t.Parallel()
	h := randomHistory(seeded(5), 300, 12)
	m := newLaterMachine()
	var group errgroup.Group
	last := uint64(len(h.log))
	for reader := range 4 {
		group.Go(func() error {
			for at := uint64(1); at <= last; at += uint64(1 + reader*3) {
				if err := m.Await(t.Context(), at); err != nil {
					return err
				}
				if err := readAll(m, reader); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for i, data := range h.log {
		m.Apply(uint64(i+1), data)
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	s, _ := m.Fork()
	if err := h.compare(s); err != nil {
		t.Fatal(err)
	}
}

// readAll reads all that there is, each reader in its own way.
func readAll(m *Machine, reader int) error {
	switch reader {
	case 0:
		var err error
		m.Read(func(s *State, _ uint64) { err = s.Check() })
		return err
	case 1:
		return m.Snapshot().Persist(new(bytes.Buffer))
	case 2:
		s, index := m.Fork()
		if g := newGenerator(seeded(index)); index > 0 {
			s.Apply(Entry{Ops: g.ops(s)}, nil)
		}
		return s.Check()
	default:
		s, _ := m.Fork()
		for j := range s.Jobs(0) {
			if s.Name(ref(j.ID, 0)) == "" {
				return fmt.Errorf("job %d has a task without a name", j.ID)
			}
		}
		m.Marks(0)
		return nil
	}
}
