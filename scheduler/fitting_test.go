package scheduler_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler"
)

// Fitting is what Next does with a class alone: it assigns that many tasks, to that many
// workers.
func TestAsManyTasksFitAsNextAssigns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := scheduler.New(rapid.Uint64().Draw(rt, "seed"))
		for i := range rapid.IntRange(0, 6).Draw(rt, "workers") {
			s.AddWorker(scheduler.WorkerID(i+1), capacities().Draw(rt, "capacity"))
			if rapid.IntRange(0, 3).Draw(rt, "accepts") == 0 {
				s.SetAccepting(scheduler.WorkerID(i+1), false)
			}
		}
		d := demands().Draw(rt, "demand")
		d.Limit = 0
		c := s.Class(d)
		workers, tasks := s.Fitting(c)
		s.PushRun(scheduler.TaskRef{Job: 1}, 1000, c, scheduler.Normal)
		got := make(map[scheduler.WorkerID]int)
		n := uint64(0)
		for {
			a, ok := s.Next(nil)
			if !ok {
				break
			}
			got[a.Worker]++
			n++
		}
		if n > tasks || n < tasks && len(d.Alternatives) == 0 || len(got) != workers {
			rt.Fatalf("%d tasks on %d workers, want %d on %d", n, len(got), tasks, workers)
		}
	})
}
