package fsm

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// changing returns a machine with a job of many pages: nothing changed at index 2,
// and later an attempt of each of the given tasks was assigned.
func changing(t *testing.T, tasks ...uint32) (m *Machine, n uint32) {
	t.Helper()
	m, n = NewMachine(), 3*pageSize
	b := NewChunkBuilder(0)
	for i := range n {
		b.Add(string(rune('a'+i%26)), 0, nil, nil)
	}
	c := b.Chunk()
	entries := [][]Op{
		{worker(1), &BeginUpload{ID: 1, Key: "k", Header: diamond().header(), Total: n}, &AddChunk{Job: 1, Chunk: c}},
		{&SealUpload{Job: 1, Sum: c.Sum(0)}},
	}
	for _, i := range tasks {
		entries = append(entries, []Op{&Assign{Items: []AssignItem{AssignItem(hold(1, i, 1, 1))}}})
	}
	for at, ops := range entries {
		a, ok := m.Apply(uint64(at+1), Encode(nil, Entry{Ops: ops})).(Applied)
		if !ok || a.Rejected != Accepted {
			t.Fatalf("entry %d: %+v", at+1, a)
		}
		m.Fork() // so that pages are copied
	}
	return m, n
}

func changedAfter(t *testing.T, s *State, after uint64) []uint32 {
	t.Helper()
	tasks, known := s.ChangedTasks(1, after)
	if !known {
		t.Fatalf("the changes after %d are unknown", after)
	}
	return slices.Collect(tasks)
}

func TestChangedTasksAreThoseOfLaterEntries(t *testing.T) {
	t.Parallel()
	m, n := changing(t, 700, 3, 300, 4)
	s, last := m.Fork()
	if last != 6 || s.JobChanged(1) != 6 || s.JobChanged(7) != 0 {
		t.Errorf("got job change at %d, want %d", s.JobChanged(1), last)
	}
	for after, want := range map[uint64][]uint32{2: {3, 4, 300, 700}, 3: {3, 4, 300}, 4: {4, 300}, 5: {4}, 6: nil, 99: nil} {
		if got := changedAfter(t, s, after); !slices.Equal(got, want) {
			t.Errorf("after %d: %v, want %v", after, got, want)
		}
	}
	// Before its seal the job did not exist, so that all of it is new; 0 also
	// returns all tasks.
	for _, after := range []uint64{0, 1} {
		if got := changedAfter(t, s, after); len(got) != int(n) {
			t.Errorf("after %d: got %d tasks, want all %d", after, len(got), n)
		}
	}
	if _, known := s.ChangedTasks(2, 0); known {
		t.Error("got changes of an unknown job")
	}
}

func TestAForkDoesNotSeeLaterChanges(t *testing.T) {
	t.Parallel()
	m, _ := changing(t, 3)
	before, _ := m.Fork()
	m.Apply(4, Encode(nil, Entry{Ops: []Op{&Assign{Items: []AssignItem{AssignItem(hold(1, 4, 1, 1))}}}}))
	after, _ := m.Fork()
	if got := changedAfter(t, before, 3); len(got) > 0 || before.JobChanged(1) != 3 {
		t.Errorf("fork: got %v, job change at %d", got, before.JobChanged(1))
	}
	if got := changedAfter(t, after, 3); !slices.Equal(got, []uint32{4}) || after.JobChanged(1) != 4 {
		t.Errorf("machine: got %v, job change at %d", got, after.JobChanged(1))
	}
}

func TestARestoredMachineKnowsLaterChangesOnly(t *testing.T) {
	t.Parallel()
	m, n := changing(t, 3, 4)
	var b bytes.Buffer
	other := NewMachine()
	if err := errors.Join(m.Snapshot().Persist(&b), other.Restore(&b)); err != nil {
		t.Fatal(err)
	}
	other.Apply(5, Encode(nil, Entry{Ops: []Op{&Assign{Items: []AssignItem{AssignItem(hold(1, 5, 1, 1))}}}}))
	s, _ := other.Fork()
	for _, after := range []uint64{1, 2, 3} {
		if _, known := s.ChangedTasks(1, after); known {
			t.Errorf("the changes after %d are known, want unknown", after)
		}
	}
	if got := changedAfter(t, s, 4); !slices.Equal(got, []uint32{5}) {
		t.Errorf("after 4: got %v", got)
	}
	if got := changedAfter(t, s, 0); len(got) != int(n) {
		t.Errorf("all: %d", len(got))
	}
}

// Watches of a job send nothing when another job begins to need it.
func TestAJobDoesNotChangeWhenAnotherOneNeedsIt(t *testing.T) {
	t.Parallel()
	m, _ := changing(t)
	apply := func(index uint64, ops ...Op) {
		t.Helper()
		if a, ok := m.Apply(index, Encode(nil, Entry{Ops: ops})).(Applied); !ok || a.Rejected != Accepted {
			t.Fatalf("entry %d: %+v", index, a)
		}
	}
	sub := m.Subscribe(1)
	defer sub.Close()
	apply(3, needing(plan(nil), need(1)).submit(2, "needs it", 1)...)
	select {
	case <-sub.Changed:
		t.Error("the needed job was signaled as changed")
	default:
	}
	if s, _ := m.Fork(); s.JobChanged(1) != 2 || s.JobChanged(2) != 3 {
		t.Errorf("got changes at %d and %d, want 2 and 3", s.JobChanged(1), s.JobChanged(2))
	}
	apply(4, &CancelJob{Job: 1})
	if s, _ := m.Fork(); s.JobChanged(1) != 4 || s.JobChanged(2) != 4 {
		t.Errorf("after its end: got changes at %d and %d, want 4 and 4", s.JobChanged(1), s.JobChanged(2))
	}
}
