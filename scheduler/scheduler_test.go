package scheduler_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dtask/dtask/scheduler"
)

// fleet returns a Scheduler with workers 1 to n of equal slots.
func fleet(n, slots int) *scheduler.Scheduler {
	s := scheduler.New(1)
	for id := range n {
		s.AddWorker(scheduler.WorkerID(id+1), scheduler.Capacity{Slots: slots})
	}
	return s
}

func task(index int) scheduler.TaskRef { return scheduler.TaskRef{Job: 1, Index: uint32(index)} }

// mustNext returns the next assignment, which must exist.
func mustNext(t *testing.T, s *scheduler.Scheduler) scheduler.Assignment {
	t.Helper()
	a, ok := s.Next(nil)
	if !ok {
		t.Fatal("nothing was assigned")
	}
	return a
}

func mustNotNext(t *testing.T, s *scheduler.Scheduler) {
	t.Helper()
	if a, ok := s.Next(nil); ok {
		t.Fatalf("got %+v, want nothing assigned", a)
	}
}

// Tasks of a class that fits nowhere can be requeued again and again.
func TestRequeuedTasksCountOnce(t *testing.T) {
	t.Parallel()
	s := fleet(1, 1)
	class := s.Class(scheduler.Demand{Type: "x", Resources: []scheduler.Quantity{{Name: "gpu", Amount: 1}}})
	const n = 3
	for i := range 10 * n {
		s.Supersede(task(i % n))
		s.Push(task(i%n), class, scheduler.Normal, 0)
		mustNotNext(t, s)
	}
	if got := s.Depth(scheduler.Normal); got != n {
		t.Errorf("%d tasks are ready, want %d", got, n)
	}
}

func TestEqualWorkersFillEvenly(t *testing.T) {
	t.Parallel()
	s := fleet(10, 200)
	used := map[scheduler.WorkerID]int{}
	for i := range 1_000 {
		s.Push(task(i), 0, scheduler.Normal, 0)
		used[mustNext(t, s).Worker]++
		least, most := 200, 0
		for id := range scheduler.WorkerID(10) {
			least, most = min(least, used[id+1]), max(most, used[id+1])
		}
		if most-least > 1 {
			t.Fatalf("after %d tasks one worker has %d and another %d", i+1, most, least)
		}
	}
}

// This holds although at most half of their slots are taken.
func TestThousandsOfWorkersGetEvenShares(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ workers, slots int }{{10_000, 4}, {1_000, 8}} {
		s := fleet(x.workers, x.slots)
		running := make([]scheduler.WorkerID, x.workers*x.slots/2) // ring buffer
		begun := make([]int, x.workers+1)
		const each = 20
		for i := range each * x.workers {
			if oldest := running[i%len(running)]; oldest != 0 {
				s.Release(oldest, 0, scheduler.Normal)
			}
			s.Push(task(i), 0, scheduler.Normal, 0)
			w := mustNext(t, s).Worker
			running[i%len(running)] = w
			begun[w]++
		}
		least, most := slices.Min(begun[1:]), slices.Max(begun[1:])
		t.Logf("%d workers × %d slots: %d tasks each, at least %d, at most %d", x.workers, x.slots, each, least, most)
		if most-least > 1 {
			t.Errorf("%d workers × %d slots: shares of %d to %d, want %d", x.workers, x.slots, least, most, each)
		}
	}
}

func TestUnequalWorkersFillInProportion(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 10})
	s.AddWorker(2, scheduler.Capacity{Slots: 30})
	used := map[scheduler.WorkerID]int{}
	for i := range 20 {
		s.Push(task(i), 0, scheduler.Normal, 0)
		used[mustNext(t, s).Worker]++
	}
	if used[1] != 5 || used[2] != 15 {
		t.Errorf("20 tasks on 10 and 30 slots: got %v, want 5 and 15", used)
	}
}

// With one task at a time on idle workers, every choice is a tie.
func TestTiesAreFair(t *testing.T) {
	t.Parallel()
	s := fleet(10, 4)
	chosen, repeats, last := map[scheduler.WorkerID]int{}, 0, scheduler.WorkerID(0)
	for i := range 10_000 {
		s.Push(task(i), 0, scheduler.Normal, 0)
		a := mustNext(t, s)
		s.Release(a.Worker, a.Class, a.Priority)
		chosen[a.Worker]++
		if a.Worker == last {
			repeats++
		}
		last = a.Worker
	}
	for id, n := range chosen {
		if n < 900 || n > 1_100 {
			t.Errorf("worker %d won %d ties of 10,000, want about 1,000", id, n)
		}
	}
	if repeats == 0 || repeats > 2_000 {
		t.Errorf("%d of 10,000 tasks went to the same worker as the previous one, want few but some", repeats)
	}
}

