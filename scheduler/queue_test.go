package scheduler_test

import (
	"slices"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

func inQueue(queue, owner string) scheduler.Demand {
	return scheduler.Demand{Queue: queue, Owner: owner}
}

// saturate pushes n tasks of each demand, in turn.
func saturate(s *scheduler.Scheduler, n int, demands ...scheduler.Demand) {
	for i := range n {
		for k, d := range demands {
			s.Push(scheduler.TaskRef{Job: uint64(k + 1), Index: uint32(i)}, s.Class(d), scheduler.Normal, 0)
		}
	}
}

// started assigns what fits, and counts it by job.
func started(s *scheduler.Scheduler) map[uint64]int {
	n := map[uint64]int{}
	for a, ok := s.Next(nil); ok; a, ok = s.Next(nil) {
		n[a.Task.Job]++
	}
	return n
}

func TestQueuesShareTheClusterByWeight(t *testing.T) {
	t.Parallel()
	s := fleet(10, 7)
	s.SetQueue("b", scheduler.Queue{Weight: 2})
	s.SetQueue("c", scheduler.Queue{Weight: 4})
	saturate(s, 100, inQueue("a", ""), inQueue("b", ""), inQueue("c", ""))
	if n := started(s); n[1] != 10 || n[2] != 20 || n[3] != 40 {
		t.Errorf("got %v, want 10, 20 and 40 of 70", n)
	}
}

func TestOwnersShareAPriorityOfAQueue(t *testing.T) {
	t.Parallel()
	s := fleet(10, 1)
	many := inQueue("", "alice")
	for i := range 100 {
		s.Push(scheduler.TaskRef{Job: 1, Index: uint32(i)}, s.Class(many), scheduler.Normal, 0)
	}
	saturateOf := s.Class(inQueue("", "bob"))
	for i := range 3 {
		s.Push(scheduler.TaskRef{Job: 2, Index: uint32(i)}, saturateOf, scheduler.Normal, 0)
	}
	if n := started(s); n[1] != 7 || n[2] != 3 {
		t.Errorf("got %v, want 7 of alice and all 3 of bob", n)
	}
}

func TestOwnersOfOtherNamespacesAreOthers(t *testing.T) {
	t.Parallel()
	s := fleet(4, 1)
	saturate(s, 10, inQueue("", "ci"), inQueue("", "ci"), scheduler.Demand{Owner: "ci", Namespace: "etl"})
	if n := started(s); n[1]+n[2] != 2 || n[3] != 2 {
		t.Errorf("got %v, want 2 slots for each namespace", n)
	}
}

func TestPrioritiesActInsideAQueue(t *testing.T) {
	t.Parallel()
	s := fleet(4, 1)
	for i := range 10 {
		s.Push(scheduler.TaskRef{Job: 1, Index: uint32(i)}, s.Class(inQueue("loud", "")), scheduler.Urgent, 0)
		s.Push(scheduler.TaskRef{Job: 2, Index: uint32(i)}, s.Class(inQueue("quiet", "")), scheduler.Low, 0)
	}
	if n := started(s); n[1] != 2 || n[2] != 2 {
		t.Errorf("got %v, want the same for both", n)
	}
}

func TestTheLargestShareOfAnyResourceCounts(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	gpu := []scheduler.Quantity{{Name: "gpu", Amount: 1}}
	s.AddWorker(1, scheduler.Capacity{Slots: 100, Resources: []scheduler.Quantity{{Name: "gpu", Amount: 10}}})
	saturate(s, 200, scheduler.Demand{Queue: "ml", Resources: gpu}, inQueue("web", ""))
	for range 20 {
		mustNext(t, s)
	}
	loads := s.Loads()
	if ml, web := loads["ml"].Running, loads["web"].Running; ml != 2 && ml != 3 || ml+web != 20 {
		t.Errorf("got %d with a tenth of all GPUs each, and %d with a hundredth of all slots; want equal shares", ml, web)
	}
}

// The textbook's example of dominant-resource fairness (Ghodsi et al., NSDI 2011): a
// cluster with 9 CPUs and 18 GB; tasks of one user take 1 CPU and 4 GB, those of the other
// 3 CPUs and 1 GB. It ends with 3 and 2 tasks, two thirds of their dominant resource each.
func TestSharesAreThoseOfTheTextbook(t *testing.T) {
	t.Parallel()
	amounts := func(cpu, memory int64) []scheduler.Quantity {
		return []scheduler.Quantity{{Name: "cpu", Amount: cpu}, {Name: "memory", Amount: memory}}
	}
	for _, flows := range [][2]scheduler.Demand{{inQueue("a", ""), inQueue("b", "")}, {inQueue("", "a"), inQueue("", "b")}} {
		s := scheduler.New(1)
		s.AddWorker(1, scheduler.Capacity{Slots: 1000, Resources: amounts(9, 18)})
		flows[0].Resources, flows[1].Resources = amounts(1, 4), amounts(3, 1)
		saturate(s, 10, flows[0], flows[1])
		if n := started(s); n[1] != 3 || n[2] != 2 {
			t.Errorf("got %v, want 3 and 2", n)
		}
	}
}

func TestAPausedQueueStartsNothing(t *testing.T) {
	t.Parallel()
	s := fleet(4, 1)
	s.SetQueue("etl", scheduler.Queue{Paused: true})
	saturate(s, 10, inQueue("etl", ""), inQueue("", ""))
	if n := started(s); n[1] != 0 || n[2] != 4 {
		t.Fatalf("got %v, want 4 of the other queue", n)
	}
	s.Release(1, 0, scheduler.Normal)
	s.SetQueue("etl", scheduler.Queue{})
	if a := mustNext(t, s); a.Task.Job != 1 {
		t.Errorf("after resuming: got %+v", a)
	}
}

func TestAQuotaOnRunningTasksHolds(t *testing.T) {
	t.Parallel()
	s := fleet(10, 1)
	s.SetQueue("etl", scheduler.Queue{Weight: 100, MaxRunning: 3})
	saturate(s, 20, inQueue("etl", ""), inQueue("", ""))
	if n := started(s); n[1] != 3 || n[2] != 7 {
		t.Fatalf("got %v, want 3 and 7", n)
	}
	s.SetQueue("etl", scheduler.Queue{Weight: 100, MaxRunning: 4})
	s.AddWorker(11, scheduler.Capacity{Slots: 2})
	if n := started(s); n[1] != 1 || n[2] != 1 {
		t.Errorf("with a larger quota: got %v, want 1 and 1", n)
	}
}

func TestAQuotaOnAResourceHoldsBackOnlyTasksThatNeedIt(t *testing.T) {
	t.Parallel()
	gpu := []scheduler.Quantity{{Name: "gpu", Amount: 1}}
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 10, Resources: []scheduler.Quantity{{Name: "gpu", Amount: 8}}})
	s.SetQueue("ml", scheduler.Queue{Max: []scheduler.Quantity{{Name: "gpu", Amount: 2}}})
	saturate(s, 6, scheduler.Demand{Queue: "ml", Resources: gpu}, inQueue("ml", ""))
	if n := started(s); n[1] != 2 || n[2] != 6 {
		t.Fatalf("got %v, want 2 with a GPU and all 6 without", n)
	}
	s.Release(1, s.Class(scheduler.Demand{Queue: "ml", Resources: gpu}), scheduler.Normal)
	if a := mustNext(t, s); a.Task.Job != 1 {
		t.Errorf("after the end of one: got %+v", a)
	}
}

