package fsm

import (
	"bytes"
	"testing"
)

// The per-task work of a loaded cluster allocates nothing: pages, buffers and
// lists keep their size after an entry of that size. These tests are not parallel:
// AllocsPerRun counts the allocations of all goroutines.

// held is the number of items of an entry: many tasks share it.
const held = 1000

// assignSome and completeSome are the operations for first attempts of the first
// tasks of the large job.
func assignSome(attempt uint32) Entry {
	o := new(Assign)
	for i := range uint32(held) {
		o.Items = append(o.Items, AssignItem(hold(1, i, attempt, 1)))
	}
	return Entry{Ops: []Op{o}}
}

func completeSome() Entry {
	o := new(Complete)
	for i := range uint32(held) {
		o.Items = append(o.Items, CompleteItem{HeldAttempt: hold(1, i, 1, 1), DurationMS: 7})
	}
	return Entry{Ops: []Op{o}}
}

func requeueSome(attempt uint32) Entry {
	o := new(Requeue)
	for i := range uint32(held) {
		o.Items = append(o.Items, hold(1, i, attempt, 1))
	}
	return Entry{Ops: []Op{o}}
}

func TestEncodingAllocatesNothingForItsTasks(t *testing.T) {
	for name, e := range map[string]Entry{"assign": assignSome(1), "complete": completeSome()} {
		buffer := Encode(nil, e)
		const encoder = 1
		if allocs := testing.AllocsPerRun(100, func() { buffer = Encode(buffer[:0], e) }); allocs > encoder {
			t.Errorf("%s: got %v allocations for %d tasks, want %d", name, allocs, held, encoder)
		}
	}
}

func TestDecodingAllocatesForTheEntryAndNotForItsTasks(t *testing.T) {
	for name, e := range map[string]Entry{"assign": assignSome(1), "complete": completeSome()} {
		data := Encode(nil, e)
		const few = 32
		allocs := testing.AllocsPerRun(100, func() {
			if _, err := Decode(data); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > few {
			t.Errorf("%s: got %v allocations for %d tasks, want at most %d", name, allocs, held, few)
		}
	}
}

// Attempts are assigned, requeued and assigned again: the same pages are written
// repeatedly, as between two snapshots.
func TestApplyingToOwnedPagesAllocatesNothing(t *testing.T) {
	s := New()
	for e := range largeLog {
		if r := s.Apply(e, nil); r != Accepted {
			t.Fatal(r)
		}
	}
	// Build the entries before the measurement: one pair for each run and one for
	// the warm-up run of AllocsPerRun.
	const runs = 20
	var pairs [][2]Entry
	for attempt := range uint32(runs + 2) {
		pairs = append(pairs, [2]Entry{assignSome(attempt + 1), requeueSome(attempt + 1)})
	}
	next := 0
	play := func() {
		for _, e := range pairs[next] {
			if r := s.Apply(e, nil); r != Accepted {
				t.Fatal(r)
			}
		}
		next++
	}
	play() // let every slice reach its size
	if allocs := testing.AllocsPerRun(runs, play); allocs != 0 {
		t.Errorf("got %v allocations for %d tasks, want 0", allocs, held)
	}
}

func TestExpectedCompletionsAreReserved(t *testing.T) {
	s := New()
	for e := range largeLog {
		if r := s.Apply(e, nil); r != Accepted {
			t.Fatal(r)
		}
	}
	if r := s.Apply(assignSome(1), nil); r != Accepted {
		t.Fatal(r)
	}
	d := NewEntryBuilder(s.Fork(), 1, new(Effects))
	d.ExpectCompletions(held)
	room := 0
	for _, it := range completeSome().Ops[0].(*Complete).Items {
		if r := d.Complete(it); r != Accepted {
			t.Fatal(r)
		}
		l := d.open.(*Complete)
		if room == 0 {
			room = cap(l.Items)
		}
		if cap(l.Items) != room || room < held {
			t.Fatalf("with %d of %d completions: got capacity %d, want %d", len(l.Items), held, cap(l.Items), room)
		}
	}
	e, _, _ := d.Finish()
	plain := NewEntryBuilder(s.Fork(), 1, new(Effects))
	if r := plain.Do(completeSome().Ops[0]); r != Accepted {
		t.Fatal(r)
	}
	if want, _, _ := plain.Finish(); !bytes.Equal(Encode(nil, e), Encode(nil, want)) {
		t.Error("the expected number of completions changes the entry")
	}
}