func TestOneSeedGivesOneSequence(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) (out []scheduler.Assignment) {
		s := scheduler.New(seed)
		gpu := s.Class(scheduler.Demand{Resources: []scheduler.Quantity{{Name: "gpu", Amount: 1000}}})
		for id := range scheduler.WorkerID(50) {
			s.AddWorker(id+1, scheduler.Capacity{Slots: 4, Resources: []scheduler.Quantity{{Name: "gpu", Amount: 2000}}})
		}
		for i := range 300 {
			s.Push(task(i), []scheduler.ClassID{0, gpu}[i%2], scheduler.Priority(i%4+1), 0)
			if i%3 == 0 {
				continue
			}
			a, _ := s.Next(nil)
			out = append(out, a)
			if i%5 == 0 {
				s.Release(a.Worker, a.Class, a.Priority)
			}
		}
		return out
	}
	if diff := cmp.Diff(run(7), run(7)); diff != "" {
		t.Errorf("two runs with one seed differ (-first +second):\n%s", diff)
	}
	if slices.Equal(run(7), run(8)) {
		t.Error("two seeds gave the same choices")
	}
}

func TestARetryPrefersAnotherWorker(t *testing.T) {
	t.Parallel()
	s := fleet(2, 2)
	s.Occupy(2, 0, scheduler.Normal) // worker 1 is less loaded
	s.Push(task(0), 0, scheduler.Normal, 1)
	if a := mustNext(t, s); a.Worker != 2 {
		t.Errorf("got worker %d, where the task failed, although worker 2 has capacity", a.Worker)
	}
	s.Push(task(1), 0, scheduler.Normal, 1) // worker 2 is full
	if a := mustNext(t, s); a.Worker != 1 {
		t.Errorf("got worker %d, want the worker to avoid, which alone has capacity", a.Worker)
	}
}

// With many idle workers before the few that fit, the scan finds them, and it
// must choose like the walk.
func TestARetryPrefersAnotherOfFewFittingWorkers(t *testing.T) {
	t.Parallel()
	s := fleet(200, 1)
	eu := []scheduler.Label{{Name: "zone", Value: "eu"}}
	c := s.Class(scheduler.Demand{Labels: eu})
	for id, taken := range []int{1, 3, 4} {
		s.AddWorker(scheduler.WorkerID(201+id), scheduler.Capacity{Slots: 4, Labels: eu})
		for range taken {
			s.Occupy(scheduler.WorkerID(201+id), 0, scheduler.Normal)
		}
	}
	for i, want := range []scheduler.WorkerID{202, 201} {
		s.Push(task(i), c, scheduler.Normal, 201)
		if a := mustNext(t, s); a.Worker != want {
			t.Errorf("task %d: got worker %d, want %d", i, a.Worker, want)
		}
	}
}

func TestABlockedClassResumesWhenAWorkerAcceptsAgain(t *testing.T) {
	t.Parallel()
	s := fleet(1, 1)
	eu := []scheduler.Label{{Name: "zone", Value: "eu"}}
	s.AddWorker(2, scheduler.Capacity{Slots: 1, Labels: eu})
	s.SetAccepting(2, false)
	s.Push(task(0), s.Class(scheduler.Demand{Labels: eu}), scheduler.Normal, 0)
	mustNotNext(t, s)
	s.SetAccepting(2, true)
	if a := mustNext(t, s); a.Worker != 2 {
		t.Errorf("got worker %d, want 2", a.Worker)
	}
}

func TestATaskThatFitsNowhereDelaysNoOther(t *testing.T) {
	t.Parallel()
	s := fleet(1, 2)
	picky := s.Class(scheduler.Demand{Labels: []scheduler.Label{{Name: "zone", Value: "eu"}}})
	s.Push(task(0), picky, scheduler.Urgent, 0)
	s.Push(task(1), 0, scheduler.Low, 0)
	if a := mustNext(t, s); a.Task != task(1) {
		t.Errorf("got %+v, want the task that fits", a)
	}
	mustNotNext(t, s)
	if got := s.Depth(scheduler.Urgent); got != 1 {
		t.Errorf("depth of urgent: got %d, want 1", got)
	}
	s.AddWorker(2, scheduler.Capacity{Slots: 1, Labels: []scheduler.Label{{Name: "zone", Value: "eu"}}})
	if a := mustNext(t, s); a.Task != task(0) || a.Worker != 2 {
		t.Errorf("got %+v, want task 0 on the new worker", a)
	}
}