// The end of a task that takes nothing of a quota changes nothing about what it holds back:
// thousands of owners may wait there.
func TestTheEndOfATaskOutsideAQuotaReturnsNothingToTheOrder(t *testing.T) {
	t.Parallel()
	gpu := []scheduler.Quantity{{Name: "gpu", Amount: 1}}
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 10, Resources: []scheduler.Quantity{{Name: "gpu", Amount: 8}}})
	s.SetQueue("ml", scheduler.Queue{Max: gpu})
	for i, owner := range []string{"a", "b", "c"} {
		s.Push(task(i), s.Class(scheduler.Demand{Queue: "ml", Owner: owner, Resources: gpu}), scheduler.Normal, 0)
	}
	s.Push(task(3), s.Class(inQueue("ml", "d")), scheduler.Normal, 0)
	var plain, needy scheduler.Assignment
	for a, ok := s.Next(nil); ok; a, ok = s.Next(nil) {
		if a.Task == task(3) {
			plain = a
		} else {
			needy = a
		}
	}
	if n := s.OverQuota("ml"); n != 2 {
		t.Fatalf("%d owners are held back, want 2", n)
	}
	s.Release(plain.Worker, plain.Class, plain.Priority)
	if n := s.OverQuota("ml"); n != 2 {
		t.Errorf("after the end of a task without a GPU, %d owners are held back, want 2", n)
	}
	s.Release(needy.Worker, needy.Class, needy.Priority)
	if n := s.OverQuota("ml"); n != 0 {
		t.Errorf("after the end of a task with a GPU, %d owners are held back, want none", n)
	}
}

