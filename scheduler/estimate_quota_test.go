package scheduler_test

import (
	"slices"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// fiveSeconds are the run times of every task.
func fiveSeconds(scheduler.TaskRef) []int64 { return slices.Repeat([]int64{5_000}, 5) }

// A quota counts attempts at all workers, those included that could not run the task.
func TestAnEstimateWaitsForAttemptsOfItsQueueAtOtherWorkers(t *testing.T) {
	t.Parallel()
	at := func(zone string) []scheduler.Label { return []scheduler.Label{{Name: "zone", Value: zone}} }
	for _, quota := range []scheduler.Queue{{MaxRunning: 1}, {Max: []scheduler.Quantity{{Name: "cpu", Amount: 1000}}}} {
		s := scheduler.New(1)
		s.SetQueue("ml", quota)
		cpu := []scheduler.Quantity{{Name: "cpu", Amount: 1000}}
		s.AddWorker(1, scheduler.Capacity{Slots: 1, Labels: at("eu"), Resources: cpu})
		s.AddWorker(2, scheduler.Capacity{Slots: 1, Labels: at("us"), Resources: cpu})
		eu := s.Class(scheduler.Demand{Queue: "ml", Labels: at("eu"), Resources: cpu})
		us := s.Class(scheduler.Demand{Queue: "ml", Labels: at("us"), Resources: cpu})
		s.Push(task(1), eu, scheduler.Normal, 0)
		mustNext(t, s)
		s.Push(task(2), us, scheduler.Normal, 0)
		v := s.View(task(2), us, scheduler.Normal, 0, nil)
		s.ViewRunning(v, []scheduler.RunningAttempt{{Worker: 1, Class: eu, Task: task(1), RanMS: 2_000}})
		if e := v.Estimate(1, fiveSeconds); e != (scheduler.Estimate{FromMS: 3_000, ToMS: 3_000}) {
			t.Errorf("quota %+v: got %+v, want 3000 ms", quota, e)
		}
	}
}

// An attempt of a worker that is lost counts towards its limits until its lease ends.
func TestAnEstimateWaitsForTheLeaseOfAnAttemptThatNoWorkerHolds(t *testing.T) {
	t.Parallel()
	for what, d := range map[string]scheduler.Demand{"group": limited(1, 7), "limit": uses("db"), "queue": {Queue: "ml"}} {
		s := scheduler.New(1)
		s.SetQueue("ml", scheduler.Queue{MaxRunning: 1})
		s.AddWorker(1, scheduler.Capacity{Slots: 2})
		c := s.Class(d)
		s.SetNamedLimit("db", 1)
		s.Reserve(c)
		s.Occupy(1, 0, scheduler.Normal)
		s.Push(task(2), c, scheduler.Normal, 0)
		v := s.View(task(2), c, scheduler.Normal, 0, nil)
		s.ViewRunning(v, []scheduler.RunningAttempt{{Class: c, Task: task(1), EndsMS: 12_000}, {Worker: 1, Task: task(3)}})
		if e := v.Estimate(1, fiveSeconds); e != (scheduler.Estimate{FromMS: 12_000, ToMS: 12_000}) {
			t.Errorf("%s: got %+v, want 12000 ms", what, e)
		}
	}
}

// A worker that is kept free for a further alternative of a task starts no other before.
func TestAnEstimateKnowsTheWorkerThatIsKeptForAnAlternative(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	some := func(name string, n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: name, Amount: n}} }
	s.AddWorker(1, scheduler.Capacity{Slots: 4, Resources: some("cpu", 4_000)})
	s.AddWorker(2, scheduler.Capacity{Slots: 2, Resources: some("gpu", 2_000)})
	s.SetQueue("ml", scheduler.Queue{Max: some("gpu", 1_000)})
	gpu := s.Class(scheduler.Demand{Queue: "ml", Resources: some("gpu", 1_000)})
	small := s.Class(scheduler.Demand{Queue: "ml", Resources: some("cpu", 1_000)})
	either := s.Class(scheduler.Demand{Queue: "ml", Resources: some("gpu", 1_000), Alternatives: [][]scheduler.Quantity{some("cpu", 4_000)}})
	s.Occupy(2, gpu, scheduler.Normal)
	var running []scheduler.RunningAttempt
	next := func() {
		for a, ok := s.Next(nil); ok; a, ok = s.Next(nil) {
			running = append(running, scheduler.RunningAttempt{Worker: a.Worker, Class: a.Class, Task: a.Task})
		}
	}
	s.PushRun(scheduler.TaskRef{Job: 1}, 4, small, scheduler.Normal)
	next()
	s.Push(scheduler.TaskRef{Job: 2}, either, scheduler.Normal, 0)
	s.PushRun(scheduler.TaskRef{Job: 3}, 50, small, scheduler.Normal)
	for len(s.Reservations()) == 0 {
		s.Release(1, small, scheduler.Normal)
		running = slices.Delete(running, 0, 1)
		next()
	}
	if kept := s.Reservations()[0].Worker; kept != 1 {
		t.Fatalf("worker %d is kept, want 1", kept)
	}
	last := scheduler.TaskRef{Job: 3, Index: 49}
	v := s.View(last, small, scheduler.Normal, 0, nil)
	s.ViewRunning(v, append(running, scheduler.RunningAttempt{Worker: 2, Class: gpu, Task: scheduler.TaskRef{Job: 5}}))
	samples, week := slices.Repeat([]int64{1_000}, 5), slices.Repeat([]int64{600_000_000}, 5)
	e := v.Estimate(1, func(t scheduler.TaskRef) []int64 {
		if t.Job == 5 {
			return week
		}
		return samples
	})
	// The others start 4 at a time, after what runs now and then the one that has all CPUs.
	if want := int64(1_000 * (2 + (s.Len()-2)/4)); e.Doubt != 0 || e.FromMS != want {
		t.Errorf("got %+v with %d tasks waiting, want %d ms", e, s.Len(), want)
	}
}

