package scheduler_test

import (
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
