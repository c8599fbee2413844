package sequencer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/fsm"
)

func TestHoldingsBehaveLikeAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var h holdings
		model, ends := make(map[fsm.AttemptRef]uint64), make(map[fsm.AttemptRef]fsm.JobID)
		attempts := rapid.Custom(func(t *rapid.T) fsm.AttemptRef {
			return fsm.AttemptRef{
				TaskRef: fsm.TaskRef{Job: fsm.JobID(rapid.Uint64Range(1, 3).Draw(t, "job")), Index: rapid.Uint32Range(0, 20).Draw(t, "index")},
				Attempt: rapid.Uint32Range(1, 2).Draw(t, "attempt"),
			}
		})
		for n := range rapid.Uint64Range(0, 200).Draw(t, "steps") {
			a := attempts.Draw(t, "which")
			switch x := h.find(a); rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				h.add(a).number = n
				model[a] = n
				delete(ends, a)
				continue
			case 2:
				if x != nil {
					job := fsm.JobID(rapid.Uint64Range(0, 1).Draw(t, "by"))
					ends[a] = job
					h.end(x, ending{since: monoTime(n), by: job})
				}
				continue
			case 3:
				if x != nil {
					h.resume(x)
					delete(ends, a)
				}
				continue
			}
			x, ok := h.remove(a)
			delete(ends, a)
			if want, known := model[a]; ok != known || x.number != want {
				t.Fatalf("remove(%v) returned number %d, %v; want %d, %v", a, x.number, ok, want, known)
			}
			delete(model, a)
			if h.find(a) != nil {
				t.Fatalf("%v is found after its removal", a)
			}
		}
		if h.len() != len(model) || len(h.sorted()) != len(model) || !slices.IsSortedFunc(h.sorted(), compareAttempts) {
			t.Fatalf("%d are held, in order %v; want %d", h.len(), h.sorted(), len(model))
		}
		if len(h.endings) != len(ends) {
			t.Fatalf("%d attempts end, want %d", len(h.endings), len(ends))
		}
		for a, n := range model {
			if x := h.find(a); x == nil || x.number != n {
				t.Fatalf("%v is %+v, want number %d", a, x, n)
			}
			by, asked := ends[a]
			if x := h.find(a); x.ends != asked || x.preempted != (by != 0) || h.endings[a].by != by {
				t.Fatalf("%v is %+v, ends for job %d; want %v, job %d", a, x, h.endings[a].by, asked, by)
			}
		}
	})
}

func TestAddingAndRemovingAnAttemptAllocatesNothing(t *testing.T) {
	var h holdings
	name := func(i int) fsm.AttemptRef {
		return fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 7, Index: uint32(i)}, Attempt: 1} //nolint:gosec // small
	}
	next := 0
	for ; next < 1000; next++ {
		h.add(name(next))
	}
	if n := testing.AllocsPerRun(1000, func() {
		h.remove(name(next - 1000))
		h.add(name(next))
		next++
	}); n != 0 {
		t.Errorf("adding and removing an attempt allocates %v times", n)
	}
}

func BenchmarkHoldings(b *testing.B) {
	var h holdings
	name := func(i int) fsm.AttemptRef {
		return fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: fsm.JobID(1 + i/10_000), Index: uint32(i % 10_000)}, Attempt: 1} //nolint:gosec // not negative
	}
	for i := range 1000 {
		h.add(name(i))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.add(name(1000 + i))
		h.remove(name(i))
	}
}

func TestAWorkerMayRunWhatItReportedAndWhatItReceivedFirst(t *testing.T) {
	t.Parallel()
	ref := func(i uint32) fsm.AttemptRef {
		return fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1, Index: i}, Attempt: 1}
	}
	var h holdings
	for i, x := range []held{{number: 5}, {number: 4}, {number: 6, started: 9}, {number: 7, started: 9}, {}} {
		x.AttemptRef = ref(uint32(i))
		*h.add(x.AttemptRef) = x
	}
	for slots, want := range map[int][]uint32{0: {2, 3}, 1: {2, 3}, 3: {2, 3, 4}, 4: {1, 2, 3, 4}, 9: {0, 1, 2, 3, 4}} {
		var got []uint32
		for _, a := range h.sorted() {
			if h.oldest(slots)[a] {
				got = append(got, a.Index)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("with %d slots: attempts %v may have run, want %v", slots, got, want)
		}
	}
}
