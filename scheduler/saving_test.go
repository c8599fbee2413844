package scheduler_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// A quotaFlow is a steady flow of small tasks of a queue: for each that starts, another one is
// ready, and the one that has run longest ends next. A large task of the queue waits beside them.
type quotaFlow struct {
	s            *scheduler.Scheduler
	small, large scheduler.ClassID
	running      []scheduler.Assignment
	pushed       int
	cancelled    map[scheduler.TaskRef]bool
}

func newQuotaFlow(t *testing.T, q scheduler.Queue, small, large scheduler.Demand) *quotaFlow {
	t.Helper()
	s := scheduler.New(1)
	for id := range scheduler.WorkerID(2) {
		s.AddWorker(id+1, scheduler.Capacity{Slots: 8, Resources: cpus(8)})
	}
	s.SetQueue("etl", q)
	small.Queue, large.Queue = "etl", "etl"
	f := &quotaFlow{s: s, small: s.Class(small), large: s.Class(large), cancelled: map[scheduler.TaskRef]bool{}}
	for range 20 {
		f.push(f.small)
	}
	f.start()
	return f
}

func (f *quotaFlow) push(c scheduler.ClassID) scheduler.TaskRef {
	f.pushed++
	f.s.Push(task(f.pushed), c, scheduler.Normal, 0)
	return task(f.pushed)
}

// start starts what can start, and reports whether the large task is among it.
func (f *quotaFlow) start() (large bool) {
	valid := func(r scheduler.TaskRef) bool { return !f.cancelled[r] }
	for a, ok := f.s.Next(valid); ok; a, ok = f.s.Next(valid) {
		f.running = append(f.running, a)
		if large = large || a.Class == f.large; a.Class == f.small {
			f.push(f.small)
		}
	}
	return large
}

// end ends the task that has run longest, and starts what can start then.
func (f *quotaFlow) end() (large bool) {
	a := f.running[0]
	f.running = f.running[1:]
	f.s.Release(a.Worker, a.Class, a.Priority)
	return f.start()
}

func TestALargeTaskStartsBesideSmallOnesThatUseUpTheQuota(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		queue        scheduler.Queue
		small, large scheduler.Demand
	}{
		"of all that the queue may hold": {scheduler.Queue{Max: cpus(4)}, scheduler.Demand{Resources: cpus(1)}, scheduler.Demand{Resources: cpus(4)}},
		"of another owner":               {scheduler.Queue{Max: cpus(4)}, scheduler.Demand{Resources: cpus(1)}, scheduler.Demand{Resources: cpus(3), Owner: "bob"}},
		"of a whole worker, in a queue with as many tasks as it may run": {
			scheduler.Queue{MaxRunning: 6}, scheduler.Demand{Resources: cpus(2)}, scheduler.Demand{Resources: cpus(8)},
		},
		"of a whole worker and all that the queue may hold": {
			scheduler.Queue{Max: cpus(8)}, scheduler.Demand{Resources: cpus(2)}, scheduler.Demand{Resources: cpus(8)},
		},
		"of a whole worker, with all workers in use": {
			scheduler.Queue{Max: cpus(16)}, scheduler.Demand{Resources: cpus(2)}, scheduler.Demand{Resources: cpus(8)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, listed := range []int{0, 16} {
				f := newQuotaFlow(t, x.queue, x.small, x.large)
				f.s.SetWaits(listed, 16)
				f.push(f.large)
				starts := 0
				for ; starts < 200 && !f.end(); starts++ {
					if err := f.s.Check(); err != nil {
						t.Fatal(err)
					}
				}
				if starts == 200 {
					t.Fatalf("the large task never starts, with %d ready queues in lists", listed)
				}
			}
		})
	}
}

// Nothing is saved for a task that takes more than the quota, or more than any worker has.
func TestATaskThatCanNeverStartHoldsNoneOfItsQueueBack(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ quota, large int64 }{"above the quota": {6, 7}, "above each worker": {12, 9}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newQuotaFlow(t, scheduler.Queue{Max: cpus(x.quota)}, scheduler.Demand{Resources: cpus(1)}, scheduler.Demand{Resources: cpus(x.large)})
			f.push(f.large)
			for range 200 {
				if f.end(); len(f.running) != int(x.quota) {
					t.Fatalf("%d small tasks run, want %d", len(f.running), x.quota)
				}
			}
		})
	}
}

// newSaving returns a flow of which all of the quota is saved, with the task that it is saved for.
func newSaving(t *testing.T) (f *quotaFlow, large scheduler.TaskRef) {
	t.Helper()
	f = newQuotaFlow(t, scheduler.Queue{Max: cpus(4)}, scheduler.Demand{Resources: cpus(1)}, scheduler.Demand{Resources: cpus(4)})
	large = f.push(f.large)
	for range 200 {
		if f.end(); len(f.running) < 4 {
			return f, large
		}
	}
	t.Fatal("no quota is saved")
	return nil, large
}

func TestQuotaIsSavedNoLongerForATaskThatIsCancelled(t *testing.T) {
	t.Parallel()
	f, large := newSaving(t)
	f.cancelled[large] = true
	if f.start(); len(f.running) != 4 {
		t.Errorf("%d small tasks run after the large one was cancelled, want 4", len(f.running))
	}
}

