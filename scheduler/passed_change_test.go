package scheduler_test

import (
	"slices"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// A queue whose task waits for a shape that was blocked before it came is passed over only from the
// next start on. A change after which 17 tasks of another queue start can then reserve the worker
// for it, before the last of them.
func TestAChangeKnowsThatAQueueMayBePassedOver(t *testing.T) {
	t.Parallel()
	plain := scheduler.Demand{Queue: "small", NoPrefetch: true}
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	demands := make([]scheduler.Demand, 18)
	for i := range demands {
		demands[i] = plain
	}
	st := madeState(func(f *fork) {
		f.addWorker(1, scheduler.Capacity{Slots: 2, Resources: cpu(4)})
		for range 2 {
			f.Occupy(1, f.Class(scheduler.Demand{Queue: "small", Resources: cpu(2)}), scheduler.Normal)
		}
		push := func(index uint32, d scheduler.Demand) scheduler.TaskRef {
			ref := scheduler.TaskRef{Job: 9, Index: index}
			f.Push(ref, f.Class(d), scheduler.Normal, 0)
			return ref
		}
		push(1, plain)
		f.settle()
		large := push(2, scheduler.Demand{Queue: "left", Resources: cpu(4)})
		f.settle()
		f.cancelled[large] = true
		push(3, scheduler.Demand{Queue: "large", Resources: cpu(4)})
	}, demands...)
	slots := func(n int64) scheduler.Change {
		return scheduler.Change{Kind: scheduler.AddSlots, Worker: 1, Amount: n}
	}
	checkAnswer(t, st, 14, slots(16), true, true)
	checkAnswer(t, st, 17, slots(19), false, false)
}

// At the turn by age of another queue, which is before that of the task, an older task starts that
// waits for the worker of its key: it takes the slot.
func TestAChangeKnowsOfTheTurnByAgeOfAnotherQueueWithKeys(t *testing.T) {
	t.Parallel()
	st := madeState(func(f *fork) {
		f.addWorker(3, scheduler.Capacity{Slots: 15})
		f.PushRun(scheduler.TaskRef{Job: 9}, 15, f.Class(scheduler.Demand{Queue: "keyed"}), scheduler.Normal)
		f.settle()
		f.RemoveWorker(3)
		delete(f.capacity, 3)
		for id := scheduler.WorkerID(1); id <= 2; id++ {
			f.addWorker(id, scheduler.Capacity{Slots: 1})
			f.Occupy(id, f.Class(scheduler.Demand{Queue: "small", NoPrefetch: true}), scheduler.Normal)
		}
	}, scheduler.Demand{Queue: "keyed", Affinity: keysOf(1)[0]}, scheduler.Demand{Queue: "small", NoPrefetch: true})
	checkAnswer(t, st, 1, scheduler.Change{Kind: scheduler.AddSlots, Worker: 2, Amount: 1}, false, false)
}

// When the limit of an array is raised, its tasks reach a turn by age: then a worker is kept free
// for an older task of the queue, and has no slots for the others.
func TestARaisedLimitKnowsWhichWorkerIsReservedAtATurnByAge(t *testing.T) {
	t.Parallel()
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	limited := scheduler.Demand{NoPrefetch: true, Limit: 1, Group: scheduler.TaskRef{Job: 1}}
	st := madeState(func(f *fork) {
		oldestNext(f)
		for id, slots := range []int{4, 3} {
			id := scheduler.WorkerID(id + 1)
			f.addWorker(id, scheduler.Capacity{Slots: slots, Resources: cpu(4)})
			f.Occupy(id, f.Class(scheduler.Demand{Resources: cpu(int64(id))}), scheduler.Normal)
		}
		f.Occupy(2, f.Class(limited), scheduler.Normal)
	}, scheduler.Demand{Resources: cpu(4)}, limited, limited, limited, limited, limited)
	raise := func(n int64) scheduler.Change { return scheduler.Change{Kind: scheduler.RaiseLimit, Amount: n} }
	checkAnswer(t, st, 1, raise(2), true, true)
	checkAnswer(t, st, 2, raise(3), true, false)
	checkAnswer(t, st, 4, raise(5), false, false)
}

// Two queues are passed over: the worker that is sooner free is reserved for the first one, and that
// of the change for the second, also if the first one could not get it.
func TestAChangeKnowsOfASecondReservation(t *testing.T) {
	t.Parallel()
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	eu := []scheduler.Label{{Name: "zone", Value: "eu"}}
	for _, first := range []scheduler.Demand{{Queue: "large", Resources: cpu(4)}, {Queue: "large", Resources: cpu(4), Labels: eu}} {
		demands := []scheduler.Demand{first, {Queue: "larger", Resources: cpu(4)}}
		for range 17 {
			demands = append(demands, scheduler.Demand{Queue: "small", NoPrefetch: true})
		}
		st := madeState(func(f *fork) {
			f.addWorker(1, scheduler.Capacity{Slots: 4, Resources: cpu(8), Labels: eu})
			f.addWorker(2, scheduler.Capacity{Slots: 4, Resources: cpu(4)})
			for range 4 {
				f.Occupy(1, f.Class(scheduler.Demand{Queue: "small", Resources: cpu(2)}), scheduler.Normal)
				f.Occupy(2, f.Class(scheduler.Demand{Queue: "small", Resources: cpu(1)}), scheduler.Normal)
			}
		}, demands...)
		slots := func(n int64) scheduler.Change {
			return scheduler.Change{Kind: scheduler.AddSlots, Worker: 2, Amount: n}
		}
		checkAnswer(t, st, 17, slots(16), true, true)
		checkAnswer(t, st, 18, slots(17), false, false)
		f, last := st.fork(), st.tasks[18]
		for range 1000 { // in any order of the queues
			list, _ := f.View(last.ref, last.class, last.priority, 0, f.valid).Changes()
			if slices.ContainsFunc(list, func(c scheduler.Change) bool { return c.Kind == scheduler.AddSlots }) {
				t.Fatal("got more slots, with which it does not start")
			}
		}
	}
}

// A task that has waited for a second for the worker of its key, which lacks resources for it, may
// start anywhere, and waits for any worker: it takes the slot that a change makes free.
func TestAChangeKnowsOfATaskThatMayStartAnywhereDespiteItsKey(t *testing.T) {
	t.Parallel()
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	eu := []scheduler.Label{{Name: "zone", Value: "eu"}}
	st := madeState(func(f *fork) {
		f.addWorker(1, scheduler.Capacity{Slots: 2, Resources: cpu(4)})
		f.addWorker(2, scheduler.Capacity{Slots: 1, Resources: cpu(4), Labels: eu})
		f.Occupy(1, f.Class(scheduler.Demand{Resources: cpu(2)}), scheduler.Normal)
		f.Occupy(2, f.Class(scheduler.Demand{NoPrefetch: true}), scheduler.Normal)
	}, scheduler.Demand{Affinity: keysOf(1)[0], Resources: cpu(4)}, scheduler.Demand{NoPrefetch: true, Labels: eu})
	st.steps = append(st.steps, func(f *fork) {
		f.Advance(100)
		f.Advance(2000)
		f.settle()
	})
	checkAnswer(t, st, 1, scheduler.Change{Kind: scheduler.AddSlots, Worker: 2, Amount: 1}, false, false)
}

// Whether a queue gets a worker because it was passed over is not always known. At a turn by age
// after that, it may still get the worker that is changed.
func TestAChangeKnowsThatAQueueMayHaveNoReservationYet(t *testing.T) {
	t.Parallel()
	amount := func(name string, n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: name, Amount: n}} }
	plain := scheduler.Demand{NoPrefetch: true}
	demands := slices.Repeat([]scheduler.Demand{plain}, 21)
	demands[15] = scheduler.Demand{Resources: amount("cpu", 1)} // the 17th start: then 2 CPUs are left
	demands[19] = scheduler.Demand{Resources: amount("gpu", 1)}
	st := madeState(func(f *fork) {
		f.addWorker(3, scheduler.Capacity{Slots: 12})
		f.PushRun(scheduler.TaskRef{Job: 9}, 12, f.Class(plain), scheduler.Normal)
		f.settle()
		f.RemoveWorker(3)
		delete(f.capacity, 3)
		f.addWorker(1, scheduler.Capacity{Slots: 1, Resources: amount("cpu", 4)})
		f.addWorker(2, scheduler.Capacity{Slots: 1, Resources: amount("gpu", 1)})
		f.addWorker(3, scheduler.Capacity{Slots: 1, Reserved: true}) // with a free slot, so that tasks are looked at
		f.Occupy(1, f.Class(plain), scheduler.Normal)
		f.Occupy(2, f.Class(demands[19]), scheduler.Normal)
		f.Push(scheduler.TaskRef{Job: 8}, f.Class(scheduler.Demand{Resources: amount("cpu", 1)}), scheduler.Low, 0) // the 4th start
		f.Push(scheduler.TaskRef{Job: 7}, f.Class(scheduler.Demand{Resources: amount("cpu", 3)}), scheduler.Low, 0)
	}, demands...)
	slots := func(n int64) scheduler.Change {
		return scheduler.Change{Kind: scheduler.AddSlots, Worker: 1, Amount: n}
	}
	checkAnswer(t, st, 14, slots(16), true, true)
	checkAnswer(t, st, 20, slots(21), false, false)
}