// A task behind its limit takes the first of its alternatives that a worker could run, also if the
// workers differ only in what no other task needs.
func TestAnEstimateKnowsWhatTasksBehindALimitCouldTake(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	some := func(name string) []scheduler.Quantity { return []scheduler.Quantity{{Name: name, Amount: 1_000}} }
	s.AddWorker(1, scheduler.Capacity{Slots: 1})
	s.AddWorker(2, scheduler.Capacity{Slots: 1, Resources: some("gpu")})
	either := s.Class(scheduler.Demand{Limit: 1, Group: scheduler.TaskRef{Job: 1}, Resources: some("tpu"), Alternatives: [][]scheduler.Quantity{some("gpu")}})
	gpu := s.Alternative(either, 1)
	plain := s.Class(scheduler.Demand{NoPrefetch: true})
	s.Occupy(1, plain, scheduler.Normal)
	s.Occupy(2, gpu, scheduler.Normal)
	s.PushRun(scheduler.TaskRef{Job: 1}, 1, either, scheduler.Normal)
	s.Push(scheduler.TaskRef{Job: 2}, plain, scheduler.Normal, 0)
	v := s.View(scheduler.TaskRef{Job: 2}, plain, scheduler.Normal, 0, nil)
	s.ViewRunning(v, []scheduler.RunningAttempt{{Worker: 1, Class: plain, Task: scheduler.TaskRef{Job: 4}}, {Worker: 2, Class: gpu, Task: scheduler.TaskRef{Job: 3}}})
	e := v.Estimate(1, func(t scheduler.TaskRef) []int64 {
		return slices.Repeat([]int64{map[uint64]int64{1: 5_000, 3: 1_000, 4: 9_000}[t.Job]}, 5)
	})
	if e != (scheduler.Estimate{FromMS: 6_000, ToMS: 6_000}) {
		t.Errorf("got %+v, want 6000 ms: the other task has worker 2 before", e)
	}
}

func TestAnEstimateIgnoresLeasesThatLetNothingStart(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	own, other := s.Class(scheduler.Demand{}), s.Class(scheduler.Demand{Queue: "other"})
	var running []scheduler.RunningAttempt
	for i := range uint32(6_000) {
		s.Reserve(other)
		running = append(running, scheduler.RunningAttempt{Class: other, Task: scheduler.TaskRef{Job: 2, Index: i}, EndsMS: 1_000})
	}
	s.AddWorker(1, scheduler.Capacity{Slots: 1})
	s.Occupy(1, own, scheduler.Normal)
	s.Push(task(2), own, scheduler.Normal, 0)
	v := s.View(task(2), own, scheduler.Normal, 0, nil)
	s.ViewRunning(v, append(running, scheduler.RunningAttempt{Worker: 1, Class: own, Task: task(1)}))
	if e := v.Estimate(1, fiveSeconds); e != (scheduler.Estimate{FromMS: 5_000, ToMS: 5_000}) {
		t.Errorf("got %+v, want 5000 ms", e)
	}
}