func TestOrderOfArrivalHoldsAcrossClasses(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	classes := []scheduler.ClassID{0}
	for n := range int64(3) {
		classes = append(classes, s.Class(scheduler.Demand{Resources: []scheduler.Quantity{{Name: "cpu", Amount: n + 1}}}))
	}
	for i := range 500 {
		s.Push(task(i), classes[i*7%4], scheduler.High, 0)
	}
	s.AddWorker(1, scheduler.Capacity{Slots: 500, Resources: []scheduler.Quantity{{Name: "cpu", Amount: 10_000}}})
	for i := range 500 {
		if a := mustNext(t, s); a.Task != task(i) {
			t.Fatalf("got %+v, want task %d", a, i)
		}
	}
}

func TestADrainingWorkerGetsNothingNewAndKeepsItsAttempts(t *testing.T) {
	t.Parallel()
	s := fleet(1, 1)
	s.Push(task(0), 0, scheduler.Normal, 0)
	s.Push(task(1), 0, scheduler.Normal, 0)
	a := mustNext(t, s)
	s.SetAccepting(1, false)
	if !s.Release(a.Worker, a.Class, a.Priority) {
		t.Error("an attempt of a draining worker could not be released")
	}
	mustNotNext(t, s)
	s.AddWorker(1, scheduler.Capacity{Slots: 2}) // registers again, still draining
	mustNotNext(t, s)
	s.SetAccepting(1, true)
	mustNext(t, s)
}

func TestReleasingAnAttemptThatIsNotHeldChangesNothing(t *testing.T) {
	t.Parallel()
	s := fleet(1, 1)
	if s.Release(1, 0, scheduler.Normal) || s.Release(2, 0, scheduler.Normal) {
		t.Error("released an attempt that was not held")
	}
	s.Push(task(0), 0, scheduler.Normal, 0)
	s.Push(task(1), 0, scheduler.Normal, 0)
	mustNext(t, s)
	s.RemoveWorker(1)
	if s.Release(1, 0, scheduler.Normal) {
		t.Error("released on a removed worker")
	}
	s.AddWorker(1, scheduler.Capacity{Slots: 1})
	mustNext(t, s) // the new one holds nothing
	mustNotNext(t, s)
}

func TestCapacityOutOfRangeIsClamped(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	tooMuch := s.Class(scheduler.Demand{Resources: []scheduler.Quantity{{Name: "disk", Amount: scheduler.MaxAmount + 1}}})
	most := s.Class(scheduler.Demand{Resources: []scheduler.Quantity{{Name: "disk", Amount: scheduler.MaxAmount}}})
	s.AddWorker(1, scheduler.Capacity{Slots: 1 << 40, Resources: []scheduler.Quantity{{Name: "disk", Amount: 1<<63 - 1}}})
	s.AddWorker(2, scheduler.Capacity{Slots: -1})
	s.Push(task(0), tooMuch, scheduler.Normal, 0)
	mustNotNext(t, s)
	s.Push(task(1), most, 99, 0) // an invalid priority
	if a := mustNext(t, s); a.Worker != 1 || a.Priority != scheduler.Normal {
		t.Errorf("got %+v, want worker 1 at normal priority", a)
	}
	for i := range scheduler.MaxSlots - 1 {
		s.Push(task(i), 0, scheduler.Normal, 0)
		mustNext(t, s)
	}
	s.Push(task(0), 0, scheduler.Normal, 0)
	mustNotNext(t, s)
}

func TestEqualDemandsShareAClass(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	q := func(name string, n int64) scheduler.Quantity { return scheduler.Quantity{Name: name, Amount: n} }
	l := func(name, value string) scheduler.Label { return scheduler.Label{Name: name, Value: value} }
	distinct := []scheduler.Demand{
		{},
		{Resources: []scheduler.Quantity{q("a", 1)}},
		{Resources: []scheduler.Quantity{q("a", 2)}},
		{Resources: []scheduler.Quantity{q("a", 1), q("b", 1)}},
		{Resources: []scheduler.Quantity{q("a 1|1:b", 1)}},
		{Labels: []scheduler.Label{l("a", "1")}},
		{Labels: []scheduler.Label{l("a", "1"), l("a", "2")}},
		{Labels: []scheduler.Label{l("", "a1")}},
	}
	for i, d := range distinct {
		if got := s.Class(d); int(got) != i {
			t.Errorf("demand %d: got class %d", i, got)
		}
	}
	same := map[int]scheduler.Demand{
		0: {Resources: []scheduler.Quantity{q("a", 0), q("b", -5)}},
		2: {Resources: []scheduler.Quantity{q("a", 1), q("a", 1)}},
		3: {Resources: []scheduler.Quantity{q("b", 1), q("a", 1)}},
		6: {Labels: []scheduler.Label{l("a", "2"), l("a", "1"), l("a", "2")}},
	}
	for i, d := range same {
		if got := s.Class(d); int(got) != i {
			t.Errorf("demand %+v: got class %d, want %d", d, got, i)
		}
	}
}