// A worker that is kept free for a task of another queue is not reserved for one of the queue of
// the task, at a turn by age after a change of that.
func TestAChangeOfAQueueKnowsWhichWorkersAreKeptForOthers(t *testing.T) {
	t.Parallel()
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	plain := scheduler.Demand{Queue: "ml", NoPrefetch: true}
	st := madeState(func(f *fork) {
		f.addWorker(3, scheduler.Capacity{Slots: 31})
		for job, queue := range map[uint64]string{8: "ml", 9: "hpc"} {
			f.PushRun(scheduler.TaskRef{Job: job}, 15, f.Class(scheduler.Demand{Queue: queue, NoPrefetch: true}), scheduler.Normal)
		}
		f.settle()
		for id := scheduler.WorkerID(1); id <= 2; id++ {
			if f.addWorker(id, scheduler.Capacity{Slots: 3, Resources: cpu(4)}); id == 1 {
				f.Occupy(1, f.Class(scheduler.Demand{Queue: "hpc", Resources: cpu(2)}), scheduler.Normal)
				f.Push(scheduler.TaskRef{Job: 7}, f.Class(scheduler.Demand{Queue: "hpc", Resources: cpu(4)}), scheduler.Normal, 0)
				f.Push(scheduler.TaskRef{Job: 6}, f.Class(scheduler.Demand{Queue: "hpc", NoPrefetch: true}), scheduler.Normal, 0)
				f.settle() // now worker 1 is kept for job 7
			}
		}
		f.Occupy(2, f.Class(scheduler.Demand{Queue: "hpc", Resources: cpu(2)}), scheduler.Normal)
		f.RemoveWorker(3)
		delete(f.capacity, 3)
		f.setQueue("ml", scheduler.Queue{Weight: 1, Paused: true})
	}, scheduler.Demand{Queue: "ml", Resources: cpu(4)}, plain, plain)
	if kept := st.fork().Reservations(); len(kept) != 1 || kept[0].Worker != 1 {
		t.Fatalf("%+v are kept, want worker 1", kept)
	}
	resume := scheduler.Change{Kind: scheduler.ResumeQueue, Name: "ml"}
	checkAnswer(t, st, 1, resume, true, true)
	checkAnswer(t, st, 2, resume, false, true)
}