// A lost worker's attempts no longer count.
func TestTheShareOfALostWorkerIsReleased(t *testing.T) {
	t.Parallel()
	s := fleet(2, 4)
	saturate(s, 20, inQueue("a", ""), inQueue("b", ""))
	started(s)
	for _, id := range []scheduler.WorkerID{1, 2} {
		s.RemoveWorker(id)
	}
	for name, l := range s.Loads() {
		if l.Running != 0 {
			t.Errorf("queue %q has %d attempts", name, l.Running)
		}
	}
	s.AddWorker(3, scheduler.Capacity{Slots: 2})
	if n := started(s); n[1] != 1 || n[2] != 1 {
		t.Errorf("got %v, want 1 of each", n)
	}
}

// Tasks with requirements of their own come and go, also those that no worker fulfills.
func TestShapesWithoutClassesAreFreed(t *testing.T) {
	t.Parallel()
	s := fleet(1, 1)
	known, _ := s.Shapes()
	for i := range 100 {
		c := s.Class(scheduler.Demand{Resources: []scheduler.Quantity{{Name: "memory", Amount: int64(i + 1)}}})
		s.Push(task(i), c, scheduler.Normal, 0)
		if a, ok := s.Next(nil); ok {
			t.Fatalf("got %+v", a)
		}
		s.Retire(c)
	}
	s.Push(task(100), 0, scheduler.Normal, 0)
	a := mustNext(t, s)
	s.Release(a.Worker, a.Class, a.Priority)
	if n, blocked := s.Shapes(); n != known || blocked != 0 {
		t.Errorf("%d shapes, of which %d are blocked; want %d and none", n, blocked, known)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// Names of owners come and go.
func TestFlowsWithoutUsesAreFreed(t *testing.T) {
	t.Parallel()
	s := fleet(1, 1)
	s.SetQueue("kept", scheduler.Queue{Weight: 2})
	flows, classes := s.Flows()
	for i := range 100 {
		owner := string(rune('a' + i%26))
		c := s.Class(inQueue("q"+owner, owner))
		s.Push(task(i), c, scheduler.Normal, 0)
		a := mustNext(t, s)
		s.Push(task(1000+i), c, scheduler.Normal, 0)
		s.Retire(c) // with an attempt
		s.Release(a.Worker, a.Class, a.Priority)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if f, c := s.Flows(); f != flows || c != classes {
		t.Errorf("%d flows and %d classes are left, want %d and %d", f, c, flows, classes)
	}
	if loads := s.Loads(); len(loads) != 2 || s.Len() != 0 {
		t.Errorf("got queues %v with %d entries", loads, s.Len())
	}
}

func TestALargeTaskGetsAWorkerAmongSmallOnes(t *testing.T) {
	t.Parallel()
	s, small, large := twoSizes("etl", "etl")
	running, starts := fill(t, s), 0
	s.Push(task(0), large, scheduler.Normal, 0)
	s.Push(task(1), large, scheduler.Normal, 0)
	for i := range 200 {
		s.Push(task(100+i), small, scheduler.Normal, 0)
		a := running[0]
		running = running[1:]
		s.Release(a.Worker, a.Class, a.Priority)
		for a, ok := s.Next(nil); ok; a, ok = s.Next(nil) {
			if running = append(running, a); a.Class == large {
				t.Logf("started after %d others", starts)
				if kept := s.Kept(); len(kept) > 1 {
					t.Errorf("a queue has %d workers kept free", len(kept))
				}
				return
			}
			starts++
		}
	}
	t.Error("the large task never starts")
}

// A queue that starts nothing has no turn by age of its own.
func TestALargeTaskOfAnotherQueueGetsAWorker(t *testing.T) {
	t.Parallel()
	s, small, large := twoSizes("web", "ml")
	running := fill(t, s)
	s.Push(task(0), large, scheduler.Low, 0)
	for i := range 200 {
		s.Push(task(100+i), small, scheduler.Urgent, 0)
		a := running[0]
		running = running[1:]
		s.Release(a.Worker, a.Class, a.Priority)
		for a, ok := s.Next(nil); ok; a, ok = s.Next(nil) {
			if running = append(running, a); a.Class == large {
				return
			}
		}
	}
	t.Error("the large task never starts")
}

// twoSizes returns a fleet with 4 workers of 4 CPUs, and classes that take one and all of
// them. 200 small tasks wait.
func twoSizes(queueOfSmall, queueOfLarge string) (s *scheduler.Scheduler, small, large scheduler.ClassID) {
	s = scheduler.New(1)
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	for id := range scheduler.WorkerID(4) {
		s.AddWorker(id+1, scheduler.Capacity{Slots: 8, Resources: cpu(4)})
	}
	small = s.Class(scheduler.Demand{Queue: queueOfSmall, Resources: cpu(1)})
	large = s.Class(scheduler.Demand{Queue: queueOfLarge, Resources: cpu(4)})
	for i := range 16 {
		s.Push(task(10+i), small, scheduler.Normal, 0)
	}
	return s, small, large
}

func fill(t *testing.T, s *scheduler.Scheduler) (running []scheduler.Assignment) {
	t.Helper()
	for a, ok := s.Next(nil); ok; a, ok = s.Next(nil) {
		running = append(running, a)
	}
	if len(running) != 16 {
		t.Fatalf("%d tasks run, want 16", len(running))
	}
	return running
}

// keptFor returns a state in which a worker is kept free for task 0.
func keptFor(t *testing.T) (s *scheduler.Scheduler, running []scheduler.Assignment) {
	t.Helper()
	s, small, large := twoSizes("web", "ml")
	running = fill(t, s)
	s.Push(task(0), large, scheduler.Normal, 0)
	for i := 0; len(s.Kept()) == 0; i++ {
		if i == 100 {
			t.Fatal("no worker is kept free")
		}
		s.Push(task(100+i), small, scheduler.Normal, 0)
		a := running[0]
		s.Release(a.Worker, a.Class, a.Priority)
		running = append(running[1:], mustNext(t, s))
	}
	return s, running
}

func TestAWorkerIsKeptOnlyWhileTheTaskWaits(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *scheduler.Scheduler){
		"cancelled":        func(*scheduler.Scheduler) {},
		"superseded":       func(s *scheduler.Scheduler) { s.Supersede(task(0)) },
		"its queue paused": func(s *scheduler.Scheduler) { s.SetQueue("ml", scheduler.Queue{Paused: true}) },
		"swept":            func(s *scheduler.Scheduler) { s.Sweep(func(r scheduler.TaskRef) bool { return r != task(0) }) },
		"worker drained":   func(s *scheduler.Scheduler) { s.SetAccepting(s.Kept()[0].Worker, false) },
		"worker removed":   func(s *scheduler.Scheduler) { s.RemoveWorker(s.Kept()[0].Worker) },
		"worker too small": func(s *scheduler.Scheduler) { s.AddWorker(s.Kept()[0].Worker, scheduler.Capacity{Slots: 8}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := keptFor(t)
			end(s)
			valid := func(r scheduler.TaskRef) bool { return r != task(0) }
			for _, ok := s.Next(valid); ok; _, ok = s.Next(valid) {
				continue
			}
			if kept := s.Kept(); len(kept) > 0 {
				t.Errorf("kept free: %+v", kept)
			}
			if err := s.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAKeptWorkerGetsNothingElse(t *testing.T) {
	t.Parallel()
	s, running := keptFor(t)
	worker := s.Kept()[0].Worker
	mine := slices.DeleteFunc(running, func(a scheduler.Assignment) bool { return a.Worker != worker })
	for i, a := range mine {
		s.Push(task(500+i), a.Class, scheduler.Urgent, 0)
		s.Release(a.Worker, a.Class, a.Priority)
		b, ok := s.Next(nil)
		if last := i == len(mine)-1; ok != last || last && b.Task != task(0) {
			t.Fatalf("after the end of %d of %d: got %+v, %v", i+1, len(mine), b, ok)
		}
	}
	if kept := s.Kept(); len(kept) > 0 {
		t.Errorf("kept free: %+v", kept)
	}
}

func TestEvery16thStartIsTheOldestTask(t *testing.T) {
	t.Parallel()
	s := fleet(1, 1)
	s.Push(task(0), 0, scheduler.Low, 0)
	for i := range 40 {
		s.Push(task(1+i), 0, scheduler.Urgent, 0)
	}
	for n := range 20 {
		a := mustNext(t, s)
		if (a.Task == task(0)) != (n == 15) {
			t.Fatalf("start %d is %+v", n+1, a)
		}
		s.Release(a.Worker, a.Class, a.Priority)
	}
}

// What is before a task by share is what starts before it: here, one task of each queue and owner.
func TestAViewCountsTheQueuesAndOwnersBeforeATask(t *testing.T) {
	t.Parallel()
	s := fleet(1, 8)
	s.SetQueue("paused", scheduler.Queue{Paused: true})
	own := inQueue("a", "alice")
	for i := range 8 { // all slots, of which bob holds one
		d := own
		if i == 7 {
			d = inQueue("a", "bob")
		}
		s.Push(scheduler.TaskRef{Job: 9, Index: uint32(i)}, s.Class(d), scheduler.Normal, 0)
	}
	if n := started(s); n[9] != 8 {
		t.Fatalf("got %v, want 8 starts", n)
	}
	last := scheduler.TaskRef{Job: 1}
	s.Push(last, s.Class(own), scheduler.Normal, 0)
	count := func(queues, owners uint64) {
		t.Helper()
		if q, o := s.View(last, s.Class(own), scheduler.Normal, 0, nil).BeforeByShare(); q != queues || o != owners {
			t.Errorf("got %d queues and %d owners, want %d and %d", q, o, queues, owners)
		}
	}
	count(0, 0)
	for i, d := range []scheduler.Demand{
		inQueue("b", ""), inQueue("b", "x"), inQueue("c", ""), inQueue("paused", ""), inQueue("a", "bob"), inQueue("a", "carol"),
		{Queue: "b", Limit: 1, Group: scheduler.TaskRef{Job: 7}},
	} {
		s.Push(scheduler.TaskRef{Job: 2, Index: uint32(i)}, s.Class(d), scheduler.Normal, 0)
	}
	count(2, 2)
	s.Push(scheduler.TaskRef{Job: 3}, s.Class(inQueue("a", "dora")), scheduler.High, 0) // counted as of a higher priority
	count(2, 2)
	s.SetQueue("a", scheduler.Queue{Weight: 1000}) // the others hold nothing
	count(2, 2)
}
