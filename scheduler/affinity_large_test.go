package scheduler_test

import (
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// A large task whose key has a busy worker gets a worker as other large tasks do, although no slot
// is free when the time is set: here small tasks end at other times.
func TestALargeTaskWithAKeyDoesNotWaitForeverForABusyWorker(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	for id := range scheduler.WorkerID(2) {
		s.AddWorker(id+1, scheduler.Capacity{Slots: 4, Resources: cpu(4)})
	}
	small := s.Class(scheduler.Demand{Queue: "web", Resources: cpu(1)})
	s.PushRun(scheduler.TaskRef{Job: 1}, 1_000, small, scheduler.Normal)
	ends := make(map[int64]scheduler.WorkerID) // 125 ms from each other
	for i := range int64(8) {
		ends[1_003+125*i] = mustAssign(t, s).Worker
	}
	large := s.Class(scheduler.Demand{Queue: "hpc", Resources: cpu(4), Affinity: "key"})
	s.Push(scheduler.TaskRef{Job: 2}, large, scheduler.Normal, 0)
	for now := range int64(60_000) {
		id, ended := ends[now]
		if ended {
			s.Release(id, small, scheduler.Normal)
		}
		if !ended && now%100 != 50 { // when something else happens
			continue
		}
		s.Advance(now)
		for a, ok := s.Next(nil); ok; a, ok = s.Next(nil) {
			if a.Class == large {
				return
			}
			ends[now+1_000] = a.Worker
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	t.Errorf("it has waited for a minute for %+v, while tasks of a second started", s.KeyWorker(large))
}
