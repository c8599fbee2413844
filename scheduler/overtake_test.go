package scheduler_test

import (
	"slices"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// busy returns a worker with two slots that holds six low attempts, of which
// four wait there for a slot.
func busy(t *testing.T, capacity scheduler.Capacity) *scheduler.Scheduler {
	t.Helper()
	s := scheduler.New(1)
	capacity.Slots = 2
	s.AddWorker(1, capacity)
	s.SetPrefetch(1, 4)
	for i := range 10 {
		s.Push(task(i), 0, scheduler.Low, 0)
	}
	for range 6 {
		mustNext(t, s)
	}
	if a, ok := s.Next(nil); ok {
		t.Fatalf("got %+v on a full worker", a)
	}
	return s
}

func TestAnUrgentTaskOvertakesWaitingAttemptsOfALowerPriority(t *testing.T) {
	t.Parallel()
	gpu := []scheduler.Quantity{{Name: "gpu", Amount: 1000}}
	s := busy(t, scheduler.Capacity{Resources: gpu})
	withGPU := s.Class(scheduler.Demand{Resources: gpu})
	s.Push(task(20), 0, scheduler.Low, 0)
	s.Push(task(21), withGPU, scheduler.High, 0)
	s.Push(task(22), withGPU, scheduler.High, 0)
	s.Push(task(23), 0, scheduler.Urgent, 0)
	for _, want := range []int{23, 21} {
		if a := mustNext(t, s); a.Task != task(want) {
			t.Errorf("got %+v, want task %d", a, want)
		}
	}
	if a, ok := s.Next(nil); ok {
		t.Errorf("got %+v; the resource is taken, and equals don't overtake", a)
	}
	for range 3 { // as many may overtake as the worker may hold of their priority
		s.Push(task(30), 0, scheduler.Urgent, 0)
		mustNext(t, s)
	}
	s.Push(task(31), s.Class(scheduler.Demand{NoPrefetch: true}), scheduler.Urgent, 0)
	if a, ok := s.Next(nil); ok {
		t.Errorf("got %+v; the next two slots are for those before it", a)
	}
}

func TestNothingOvertakesRunningAttempts(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 1})
	s.Push(task(1), 0, scheduler.Low, 0)
	mustNext(t, s)
	s.Push(task(2), 0, scheduler.Urgent, 0)
	if a, ok := s.Next(nil); ok {
		t.Errorf("got %+v; it would wait there although another worker may be free sooner", a)
	}
}

// attempts are what a worker holds, in the order of their arrival. It ends the urgent ones
// first, and the oldest at every 16th time, as it starts them.
type attempts struct {
	held []scheduler.Priority
	ends int
}

func (x *attempts) end() scheduler.Priority {
	at := max(0, slices.Index(x.held, scheduler.Urgent))
	if x.ends++; x.ends%16 == 0 {
		at = 0
	}
	p := x.held[at]
	x.held = slices.Delete(x.held, at, at+1)
	return p
}

// Each urgent task that ends is followed by another, which overtakes while the worker holds
// others. Such starts count for the turn by age: the next one in order is the oldest task.
func TestATaskStartsAtItsTurnByAgeAlthoughUrgentOnesOvertake(t *testing.T) {
	t.Parallel()
	s := busy(t, scheduler.Capacity{})
	w := attempts{held: slices.Repeat([]scheduler.Priority{scheduler.Low}, 6)}
	oldest, starts := 6, 0 // of the tasks that busy has pushed, which wait
	bound := 16 * len(w.held)
	for n := 100; oldest < 10; n++ {
		s.Push(task(n), 0, scheduler.Urgent, 0)
		s.Release(1, 0, w.end())
		for a, ok := s.Next(nil); ok; a, ok = s.Next(nil) {
			w.held = append(w.held, a.Priority)
			if starts++; starts > bound {
				t.Fatalf("%d tasks were started while task %d was the oldest", starts, oldest)
			}
			if a.Priority == scheduler.Low {
				if a.Task != task(oldest) {
					t.Fatalf("got %+v, want task %d", a, oldest)
				}
				oldest, starts = oldest+1, 0
			}
		}
	}
}

// Without a reservation, short tasks that are prefetched would take each place
// before a slot is free, for as long as there are any.
func TestATaskThatIsNotPrefetchedGetsAFreeSlotAmongShortOnes(t *testing.T) {
	t.Parallel()
	gpu := []scheduler.Quantity{{Name: "gpu", Amount: 1000}}
	s := busy(t, scheduler.Capacity{Resources: gpu})
	s.Push(task(20), s.Class(scheduler.Demand{Resources: gpu}), scheduler.Low, 0)
	for i := range 5 {
		s.Push(task(30+i), 0, scheduler.Low, 0)
	}
	for ended := range 20 {
		s.Release(1, 0, scheduler.Low)
		for a, ok := s.Next(nil); ok; a, ok = s.Next(nil) {
			if a.Task == task(20) {
				t.Logf("assigned after the end of %d attempts", ended+1)
				return
			}
			if a.Task.Index >= 30 {
				t.Fatalf("%+v was assigned before an older task that fits", a)
			}
		}
	}
	t.Error("the task was never assigned")
}

func TestATaskGoesOnlyToWorkersThatHandleItsType(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 100, Types: []string{"noop", "prime"}})
	s.AddWorker(2, scheduler.Capacity{Slots: 1, Types: []string{"command"}})
	prime, command, unknown := s.Class(scheduler.Demand{Type: "prime"}), s.Class(scheduler.Demand{Type: "command"}), s.Class(scheduler.Demand{Type: "x"})
	s.Push(task(1), unknown, scheduler.Urgent, 0)
	s.Push(task(2), command, scheduler.Normal, 0)
	s.Push(task(3), command, scheduler.Normal, 0)
	s.Push(task(4), prime, scheduler.Normal, 0)
	if a := mustNext(t, s); a.Task != task(2) || a.Worker != 2 {
		t.Errorf("got %+v, want task 2 on worker 2", a)
	}
	if a := mustNext(t, s); a.Task != task(4) || a.Worker != 1 {
		t.Errorf("got %+v, want task 4 on worker 1", a)
	}
	if a, ok := s.Next(nil); ok {
		t.Errorf("got %+v, want nothing", a)
	}
	for _, fit := range s.View(scheduler.TaskRef{}, unknown, scheduler.Normal, 0, nil).Workers() {
		if got := fit.Obstacles[len(fit.Obstacles)-1].String(); got != "does not handle type x" {
			t.Errorf("worker %d: got %q", fit.Worker, got)
		}
	}
	s.AddWorker(3, scheduler.Capacity{Slots: 1}) // of an earlier version: it handles all
	if a := mustNext(t, s); a.Task != task(1) || a.Worker != 3 {
		t.Errorf("got %+v, want task 1 on worker 3", a)
	}
}
