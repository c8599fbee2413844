package scheduler_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// A gpuFleet has one worker with a GPU and a worker with four slots. Tasks that need the GPU
// wait for the first one.
type gpuFleet struct {
	*scheduler.Scheduler
	gpu     []scheduler.Quantity
	running scheduler.Assignment // on the GPU
	index   uint32               // of the next task
}

func newGPUFleet() *gpuFleet {
	f := &gpuFleet{Scheduler: scheduler.New(1), gpu: []scheduler.Quantity{{Name: "gpu", Amount: 1000}}}
	f.AddWorker(1, scheduler.Capacity{Slots: 1, Resources: f.gpu})
	f.AddWorker(2, scheduler.Capacity{Slots: 4})
	return f
}

// push pushes n tasks of a job and an owner that need the GPU.
func (f *gpuFleet) push(job uint64, owner string, n uint32, p scheduler.Priority) {
	f.PushRun(scheduler.TaskRef{Job: job, Index: f.index}, n, f.Class(scheduler.Demand{Owner: owner, Resources: f.gpu}), p)
	f.index += n
}

// next assigns the next task to the GPU, and then parks the others.
func (f *gpuFleet) next(t *testing.T) (job uint64) {
	t.Helper()
	if f.running.Worker != 0 {
		f.Release(f.running.Worker, f.running.Class, f.running.Priority)
	}
	a, ok := f.Next(nil)
	if !ok || a.Worker != 1 {
		t.Fatalf("got %+v, %v; want a task on the GPU", a, ok)
	}
	f.running = a
	f.park(t)
	return a.Task.Job
}

// park starts and ends two tasks that need no GPU: those that do are before them.
func (f *gpuFleet) park(t *testing.T) {
	t.Helper()
	small := f.Class(scheduler.Demand{Owner: "small", NoPrefetch: true})
	for i := range 2 {
		f.Push(scheduler.TaskRef{Job: 1_000_000, Index: uint32(i)}, small, scheduler.Low, 0)
	}
	for range 2 {
		a, ok := f.Next(nil)
		if !ok || a.Class != small {
			t.Fatalf("got %+v, %v; want a small task", a, ok)
		}
		f.Release(a.Worker, a.Class, a.Priority)
	}
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestAReleaseReturnsOnlyWhatCanStartToTheOrder(t *testing.T) {
	t.Parallel()
	const owners = 1_000
	f := newGPUFleet()
	for i := range owners {
		f.push(uint64(i), fmt.Sprint(i), 10, scheduler.Normal)
	}
	f.next(t)
	if n := f.AwaitingCapacity(); n != owners {
		t.Fatalf("%d ready queues wait for capacity, want %d", n, owners)
	}
	for range 100 {
		f.Release(1, f.running.Class, f.running.Priority)
		f.running, _ = f.Next(nil)
		if n := f.AwaitingCapacity(); n < owners-10 {
			t.Fatalf("%d ready queues wait for capacity after one start, want %d at least", n, owners-10)
		}
		f.park(t)
	}
}

func TestAnOwnerThatWaitsForCapacityMovesForwardWithItsShare(t *testing.T) {
	t.Parallel()
	f := newGPUFleet()
	f.push(1, "first", 1, scheduler.Normal)
	f.next(t)
	var ofAnn []scheduler.Assignment
	for i, owner := range []string{"ann", "ann", "bob"} {
		f.Push(task(i), f.Class(scheduler.Demand{Owner: owner, NoPrefetch: true}), scheduler.Normal, 0)
		a, ok := f.Next(nil)
		if !ok {
			t.Fatal("a small task did not start")
		}
		if owner == "ann" {
			ofAnn = append(ofAnn, a)
		}
	}
	f.push(2, "ann", 1, scheduler.Normal)
	f.push(3, "bob", 1, scheduler.Normal)
	f.park(t)
	for _, a := range ofAnn {
		f.Release(a.Worker, a.Class, a.Priority)
	}
	if job := f.next(t); job != 2 {
		t.Errorf("job %d got the GPU, want that of ann, who holds less than bob now", job)
	}
}

func TestATurnByAgeStartsTheOldestTaskThatWaitsForCapacity(t *testing.T) {
	t.Parallel()
	f := newGPUFleet()
	f.push(1, "old", 1, scheduler.Low)
	f.push(2, "young", 1, scheduler.Low)
	f.push(3, "busy", 100, scheduler.Normal)
	f.push(4, "busy too", 100, scheduler.Normal)
	var jobs []uint64
	for range 6 { // three starts each, so that the last one is the 16th
		jobs = append(jobs, f.next(t))
	}
	if !slices.Equal(jobs, []uint64{3, 4, 3, 4, 3, 1}) {
		t.Errorf("jobs %v got the GPU, want 3 and 4 in turn and then 1, which has the oldest task", jobs)
	}
}

func TestATaskThatWasCancelledDoesNotWaitForCapacity(t *testing.T) {
	t.Parallel()
	f := newGPUFleet()
	for i := range 10 {
		f.push(uint64(i), fmt.Sprint(i), 1, scheduler.Normal)
	}
	f.next(t)
	f.Sweep(func(r scheduler.TaskRef) bool { return r.Job == 9 })
	if n := f.AwaitingCapacity(); n != 1 {
		t.Errorf("%d ready queues wait for capacity, want that of the task that is left", n)
	}
	f.push(3, "3", 1, scheduler.Normal)
	if n := f.AwaitingCapacity(); n != 2 {
		t.Errorf("%d ready queues wait for capacity, want 2: that of the new task, too", n)
	}
	if a, b := f.next(t), f.next(t); a != 3 || b != 9 {
		t.Errorf("jobs %d and %d got the GPU, want 3 and 9", a, b)
	}
}
