package scheduler_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// A contest is between small tasks of the queue "web", which are first in order, and large ones
// of "hpc" and "ml", for the 4 CPUs of worker 1. The small ones last equally long.
type contest struct {
	s              *scheduler.Scheduler
	small, hpc, ml scheduler.ClassID
	running        []scheduler.Assignment
	pushed         int
	cancelled      map[scheduler.TaskRef]bool
}

// newContest returns a contest in which 4 small tasks run.
func newContest(t *testing.T, cpusOfML int64) *contest {
	t.Helper()
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 8, Resources: cpu(4)})
	s.AddWorker(2, scheduler.Capacity{Slots: 12})
	for range 10 { // so that "ml" comes after "web"
		s.Occupy(2, s.Class(scheduler.Demand{Queue: "ml"}), scheduler.Normal)
	}
	c := &contest{
		s:         s,
		small:     s.Class(scheduler.Demand{Queue: "web", Resources: cpu(1)}),
		hpc:       s.Class(scheduler.Demand{Queue: "hpc", Resources: cpu(4)}),
		ml:        s.Class(scheduler.Demand{Queue: "ml", Resources: cpu(cpusOfML)}),
		cancelled: map[scheduler.TaskRef]bool{},
	}
	for range 12 {
		c.push(c.small)
	}
	if c.start(); len(c.running) != 4 {
		t.Fatalf("%d small tasks run, want 4", len(c.running))
	}
	return c
}

func (c *contest) push(class scheduler.ClassID) scheduler.TaskRef {
	c.pushed++
	c.s.Push(task(c.pushed), class, scheduler.Normal, 0)
	return task(c.pushed)
}

// start starts what can start, and returns how many tasks of each class that is. For each,
// another one becomes ready.
func (c *contest) start() map[scheduler.ClassID]int {
	n := map[scheduler.ClassID]int{}
	valid := func(r scheduler.TaskRef) bool { return !c.cancelled[r] }
	for a, ok := c.s.Next(valid); ok; a, ok = c.s.Next(valid) {
		c.running = append(c.running, a)
		n[a.Class]++
		c.push(a.Class)
	}
	return n
}

// end ends the task that has run longest.
func (c *contest) end() {
	a := c.running[0]
	c.running = c.running[1:]
	c.s.Release(a.Worker, a.Class, a.Priority)
}

// Two large tasks of a queue wait, and each of two busy workers could run both. On worker 2, half of
// what it does must end before.
func TestTheOldestLargeTaskGetsTheWorkerOfWhichTheLeastMustEnd(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	oldest, later := s.Class(scheduler.Demand{Resources: cpusAndGPUs(8, 0)}), s.Class(scheduler.Demand{Resources: cpusAndGPUs(7, 0)})
	for id := range scheduler.WorkerID(2) {
		s.AddWorker(id+1, scheduler.Capacity{Slots: 16, Resources: cpusAndGPUs(8+8*int64(id), 0)})
		for range 1 + id {
			s.Occupy(id+1, oldest, scheduler.Normal)
		}
	}
	s.Push(task(0), oldest, scheduler.Normal, 0)
	s.Push(task(1), later, scheduler.Normal, 0)
	s.PushRun(task(2), 20, s.Class(scheduler.Demand{NoPrefetch: true}), scheduler.Normal)
	for len(s.Kept()) == 0 {
		if _, ok := s.Next(nil); !ok {
			t.Fatal("no worker is kept free")
		}
	}
	if k := s.Kept()[0]; k.Worker != 2 || k.Class != oldest {
		t.Errorf("kept free: %+v, want worker 2 for the oldest task", k)
	}
}

// Each start of a large task ends a reservation. The others that wait for one come next.
func TestLargeTasksOfTwoQueuesGetAWorkerInTurn(t *testing.T) {
	t.Parallel()
	c := newContest(t, 4)
	c.push(c.hpc)
	c.push(c.ml)
	before := 0
	for range 1000 {
		c.end()
		n := c.start()
		if n[c.ml] > 0 {
			return
		}
		if before += n[c.hpc]; before > 1 {
			t.Fatal("two large tasks of another queue start before one that waits as long as the first")
		}
	}
	t.Fatal("the large task never starts")
}

