package scheduler_test

import (
	"slices"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// A stage is a cluster whose preemptible attempts may end for urgent tasks, as the sequencer lets
// them.
type stage struct {
	s       *scheduler.Scheduler
	now     int64
	pushed  int
	running []scheduler.Assignment
	ending  map[scheduler.WorkerID]bool
	yields  map[scheduler.Assignment]int // attempts that may end, by worker, class and priority
}

func newStage(workers int, c scheduler.Capacity) *stage {
	x := &stage{s: scheduler.New(1), ending: map[scheduler.WorkerID]bool{}, yields: map[scheduler.Assignment]int{}}
	for id := range workers {
		x.s.AddWorker(scheduler.WorkerID(id+1), c) //nolint:gosec // small
	}
	x.s.Advance(0)
	return x
}

func (x *stage) push(n int, d scheduler.Demand, p scheduler.Priority) (last scheduler.TaskRef) {
	for range n {
		x.pushed++
		last = task(x.pushed)
		x.s.Push(last, x.s.Class(d), p, 0)
	}
	return last
}

// wait lets all that was pushed wait for a second.
func (x *stage) wait() {
	x.s.Advance(x.now + 100)
	x.now += 1100
	x.s.Advance(x.now)
}

func (x *stage) start() (started []scheduler.Assignment) {
	for a, ok := x.s.Next(nil); ok; a, ok = x.s.Next(nil) {
		if a.Priority < scheduler.Urgent && x.s.IsPreemptible(a.Class) && !x.s.StartedByAge() {
			x.s.Yields(a.Worker, a.Class, a.Priority, 1)
			x.yields[scheduler.Assignment{Worker: a.Worker, Class: a.Class, Priority: a.Priority}]++
		}
		started = append(started, a)
	}
	x.running = append(x.running, started...)
	return started
}

// end ends a running attempt of a class and priority on a worker.
func (x *stage) end(w scheduler.WorkerID, c scheduler.ClassID, p scheduler.Priority) {
	i := slices.IndexFunc(x.running, func(a scheduler.Assignment) bool { return a.Worker == w && a.Class == c && a.Priority == p })
	if k := (scheduler.Assignment{Worker: w, Class: c, Priority: p}); x.yields[k] > 0 {
		x.yields[k]--
		x.s.Yields(w, c, p, -1)
	}
	x.s.Release(w, c, p)
	x.running = slices.Delete(x.running, i, i+1)
}

func (x *stage) preempt() (scheduler.Preemption, bool) {
	p, ok := x.s.PreemptOne(nil, func(w scheduler.WorkerID) bool { return x.ending[w] })
	if ok {
		x.ending[p.Worker] = true
	}
	return p, ok
}

// endAll ends what ends for a preemption, and puts the tasks behind all others.
func (x *stage) endAll(p scheduler.Preemption) {
	for _, y := range p.Yields {
		for range y.N {
			x.end(p.Worker, y.Class, y.Priority)
		}
	}
	delete(x.ending, p.Worker)
}

func preemptible(queue string) scheduler.Demand {
	return scheduler.Demand{Queue: queue, Preemptible: true}
}

func TestAnUrgentTaskTakesThePlaceOfAPreemptibleOne(t *testing.T) {
	t.Parallel()
	x := newStage(2, scheduler.Capacity{Slots: 2})
	x.push(4, preemptible("ml"), scheduler.Low)
	x.start()
	urgent := x.push(1, scheduler.Demand{Queue: "ml"}, scheduler.Urgent)
	x.push(8, scheduler.Demand{Queue: "other"}, scheduler.Normal) // its queue has the smaller share
	x.start()
	if p, ok := x.preempt(); ok {
		t.Fatalf("%+v before the task has waited for a second", p)
	}
	x.wait()
	p, ok := x.preempt()
	if !ok || p.Task != urgent || len(p.Yields) != 1 || p.Yields[0].N != 1 || p.Yields[0].Priority != scheduler.Low {
		t.Fatalf("got %+v, %v, want one attempt of a low task for task %v", p, ok, urgent)
	}
	if again, ok := x.preempt(); ok {
		t.Fatalf("%+v for the same task", again)
	}
	if list, complete := x.s.View(task(12), x.s.Class(scheduler.Demand{Queue: "other"}), scheduler.Normal, 0, nil).Changes(); len(list) > 0 || complete {
		t.Errorf("changes %+v, complete %v, while attempts end for an urgent task", list, complete)
	}
	x.endAll(p)
	if started := x.start(); len(started) != 1 || started[0].Task != urgent || started[0].Worker != p.Worker {
		t.Errorf("%+v start, want the urgent task on worker %d", started, p.Worker)
	}
	if err := x.s.Check(); err != nil {
		t.Error(err)
	}
}

func TestOnlyPreemptibleTasksOfALowerPriorityInTheSameQueueEnd(t *testing.T) {
	t.Parallel()
	firm := preemptible("ml")
	firm.Preemptible = false
	for name, held := range map[string]struct {
		demand   scheduler.Demand
		priority scheduler.Priority
	}{
		"not preemptible":     {firm, scheduler.Low},
		"of another queue":    {preemptible("other"), scheduler.Low},
		"of the same urgency": {preemptible("ml"), scheduler.Urgent},
	} {
		x := newStage(1, scheduler.Capacity{Slots: 1})
		x.push(1, held.demand, held.priority)
		x.start()
		x.push(1, scheduler.Demand{Queue: "ml"}, scheduler.Urgent)
		x.start()
		x.wait()
		if p, ok := x.preempt(); ok {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// Two workers with 4 CPUs each. The one with normal tasks could give its place with fewer ends.
func TestTasksOfTheLowestPriorityEndAndOfThemTheFewest(t *testing.T) {
	t.Parallel()
	cpu := func(n int64) scheduler.Demand {
		d := preemptible("ml")
		d.Resources = cpus(n)
		return d
	}
	x := newStage(2, scheduler.Capacity{Slots: 4, Resources: cpus(4)})
	x.s.SetAccepting(2, false)
	x.push(1, cpu(1), scheduler.Low)
	x.push(1, cpu(3), scheduler.Low)
	x.start()
	x.s.SetAccepting(2, true)
	x.push(1, cpu(4), scheduler.Normal)
	x.start()
	x.push(1, scheduler.Demand{Queue: "ml", Resources: cpus(3)}, scheduler.Urgent)
	x.start()
	x.wait()
	want := x.s.Class(cpu(3))
	if p, ok := x.preempt(); !ok || p.Worker != 1 || len(p.Yields) != 1 || p.Yields[0] != (scheduler.Yield{Class: want, Priority: scheduler.Low, N: 1}) {
		t.Errorf("got %+v, %v, want the low task with 3 CPUs", p, ok)
	}
}

func TestAnUrgentTaskThatAQuotaHoldsBackTakesThePlaceOfAnother(t *testing.T) {
	t.Parallel()
	x := newStage(2, scheduler.Capacity{Slots: 8, Resources: cpus(8)})
	x.s.SetQueue("ml", scheduler.Queue{Max: cpus(4)})
	d := preemptible("ml")
	d.Resources = cpus(1)
	x.push(4, d, scheduler.Low)
	x.start()
	urgent := x.push(1, scheduler.Demand{Queue: "ml", Resources: cpus(2)}, scheduler.Urgent)
	x.start()
	x.wait()
	p, ok := x.preempt()
	if !ok || len(p.Yields) != 1 || p.Yields[0].N != 2 {
		t.Fatalf("got %+v, %v, want two ends", p, ok)
	}
	x.endAll(p)
	if started := x.start(); len(started) != 1 || started[0].Task != urgent {
		t.Errorf("%+v start, want the urgent task", started)
	}
}

// The worker that is kept for a large task of the queue stays kept for it.
func TestAnUrgentTaskTakesAPlaceBesideTheWorkerThatIsKeptForALargeOne(t *testing.T) {
	t.Parallel()
	x := newStage(2, scheduler.Capacity{Slots: 2, Resources: cpus(2)})
	small := preemptible("ml")
	small.Resources = cpus(1)
	x.push(4, small, scheduler.Low)
	x.start()
	x.push(1, scheduler.Demand{Queue: "ml", Resources: cpus(2)}, scheduler.Low)
	for i := 0; i < 40 && len(x.s.Reservations()) == 0; i++ { // until a turn by age
		x.push(1, small, scheduler.Low)
		x.end(x.running[0].Worker, x.running[0].Class, x.running[0].Priority)
		x.start()
	}
	kept := x.s.Reservations()
	if len(kept) == 0 {
		t.Fatal("no worker is kept")
	}
	urgent := x.push(1, scheduler.Demand{Queue: "ml", Resources: cpus(1)}, scheduler.Urgent)
	x.wait()
	p, ok := x.preempt()
	if !ok || p.Task != urgent || p.Worker == kept[0].Worker {
		t.Fatalf("got %+v, %v, want an end for %v", p, ok, urgent)
	}
	x.endAll(p)
	if started := x.start(); len(started) == 0 || started[0].Task != urgent {
		t.Errorf("%+v start, want the urgent task first", started)
	}
	if now := x.s.Reservations(); !slices.Equal(now, kept) {
		t.Errorf("%+v are kept, want %+v", now, kept)
	}
	if err := x.s.Check(); err != nil {
		t.Error(err)
	}
}

func TestAPausedQueueKeepsNoWorkerForItsUrgentTask(t *testing.T) {
	t.Parallel()
	x := newStage(1, scheduler.Capacity{Slots: 1})
	x.push(1, preemptible("ml"), scheduler.Low)
	x.start()
	x.push(1, scheduler.Demand{Queue: "ml"}, scheduler.Urgent)
	other := x.push(1, scheduler.Demand{Queue: "other"}, scheduler.Normal)
	x.start()
	x.wait()
	p, _ := x.preempt()
	x.s.SetQueue("ml", scheduler.Queue{Paused: true})
	x.endAll(p)
	if started := x.start(); len(started) != 1 || started[0].Task != other {
		t.Errorf("%+v start, want the task of the other queue", started)
	}
	if err := x.s.Check(); err != nil {
		t.Error(err)
	}
}

// The worker where attempts ended for a task is gone before they did.
func TestAnotherWorkerIsChosenIfTheFirstIsLost(t *testing.T) {
	t.Parallel()
	x := newStage(2, scheduler.Capacity{Slots: 1})
	x.push(2, preemptible("ml"), scheduler.Low)
	x.start()
	x.push(1, scheduler.Demand{Queue: "ml"}, scheduler.Urgent)
	x.start()
	x.wait()
	p, _ := x.preempt()
	x.s.RemoveWorker(p.Worker)
	if again, ok := x.preempt(); !ok || again.Worker != 3-p.Worker {
		t.Errorf("got %+v, %v, want worker %d", again, ok, 3-p.Worker)
	}
	if err := x.s.Check(); err != nil {
		t.Error(err)
	}
}

// The older task has a key, whose worker runs nothing that may end. The other one has none.
func TestAnUrgentTaskWithAKeyDoesNotHoldBackOthers(t *testing.T) {
	t.Parallel()
	x := newStage(2, scheduler.Capacity{Slots: 1})
	home := scheduler.ChooseKeyWorker("", "a", []scheduler.WorkerID{1, 2})
	x.s.SetAccepting(home, false)
	x.push(1, preemptible("ml"), scheduler.Low)
	x.start()
	x.s.SetAccepting(home, true)
	x.push(1, scheduler.Demand{Queue: "ml"}, scheduler.Low)
	x.start()
	x.push(1, scheduler.Demand{Queue: "ml", Affinity: "a"}, scheduler.Urgent)
	urgent := x.push(1, scheduler.Demand{Queue: "ml"}, scheduler.Urgent)
	x.start()
	x.wait()
	if p, ok := x.preempt(); !ok || p.Task != urgent || p.Worker != 3-home {
		t.Errorf("got %+v, %v, want a place on worker %d for %v", p, ok, 3-home, urgent)
	}
}

// At a turn by age, the only worker is kept for the urgent task itself, of which an attempt that may
// end takes the rest.
func TestAnUrgentTaskTakesAPlaceOnTheWorkerThatIsKeptForIt(t *testing.T) {
	t.Parallel()
	x := newStage(1, scheduler.Capacity{Slots: 8, Resources: cpus(2)})
	large := preemptible("ml")
	large.Resources = cpus(1)
	x.push(2, large, scheduler.Low)
	x.start()
	urgent := x.push(1, scheduler.Demand{Queue: "ml", Resources: cpus(2)}, scheduler.Urgent)
	for range 20 {
		x.push(1, scheduler.Demand{Queue: "ml"}, scheduler.Low)
		for _, a := range x.start() {
			x.end(a.Worker, a.Class, a.Priority)
		}
	}
	if len(x.s.Reservations()) != 1 || x.s.Reservations()[0].Task != urgent {
		t.Fatalf("kept: %+v, want for %v", x.s.Reservations(), urgent)
	}
	x.wait()
	p, ok := x.preempt()
	if !ok || p.Task != urgent {
		t.Fatalf("got %+v, %v, want ends for %v", p, ok, urgent)
	}
	x.endAll(p)
	if started := x.start(); len(started) == 0 || started[0].Task != urgent {
		t.Errorf("%+v start, want the urgent task", started)
	}
}

// Another queue could give its place with a lower priority.
func TestAttemptsOfOtherQueuesDoNotEnd(t *testing.T) {
	t.Parallel()
	x := newStage(1, scheduler.Capacity{Slots: 1})
	x.push(1, preemptible("other"), scheduler.Low)
	x.start()
	x.s.AddWorker(2, scheduler.Capacity{Slots: 1})
	x.push(1, preemptible("ml"), scheduler.High)
	x.start()
	x.push(1, scheduler.Demand{Queue: "ml"}, scheduler.Urgent)
	x.start()
	x.wait()
	if p, ok := x.preempt(); !ok || p.Worker != 2 {
		t.Errorf("got %+v, %v, want worker 2, where an attempt of the queue runs", p, ok)
	}
}

func TestUrgentAttemptsDoNotEndWhateverTheCallerNames(t *testing.T) {
	t.Parallel()
	x := newStage(1, scheduler.Capacity{Slots: 1})
	x.push(1, preemptible("ml"), scheduler.Urgent)
	x.start()
	x.s.Yields(1, x.running[0].Class, scheduler.Urgent, 1)
	x.push(1, scheduler.Demand{Queue: "ml"}, scheduler.Urgent)
	x.start()
	x.wait()
	if p, ok := x.preempt(); ok {
		t.Errorf("got %+v, want nothing", p)
	}
}

// The attempt with both gives most of what is lacking, and is not enough. With the other two, it is
// not needed.
func TestNoAttemptEndsThatIsNotNeeded(t *testing.T) {
	t.Parallel()
	both := func(n, gpus int64) scheduler.Demand {
		d := preemptible("ml")
		d.Resources = cpusAndGPUs(n, gpus)
		return d
	}
	x := newStage(1, scheduler.Capacity{Slots: 8, Resources: cpusAndGPUs(5, 5)})
	for _, d := range []scheduler.Demand{both(2, 2), both(3, 0), both(0, 3)} {
		x.push(1, d, scheduler.Low)
	}
	x.start()
	x.push(1, scheduler.Demand{Queue: "ml", Resources: cpusAndGPUs(3, 3)}, scheduler.Urgent)
	x.start()
	x.wait()
	p, ok := x.preempt()
	some := slices.ContainsFunc(p.Yields, func(y scheduler.Yield) bool { return y.Class == x.s.Class(both(2, 2)) })
	if !ok || some || len(p.Yields) != 2 {
		t.Errorf("got %+v, %v, want the two attempts that hold one resource each", p, ok)
	}
}

func TestMoreAttemptsEndRatherThanOneOfAHigherPriority(t *testing.T) {
	t.Parallel()
	cpu := func(n int64) scheduler.Demand {
		d := preemptible("ml")
		d.Resources = cpus(n)
		return d
	}
	x := newStage(1, scheduler.Capacity{Slots: 4, Resources: cpus(4)})
	x.push(4, cpu(1), scheduler.Low)
	x.start()
	x.s.AddWorker(2, scheduler.Capacity{Slots: 4, Resources: cpus(4)})
	x.push(1, cpu(4), scheduler.Normal)
	x.start()
	x.push(1, scheduler.Demand{Queue: "ml", Resources: cpus(3)}, scheduler.Urgent)
	x.start()
	x.wait()
	if p, ok := x.preempt(); !ok || p.Worker != 1 || len(p.Yields) != 1 || p.Yields[0].N != 3 {
		t.Errorf("got %+v, %v, want three low attempts on worker 1", p, ok)
	}
}