func TestQuotaIsSavedNoLongerForATaskThatNoWorkerCanRun(t *testing.T) {
	t.Parallel()
	f, _ := newSaving(t)
	for id := range scheduler.WorkerID(2) {
		f.s.AddWorker(id+1, scheduler.Capacity{Slots: 8, Resources: cpus(3)})
	}
	if f.start(); len(f.running) != 4 {
		t.Errorf("%d small tasks run after the workers shrank, want 4", len(f.running))
	}
}

func TestQuotaIsSavedNoLongerForATaskAboveASmallerQuota(t *testing.T) {
	t.Parallel()
	f, _ := newSaving(t)
	f.s.SetQueue("etl", scheduler.Queue{Max: cpus(3)})
	for range 10 {
		f.end()
	}
	if len(f.running) != 3 {
		t.Errorf("%d small tasks run with a quota of 3 CPUs, want 3", len(f.running))
	}
}

// A program may set a queue to what it is, or to another quota, again and again.
func TestQuotaRemainsSavedIfTheQueueIsSetAgain(t *testing.T) {
	t.Parallel()
	f, _ := newSaving(t)
	for i := range 10 {
		f.s.SetQueue("etl", scheduler.Queue{Max: cpus(4 + int64(i%2))})
		if f.end() {
			return
		}
	}
	t.Error("the large task does not start")
}

func TestATaskThatWaitsForSavedQuotaSaysSo(t *testing.T) {
	t.Parallel()
	f, _ := newSaving(t)
	v := f.s.View(task(f.pushed), f.small, scheduler.Normal, 0, nil)
	reasons := v.Queue()
	want := `queue etl: cpu: 1 required, 0 left of its quota of 4, with 4 saved for an older task`
	if len(reasons) != 1 || reasons[0].String() != want {
		t.Errorf("got %v, want %s", reasons, want)
	}
}

// Others of the queue start after the task for which all of the quota is saved.
func TestAnEstimateKnowsForWhichTaskQuotaIsSaved(t *testing.T) {
	t.Parallel()
	f, large := newSaving(t)
	var running []scheduler.RunningAttempt
	for _, a := range f.running {
		running = append(running, scheduler.RunningAttempt{Worker: a.Worker, Class: a.Class, Task: a.Task})
	}
	slices.SortFunc(running, func(a, b scheduler.RunningAttempt) int { return cmp.Compare(a.Worker, b.Worker) })
	for _, x := range []struct {
		ref   scheduler.TaskRef
		class scheduler.ClassID
		want  int64
	}{{large, f.large, 5_000}, {task(f.pushed), f.small, 10_000}} {
		v := f.s.View(x.ref, x.class, scheduler.Normal, 0, nil)
		f.s.ViewRunning(v, running)
		if e := v.Estimate(1, fiveSeconds); e.Doubt != 0 || e.FromMS < x.want || e.FromMS > 10*x.want {
			t.Errorf("task %v: got %+v, want a start after %d ms at the earliest", x.ref, e, x.want)
		}
	}
}

// A task of the same class with a higher priority is another one: a flow of them would take the
// quota each time.
func TestQuotaIsSavedFromTasksOfTheSameClassWithAHigherPriority(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 8, Resources: cpus(8)})
	s.SetQueue("q", scheduler.Queue{Max: cpus(4)})
	large, small := s.Class(scheduler.Demand{Queue: "q", Resources: cpus(4)}), s.Class(scheduler.Demand{Queue: "q"})
	pushed := 0
	push := func(c scheduler.ClassID, p scheduler.Priority) {
		pushed++
		s.Push(task(pushed), c, p, 0)
	}
	push(large, scheduler.Normal)
	running := mustNext(t, s)
	push(large, scheduler.Low)
	for range 100 {
		push(large, scheduler.Normal)
		for range 15 { // so that no end of a large task comes before a turn by age
			push(small, scheduler.Normal)
			if a := mustNext(t, s); a.Class != small {
				t.Fatalf("got %+v, want a small task", a)
			}
			s.Release(1, small, scheduler.Normal)
		}
		s.Release(1, large, running.Priority)
		if running = mustNext(t, s); running.Priority == scheduler.Low {
			return
		}
	}
	t.Error("the task with the low priority never starts")
}

// While it waits for the worker of its key, quota that was saved for it would be unused.
func TestAQueueDoesNotStandStillForALargeTaskWithAKey(t *testing.T) {
	t.Parallel()
	f := newQuotaFlow(t, scheduler.Queue{Max: cpus(4)}, scheduler.Demand{Resources: cpus(1)}, scheduler.Demand{Resources: cpus(4), Affinity: keysOf(1)[0]})
	for len(f.running) > 0 { // until none is on the worker of the key
		a := f.running[0]
		f.running = f.running[1:]
		f.s.Release(a.Worker, a.Class, a.Priority)
	}
	f.s.Occupy(1, f.s.Class(scheduler.Demand{Queue: "long", Resources: cpus(8)}), scheduler.Normal)
	f.start()
	f.push(f.large)
	for range 200 {
		if f.end(); len(f.running) != 4 {
			t.Fatalf("%d small tasks run, want 4", len(f.running))
		}
	}
}