// If a reservation ends without a start, the worker may have capacity for the next large task,
// but small ones come first. It is kept for the large one then.
func TestTheNextLargeTaskGetsTheWorkerOfACancelledOne(t *testing.T) {
	t.Parallel()
	c := newContest(t, 3)
	first := c.push(c.hpc)
	c.push(c.ml)
	for len(c.running) > 1 {
		if c.end(); c.s.Len() == 0 || c.pushed > 1000 {
			t.Fatal("no worker is kept free")
		}
		c.start()
	}
	if kept := c.s.Kept(); len(kept) != 1 || kept[0].Queue != "hpc" {
		t.Fatalf("kept free: %+v, want a worker for the first large task", kept)
	}
	c.cancelled[first] = true
	if n := c.start(); n[c.small] != 1 {
		t.Fatalf("%v start, want a small one before the large one", n)
	}
	for range 2 {
		c.end()
		if n := c.start(); n[c.small] > 0 {
			t.Fatalf("%v start, although the worker is to be kept free", n)
		} else if n[c.ml] > 0 {
			return
		}
	}
	t.Fatal("the large task does not start")
}

// A queue holds more than its share, so that it is behind another one with a flow of small tasks,
// which alone keeps its large task from the only worker that could run it.
func TestALargeTaskOfAQueueAboveItsShareStarts(t *testing.T) {
	t.Parallel()
	for name, rivals := range map[string]int{"beside small tasks": 0, "beside large tasks, too": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scheduler.New(1)
			pool := []scheduler.Label{{Name: "pool", Value: "a"}}
			s.AddWorker(1, scheduler.Capacity{Slots: 8, Labels: pool, Resources: cpusAndGPUs(4, 0)})
			s.AddWorker(2, scheduler.Capacity{Slots: 100, Resources: cpusAndGPUs(100, 2)})
			s.Occupy(2, s.Class(scheduler.Demand{Queue: "ml", Resources: cpusAndGPUs(1, 1)}), scheduler.Normal)
			c := &contest{
				s:     s,
				small: s.Class(scheduler.Demand{Queue: "web", Labels: pool, Resources: cpusAndGPUs(1, 0)}),
				hpc:   s.Class(scheduler.Demand{Queue: "hpc", Labels: pool, Resources: cpusAndGPUs(4, 0)}),
				ml:    s.Class(scheduler.Demand{Queue: "ml", Labels: pool, Resources: cpusAndGPUs(4, 0)}),
			}
			for range 12 {
				c.push(c.small)
			}
			c.start()
			for range rivals {
				c.push(c.hpc)
			}
			c.start()
			c.push(c.ml)
			large := 0
			for range 200 {
				n := c.start()
				if n[c.ml] > 0 {
					return
				}
				if large += n[c.hpc]; large > 1 {
					t.Fatal("two large tasks of another queue start before one that waits as long as the first")
				}
				c.end()
			}
			t.Fatal("the large task never starts")
		})
	}
}

// A queue that wanted a worker while all were kept for others overlooked one that joined.
func TestAQueueThatWantsAWorkerGetsOneThatAcceptsTasks(t *testing.T) {
	t.Parallel()
	c := newContest(t, 4)
	c.push(c.hpc)
	c.push(c.ml)
	for len(c.s.Kept()) == 0 || c.s.Kept()[0].Queue == "web" || c.s.Wants() == 0 {
		if len(c.running) == 0 || c.pushed > 1000 {
			t.Fatal("no queue wants a worker while one is kept for another")
		}
		c.end()
		c.start()
		c.s.AddWorker(3, scheduler.Capacity{Slots: 40})
		for range 40 {
			c.push(c.s.Class(scheduler.Demand{Queue: "web", NoPrefetch: true}))
		}
		for _, ok := c.s.Next(nil); ok; _, ok = c.s.Next(nil) {
			continue
		}
		c.s.RemoveWorker(3)
	}
	other := c.s.Kept()[0].Queue
	c.s.AddWorker(4, scheduler.Capacity{Slots: 8, Resources: cpusAndGPUs(4, 0)})
	c.s.SetAccepting(4, false)
	for range 3 {
		c.s.Occupy(4, c.small, scheduler.Normal)
	}
	c.s.SetAccepting(4, true)
	c.start()
	if kept := c.s.Kept(); len(kept) != 2 || kept[1].Worker != 4 || kept[1].Queue == other {
		t.Errorf("kept free: %+v, want worker 4 for the other queue", kept)
	}
}

