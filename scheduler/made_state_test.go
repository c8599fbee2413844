package scheduler_test

import (
	"slices"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// madeState returns a state with one task of each demand: task(0) is the first. before runs after
// the classes exist, and before the tasks are pushed.
func madeState(before func(f *fork), demands ...scheduler.Demand) *randomState {
	st := &randomState{}
	classes := make([]scheduler.ClassID, len(demands))
	st.steps = append(st.steps, func(f *fork) {
		for i, d := range demands {
			classes[i] = f.Class(d)
		}
		before(f)
	})
	for i := range demands {
		st.steps = append(st.steps, func(f *fork) { f.Push(task(i), classes[i], scheduler.Normal, 0) })
	}
	st.steps = append(st.steps, (*fork).settle)
	st.fork() // so that classes is known
	for i, d := range demands {
		st.demands = append(st.demands, d)
		st.tasks = append(st.tasks, pushed{task(i), classes[i], scheduler.Normal, 0})
	}
	return st
}

// oldestNext makes the next start of the default queue that of its oldest task.
func oldestNext(f *fork) {
	f.addWorker(3, scheduler.Capacity{Slots: 15})
	f.PushRun(scheduler.TaskRef{Job: 9}, 15, f.Class(scheduler.Demand{NoPrefetch: true}), scheduler.Normal)
	f.settle()
	f.RemoveWorker(3)
	delete(f.capacity, 3)
}

// keysOf returns n keys of which worker 1 is the worker, rather than worker 2.
func keysOf(n int) (keys []string) {
	for k := 'a'; len(keys) < n; k++ {
		if key := string(k); scheduler.Score(key, 1) > scheduler.Score(key, 2) {
			keys = append(keys, key)
		}
	}
	return keys
}

// checkAnswer checks the answer about a task of a state, and that a change starts it or not.
func checkAnswer(t *testing.T, st *randomState, at int, c scheduler.Change, starts, complete bool) {
	t.Helper()
	x := st.tasks[at]
	if got := st.apply(x, st.demands[at], c); got != starts {
		t.Errorf("starts after %+v: %v, want %v", c, got, starts)
	}
	f := st.fork()
	if list, all := f.Views(x.ref, x.class, x.priority, x.avoid, f.valid).Changes(); all != complete {
		t.Errorf("got %+v, complete: %v; want %v", list, all, complete)
	}
	checkChangesOf(t, st, x, &changeCounts{})
}

// The reservation of a turn by age is that of the task that starts then, by another of its
// alternatives, and ends with it.
func TestAReservationForTheTaskThatStartsKeepsNoWorkerFromOthers(t *testing.T) {
	t.Parallel()
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	plain := scheduler.Demand{NoPrefetch: true}
	st := madeState(func(f *fork) {
		oldestNext(f)
		f.addWorker(1, scheduler.Capacity{Slots: 1, Resources: cpu(4)})
		f.Occupy(1, f.Class(scheduler.Demand{Resources: cpu(2)}), scheduler.Normal)
	}, scheduler.Demand{Resources: cpu(4), Alternatives: [][]scheduler.Quantity{cpu(2)}}, plain)
	checkAnswer(t, st, 1, scheduler.Change{Kind: scheduler.AddSlots, Worker: 1, Amount: 2}, true, true)
}

// Without its key, a task would start on an idle worker; but at a turn by age, an older one does
// that waits for the worker of another key.
func TestAKeyIsNotDroppedIfAnOlderTaskMayStartFirst(t *testing.T) {
	t.Parallel()
	keys := keysOf(2)
	st := madeState(func(f *fork) {
		f.addWorker(1, scheduler.Capacity{Slots: 4})
		f.addWorker(2, scheduler.Capacity{Slots: 1})
		for range 4 {
			f.Occupy(1, f.Class(scheduler.Demand{}), scheduler.Normal)
		}
	}, scheduler.Demand{Affinity: keys[0], NoPrefetch: true}, scheduler.Demand{Affinity: keys[1], NoPrefetch: true})
	st.steps = append(st.steps, func(f *fork) {
		plain := f.Class(scheduler.Demand{NoPrefetch: true})
		for range 15 {
			f.Push(task(2), plain, scheduler.Normal, 0)
			f.Next(f.valid)
			f.Release(2, plain, scheduler.Normal)
		}
	})
	checkAnswer(t, st, 1, scheduler.Change{Kind: scheduler.DropAffinity}, false, false)
}

// The worker of a key has as many waiting tasks as slots: the task before takes no place in the
// queue.
func TestAChangeOfAQueueCountsWhatWaitsAtWorkers(t *testing.T) {
	t.Parallel()
	st := madeState(func(f *fork) {
		f.setQueue("q", scheduler.Queue{Weight: 1, Paused: true, MaxRunning: 1})
		f.addWorker(1, scheduler.Capacity{Slots: 1})
		f.SetPrefetch(1, 4)
		f.addWorker(2, scheduler.Capacity{Slots: 1})
		for range 2 {
			f.Occupy(1, f.Class(scheduler.Demand{}), scheduler.Normal)
		}
	}, scheduler.Demand{Affinity: keysOf(1)[0], Queue: "q"}, scheduler.Demand{Queue: "q"})
	checkAnswer(t, st, 1, scheduler.Change{Kind: scheduler.ResumeQueue, Name: "q"}, true, true)
}

// A task that has waited for the worker of its key starts elsewhere when its queue is resumed.
func TestAChangeOfAQueueKnowsThatATaskNeedNotWaitForItsKey(t *testing.T) {
	t.Parallel()
	st := madeState(func(f *fork) {
		f.setQueue("q", scheduler.Queue{Weight: 1, Paused: true})
		f.addWorker(1, scheduler.Capacity{Slots: 4})
		f.addWorker(2, scheduler.Capacity{Slots: 1})
		for range 4 {
			f.Occupy(1, f.Class(scheduler.Demand{}), scheduler.Normal)
		}
	}, scheduler.Demand{Affinity: keysOf(1)[0], Queue: "q"})
	st.steps = append(st.steps, func(f *fork) {
		f.Advance(100)
		f.Advance(2000)
		f.settle()
	})
	checkAnswer(t, st, 0, scheduler.Change{Kind: scheduler.ResumeQueue, Name: "q"}, true, false)
}

// A worker that joins may have a label that the task requires with any value, and the one before
// it forbids: then the place in the queue remains for the task.
func TestAWorkerMayJoinWithALabelThatATaskBeforeForbids(t *testing.T) {
	t.Parallel()
	st := madeState(func(f *fork) { f.setQueue("ml", scheduler.Queue{Weight: 1, MaxRunning: 1}) },
		scheduler.Demand{Queue: "ml", Rules: []scheduler.LabelRule{{Name: "zone", Values: []string{"eu"}, Not: true}}},
		scheduler.Demand{Queue: "ml", Rules: []scheduler.LabelRule{{Name: "zone"}}})
	eu := scheduler.Capacity{Slots: 9, Labels: []scheduler.Label{{Name: "zone", Value: "eu"}}}
	checkAnswer(t, st, 1, scheduler.Change{Kind: scheduler.AddWorker, Capacity: eu}, true, false)
}

// A limit is raised for all its keys at once: tasks of another key may start first.
func TestALimitIsRaisedForAllItsKeysAtOnce(t *testing.T) {
	t.Parallel()
	ann, ben := scheduler.Demand{Uses: []string{"api/ann"}, NoPrefetch: true}, scheduler.Demand{Uses: []string{"api/ben"}, NoPrefetch: true}
	st := madeState(func(f *fork) {
		f.addWorker(1, scheduler.Capacity{Slots: 3})
		for _, d := range []scheduler.Demand{ann, ben} {
			f.setNamedLimit(d.Uses[0], 1)
			f.Occupy(1, f.Class(d), scheduler.Normal)
		}
	}, ben, ann)
	checkAnswer(t, st, 1, scheduler.Change{Kind: scheduler.RaiseNamedLimit, Name: "api/ann", Amount: 2}, false, false)
}

// Of several values of a label that a worker may get, the answer names the first one, also if it
// suffices for another alternative than a later one, or if several tasks before the task forbid
// them.
func TestTheFirstLabelThatSufficesIsNamed(t *testing.T) {
	t.Parallel()
	amount := func(name string) []scheduler.Quantity { return []scheduler.Quantity{{Name: name, Amount: 1}} }
	zone := func(values ...string) scheduler.LabelRule { return scheduler.LabelRule{Name: "zone", Values: values} }
	not := func(value string) []scheduler.LabelRule {
		return []scheduler.LabelRule{zone(), {Name: "zone", Values: []string{value}, Not: true}}
	}
	alternatives := madeState(func(f *fork) {
		f.addWorker(1, scheduler.Capacity{Slots: 2, Resources: append(amount("cpu"), amount("gpu")...)})
	}, scheduler.Demand{Labels: []scheduler.Label{{Name: "zone", Value: "eu"}}, Resources: amount("gpu")},
		scheduler.Demand{Rules: []scheduler.LabelRule{zone("eu", "us")}, Resources: amount("gpu"), Alternatives: [][]scheduler.Quantity{amount("cpu")}})
	forbidden := madeState(func(f *fork) { f.addWorker(1, scheduler.Capacity{Slots: 2}) },
		scheduler.Demand{NoPrefetch: true, Rules: not("us")}, scheduler.Demand{NoPrefetch: true, Rules: not("eu")},
		scheduler.Demand{NoPrefetch: true, Rules: []scheduler.LabelRule{zone()}})
	for _, value := range []string{"eu", "us"} {
		c := scheduler.Change{Kind: scheduler.AddLabel, Worker: 1, Label: scheduler.Label{Name: "zone", Value: value}}
		checkAnswer(t, alternatives, 1, c, true, true)
		checkAnswer(t, forbidden, 2, c, true, true)
	}
}

// A worker that joins may start the task by another alternative than the one for which it was made,
// which a quota holds back then: it needs what that one takes.
func TestAWorkerMayJoinForATaskThatTakesAnotherAlternative(t *testing.T) {
	t.Parallel()
	amounts := func(cpu, gpu int64) []scheduler.Quantity {
		return slices.DeleteFunc([]scheduler.Quantity{{Name: "cpu", Amount: cpu}, {Name: "gpu", Amount: gpu}}, func(q scheduler.Quantity) bool { return q.Amount == 0 })
	}
	d := scheduler.Demand{Queue: "ml", Resources: amounts(1, 2), Alternatives: [][]scheduler.Quantity{amounts(4, 0), amounts(1, 3)}}
	st := madeState(func(f *fork) { f.setQueue("ml", scheduler.Queue{Weight: 1, Max: amounts(7, 3)}) }, d, d)
	joins := func(cpu, gpu int64) scheduler.Change {
		return scheduler.Change{Kind: scheduler.AddWorker, Capacity: scheduler.Capacity{Slots: 2, Resources: amounts(cpu, gpu)}}
	}
	checkAnswer(t, st, 1, joins(2, 5), false, false)
	checkAnswer(t, st, 1, joins(5, 2), true, false)
}

// At a turn by age, a task with alternatives starts by one of them, and with that ends the
// reservation of a worker for another one of them: after a change of the queue, too.
func TestAChangeOfAQueueEndsTheReservationForATaskThatStarts(t *testing.T) {
	t.Parallel()
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	st := madeState(func(f *fork) {
		oldestNext(f)
		f.addWorker(1, scheduler.Capacity{Slots: 3, Resources: cpu(4)})
		f.Occupy(1, f.Class(scheduler.Demand{Resources: cpu(2)}), scheduler.Normal)
		f.setQueue("", scheduler.Queue{Weight: 1, MaxRunning: 1})
	}, scheduler.Demand{Resources: cpu(4), Alternatives: [][]scheduler.Quantity{cpu(1)}}, scheduler.Demand{NoPrefetch: true})
	checkAnswer(t, st, 1, scheduler.Change{Kind: scheduler.RaiseMaxRunning, Amount: 3}, true, true)
}

// Which keys move to a worker that joins depends on its id. Where the order depends on shares of
// resources, other tasks start before the task if fewer keys move, and take more.
func TestAWorkerThatJoinsMayGetFewerKeys(t *testing.T) {
	t.Parallel()
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	st := madeState(func(f *fork) {
		f.addWorker(1, scheduler.Capacity{Slots: 3})
		for _, queue := range []string{"a", "a", "b"} {
			f.Occupy(1, f.Class(scheduler.Demand{Queue: queue, NoPrefetch: true}), scheduler.Normal)
		}
	}, scheduler.Demand{Queue: "b", Affinity: keyThatStays()}, scheduler.Demand{Queue: "b", Resources: cpu(1)}, scheduler.Demand{Queue: "a", Resources: cpu(4)})
	joins := scheduler.Capacity{Slots: 2, Resources: cpu(4)}
	checkAnswer(t, st, 2, scheduler.Change{Kind: scheduler.AddWorker, Capacity: joins}, false, false)
}

// The key of a task with alternatives may stay at the worker that it has. Then the task takes, at a
// worker that joins, the alternative for which the other one is too small, and leaves less.
func TestAWorkerThatJoinsMayStartALargerAlternative(t *testing.T) {
	t.Parallel()
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	st := madeState(func(f *fork) {
		f.addWorker(1, scheduler.Capacity{Slots: 1, Resources: cpu(1)})
		f.Occupy(1, f.Class(scheduler.Demand{NoPrefetch: true}), scheduler.Normal)
	}, scheduler.Demand{Affinity: keyThatStays(), Resources: cpu(1), Alternatives: [][]scheduler.Quantity{cpu(2)}, NoPrefetch: true},
		scheduler.Demand{Resources: cpu(1), NoPrefetch: true})
	joins := scheduler.Capacity{Slots: 2, Resources: cpu(2)}
	checkAnswer(t, st, 1, scheduler.Change{Kind: scheduler.AddWorker, Capacity: joins}, false, false)
}

// keyThatStays returns a key of which worker 1 remains the worker when one joins, as worker 99.
func keyThatStays() string {
	for k := 'a'; ; k++ {
		if key := string(k); scheduler.Score(key, 1) > scheduler.Score(key, 99) {
			return key
		}
	}
}

// A task that uses two keys of one limit starts after one change, that of their limit: without it
// the answer is not complete.
func TestTwoKeysOfALimitAreRaisedByOneChange(t *testing.T) {
	t.Parallel()
	both := scheduler.Demand{Uses: []string{"api/ann", "api/ben"}, NoPrefetch: true}
	st := madeState(func(f *fork) {
		f.addWorker(1, scheduler.Capacity{Slots: 2})
		for _, name := range both.Uses {
			f.setNamedLimit(name, 1)
		}
		f.Occupy(1, f.Class(both), scheduler.Normal)
	}, both)
	checkAnswer(t, st, 0, scheduler.Change{Kind: scheduler.RaiseNamedLimit, Name: "api/ann", Amount: 2}, true, false)
}