func TestAViewHasAllObstacles(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	c := s.Class(scheduler.Demand{
		Resources: []scheduler.Quantity{{Name: "gpu", Amount: 1500}},
		Labels:    []scheduler.Label{{Name: "zone", Value: "eu"}},
	})
	eu := []scheduler.Label{{Name: "zone", Value: "eu"}}
	gpus := []scheduler.Quantity{{Name: "gpu", Amount: 2000}}
	s.AddWorker(3, scheduler.Capacity{Slots: 2, Resources: gpus, Labels: eu})
	s.AddWorker(1, scheduler.Capacity{Slots: 1, Resources: gpus, Labels: eu})
	s.AddWorker(2, scheduler.Capacity{Slots: 8})
	s.Occupy(1, c, scheduler.Normal)
	s.SetAccepting(2, false)

	got := map[scheduler.WorkerID][]string{}
	var order []scheduler.WorkerID
	for _, v := range s.View(scheduler.TaskRef{}, c, scheduler.Normal, 0, nil).Workers() {
		order = append(order, v.Worker)
		for _, o := range v.Obstacles {
			got[v.Worker] = append(got[v.Worker], o.String())
		}
	}
	want := map[scheduler.WorkerID][]string{
		1: {"all 1 slots in use", "resource gpu: 1.5 required, 0.5 of 2 free"},
		2: {"not accepting tasks", "label zone=eu missing", "resource gpu: 1.5 required, 0 of 0 free"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("obstacles (-want +got):\n%s", diff)
	}
	if !slices.Equal(order, []scheduler.WorkerID{1, 2, 3}) {
		t.Errorf("workers are in the order %v, want by id", order)
	}
}

func TestADrainedQueueFreesItsMemory(t *testing.T) {
	t.Parallel()
	s := fleet(1, 1)
	for i := range 100_000 {
		s.Push(task(i), 0, scheduler.Normal, 0)
	}
	if got := s.Sweep(func(ref scheduler.TaskRef) bool { return ref == task(99_999) }); got != 99_999 {
		t.Errorf("swept %d entries, want 99,999", got)
	}
	if a := mustNext(t, s); a.Task != task(99_999) {
		t.Errorf("got %+v, want the task that was kept", a)
	}
	if err := s.Check(); err != nil { // an empty queue has no page
		t.Error(err)
	}
	if got := s.SparePages(); got > 64 {
		t.Errorf("%d drained pages are kept, want at most 64", got)
	}
}

func TestTasksArePrefetchedOnlyWithoutAFreeSlot(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 1})
	s.AddWorker(2, scheduler.Capacity{Slots: 1})
	s.SetPrefetch(1, 2)
	plain, prompt := s.Class(scheduler.Demand{}), s.Class(scheduler.Demand{NoPrefetch: true})
	for i := range 5 {
		s.Push(task(i), plain, scheduler.Normal, 0)
	}
	got := map[scheduler.WorkerID]int{}
	for {
		a, ok := s.Next(nil)
		if !ok {
			break
		}
		got[a.Worker]++
		if n := got[1] + got[2]; n == 2 && (got[1] != 1 || got[2] != 1) {
			t.Errorf("workers hold %v; free slots must be used first", got)
		}
	}
	if got[1] != 3 || got[2] != 1 {
		t.Errorf("workers hold %v, want 3 on the one that prefetches 2 and 1 on the other", got)
	}
	s.Push(task(10), prompt, scheduler.Normal, 0)
	s.Release(1, plain, scheduler.Normal)
	if a, ok := s.Next(nil); !ok || a.Class != plain {
		t.Errorf("got %+v, %v; only the plain task may be prefetched", a, ok)
	}
	s.Release(2, plain, scheduler.Normal)
	if a, ok := s.Next(nil); !ok || a.Class != prompt || a.Worker != 2 {
		t.Errorf("got %+v, %v, want the task without prefetch in the free slot", a, ok)
	}
}