// pass starts one small task after another.
func (c *contest) pass(t *testing.T) {
	t.Helper()
	for range 40 {
		c.end()
		if n := c.start(); n[c.small] != 1 {
			t.Fatalf("%v start, want a small task", n)
		}
	}
}

// blockAgain lets small tasks start while no shape is blocked, which is then blocked again by a
// task of another queue than "ml".
func (c *contest) blockAgain(t *testing.T) {
	t.Helper()
	c.pass(t)
	for range 5 { // four start while nothing is blocked
		for range 4 {
			c.end()
		}
		c.start()
	}
	cancelled := c.push(c.hpc)
	c.start()
	c.cancelled[cancelled] = true
}

// wantLarge ends tasks until the large one of "ml" starts.
func (c *contest) wantLarge(t *testing.T) {
	t.Helper()
	for range 100 {
		c.end()
		if n := c.start(); n[c.ml] > 0 {
			return
		}
	}
	t.Fatal("the large task never starts")
}

// A queue without tasks had left the order before its shape was blocked again, by a task of another
// one: then it was not known that its next task was passed over.
func TestALargeTaskOfAShapeThatIsBlockedAlreadyStarts(t *testing.T) {
	t.Parallel()
	c := newContest(t, 4)
	cancelled := c.push(c.ml)
	c.start()
	c.cancelled[cancelled] = true
	c.blockAgain(t)
	c.pass(t)
	c.push(c.ml)
	c.wantLarge(t)
}

// The shape of a waiting task is blocked again while its queue may start nothing: from then on, the
// queue is passed over, although it is not in the order that it would leave.
func TestALargeTaskStartsAfterItsQueueWasHeldBack(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]scheduler.Queue{"paused": {Paused: true}, "full": {MaxRunning: 10}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContest(t, 4)
			c.push(c.ml)
			c.start()
			c.s.SetQueue("ml", held)
			c.blockAgain(t)
			c.pass(t)
			c.s.SetQueue("ml", scheduler.Queue{})
			c.wantLarge(t)
		})
	}
}

// A program sets the queue to what it is again and again, or to another weight. Its task is held back
// by neither, and keeps its worker.
func TestALargeTaskStartsAlthoughItsQueueIsSetAgain(t *testing.T) {
	t.Parallel()
	c := newContest(t, 4)
	to := scheduler.Queue{Weight: 1, MaxRunning: 100, Max: []scheduler.Quantity{{Name: "cpu", Amount: 100}}}
	c.s.SetQueue("hpc", to)
	c.push(c.hpc)
	for n := range 300 {
		c.end()
		if c.start()[c.hpc] > 0 {
			return
		}
		if n%3 == 0 { // it takes four ends until the worker has capacity
			to.Weight = 1 + uint32(n)%2 //nolint:gosec // small
			c.s.SetQueue("hpc", to)
		}
	}
	t.Fatal("the large task never starts")
}

// Many queues are passed over by the same starts. All of them want a worker then, and are read once.
func TestManyQueuesThatWantAWorkerAreReadOnce(t *testing.T) {
	t.Parallel()
	c, queues := newContest(t, 4), 200
	for i := range queues {
		c.push(c.s.Class(scheduler.Demand{Queue: strconv.Itoa(i), Resources: []scheduler.Quantity{{Name: "cpu", Amount: 4}}}))
	}
	for range 40 {
		c.end()
		read := 0
		a, ok := c.s.Next(func(scheduler.TaskRef) bool { read++; return true })
		if read > 10*queues {
			t.Fatalf("%d tasks are read to start one", read)
		}
		if ok {
			c.running = append(c.running, a)
			c.push(a.Class)
		}
		if c.start(); c.s.Wants() > 0 {
			return
		}
	}
	t.Fatal("no queue wants a worker")
}

// A worker that has capacity for the task of the first queue that wants one is not kept for the
// second, whose task needs more, until that of the first has started.
func TestTheSecondQueueThatWantsAWorkerDoesNotGetThatOfTheFirst(t *testing.T) {
	t.Parallel()
	c := newContest(t, 3)
	cpu := []scheduler.Quantity{{Name: "cpu", Amount: 4}}
	second := c.s.Class(scheduler.Demand{Queue: "second", Resources: cpu})
	for range 20 { // so that it comes last
		c.s.Occupy(2, c.s.Class(scheduler.Demand{Queue: "second"}), scheduler.Normal)
	}
	first := c.push(c.hpc)
	c.push(c.ml)
	c.push(second)
	for len(c.running) > 1 {
		if c.end(); c.s.Len() == 0 || c.pushed > 1000 {
			t.Fatal("no worker is kept free")
		}
		c.start()
	}
	side := c.s.Class(scheduler.Demand{Queue: "side", NoPrefetch: true})
	for c.s.Wants() < 2 {
		c.s.AddWorker(3, scheduler.Capacity{Slots: 40})
		for range 40 {
			c.s.Push(task(5000+c.pushed), side, scheduler.Normal, 0)
			c.pushed++
		}
		for _, ok := c.s.Next(nil); ok; _, ok = c.s.Next(nil) {
			continue
		}
		c.s.RemoveWorker(3)
	}
	c.cancelled[first] = true
	c.end()
	for range 10 {
		a, ok := c.s.Next(func(r scheduler.TaskRef) bool { return !c.cancelled[r] })
		isKept := slices.ContainsFunc(c.s.Kept(), func(k scheduler.Kept) bool { return k.Queue == "second" })
		if started := ok && a.Class == c.ml; started != isKept {
			t.Fatalf("started: %v of the first queue: %v; kept free for the second: %v", a, started, isKept)
		} else if started {
			return
		}
		if ok {
			c.running = append(c.running, a)
		} else {
			c.end()
		}
	}
	t.Fatal("the task of the first queue does not start")
}

// BenchmarkNextWhileQueuesWantAWorker is a burst of small tasks of a queue that is first in order,
// on 10,000 workers, while queues want the only worker with GPUs, which has capacity for one of them.
func BenchmarkNextWhileQueuesWantAWorker(b *testing.B) {
	for _, wanting := range []int{0, 1, 100} {
		b.Run(strconv.Itoa(wanting), func(b *testing.B) {
			const workers, last = 10_000, 20_000
			gpus := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "gpu", Amount: n}} }
			s, cancelled, pushed := scheduler.New(1), false, 1
			valid := func(r scheduler.TaskRef) bool { return !cancelled || r != task(1) }
			for id := range scheduler.WorkerID(workers) {
				s.AddWorker(id+1, scheduler.Capacity{Slots: 1 << 20})
			}
			s.AddWorker(last, scheduler.Capacity{Slots: 1 << 20, Resources: gpus(8 + int64(wanting))})
			holder := s.Class(scheduler.Demand{Queue: "holder", Resources: gpus(4)})
			s.Occupy(last, holder, scheduler.Normal)
			side := s.Class(scheduler.Demand{Queue: "side", NoPrefetch: true})
			s.Push(task(1), s.Class(scheduler.Demand{Queue: "first", Resources: gpus(8)}), scheduler.Normal, 0)
			pass := func() {
				for range 400 {
					pushed++
					s.Push(task(pushed), side, scheduler.Normal, 0)
					for _, ok := s.Next(valid); ok; _, ok = s.Next(valid) {
						continue
					}
				}
			}
			pass()
			for i := range wanting {
				queue := fmt.Sprint("w", i)
				s.Occupy(last, s.Class(scheduler.Demand{Queue: queue, Resources: gpus(1)}), scheduler.Normal)
				pushed++
				s.Push(task(pushed), s.Class(scheduler.Demand{Queue: queue, Resources: gpus(4)}), scheduler.Normal, 0)
			}
			pass()
			cancelled = true
			s.Release(last, holder, scheduler.Normal)
			s.SetQueue("burst", scheduler.Queue{Weight: 1000})
			s.PushRun(scheduler.TaskRef{Job: 2}, 1<<30, s.Class(scheduler.Demand{Queue: "burst", NoPrefetch: true}), scheduler.Normal)
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := s.Next(valid); !ok {
					b.Fatal("nothing was assigned")
				}
			}
		})
	}
}
