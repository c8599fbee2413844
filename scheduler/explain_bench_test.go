package scheduler_test

import (
	"fmt"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// mixedFleet is a busy fleet: its workers have different labels, slots and loads, and none
// has a free slot with all that a waiting task needs. 400 tasks of 40 classes wait.
func mixedFleet(workers int) (s *scheduler.Scheduler, last scheduler.TaskRef, c scheduler.ClassID) {
	s = scheduler.New(1)
	zones := []string{"eu", "us", "ap"}
	var classes []scheduler.ClassID
	for i := range 40 {
		d := scheduler.Demand{Type: "command", Resources: []scheduler.Quantity{{Name: "cpu", Amount: int64(1000 + 250*(i%8))}}}
		if i%4 > 0 {
			d.Labels = []scheduler.Label{{Name: "zone", Value: zones[i%4-1]}}
		}
		if i%5 == 0 {
			d.Resources = append(d.Resources, scheduler.Quantity{Name: "memory", Amount: int64(1+i) << 30})
		}
		classes = append(classes, s.Class(d))
	}
	plain := s.Class(scheduler.Demand{Type: "command"})
	for i := range workers {
		id := scheduler.WorkerID(i + 1) //nolint:gosec // small
		slots := 4 << (i % 3)
		s.AddWorker(id, scheduler.Capacity{
			Slots:     slots,
			Labels:    []scheduler.Label{{Name: "host", Value: fmt.Sprint("w", i)}, {Name: "zone", Value: zones[i%3]}},
			Types:     []string{"command", "noop"},
			Resources: []scheduler.Quantity{{Name: "cpu", Amount: int64(1000 * slots)}, {Name: "memory", Amount: int64(slots) << 31}},
		})
		for k := range slots {
			class := plain
			if (i+k)%3 == 0 {
				class = classes[(i*7+k)%len(classes)]
			}
			s.Occupy(id, class, scheduler.Normal)
		}
		if i%50 == 0 {
			s.SetAccepting(id, false)
		}
	}
	for i := range 400 {
		last, c = task(i), classes[i%len(classes)]
		s.Push(last, c, scheduler.Normal, 0)
	}
	return s, last, c
}

// BenchmarkExplain explains the last of 400 tasks that wait in a busy fleet. The copies are
// taken in the leader's loop.
func BenchmarkExplain(b *testing.B) {
	valid := func(scheduler.TaskRef) bool { return true }
	for _, of := range []struct {
		workers     int
		copy, whole string
	}{
		{1_000, "1000_workers/copy", "1000_workers/whole"},
		{10_000, "10000_workers/copy", "10000_workers/whole"},
	} {
		s, last, class := mixedFleet(of.workers)
		if _, ok := s.Next(valid); ok {
			b.Fatal("the cluster is not full")
		}
		view := func() *scheduler.TaskView { return s.View(last, class, scheduler.Normal, 0, valid) }
		b.Run(of.copy, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				view()
			}
		})
		b.Run(of.whole, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v := view()
				v.Groups()
				if _, complete := v.Changes(); !complete {
					b.Fatal("not complete")
				}
			}
		})
		if of.workers == 1_000 {
			b.Run("1000_workers/estimate", func(b *testing.B) { benchmarkEstimate(b, s, view()) })
		}
	}
}

// benchmarkEstimate estimates when the task of a view starts.
func benchmarkEstimate(b *testing.B, s *scheduler.Scheduler, v *scheduler.TaskView) {
	b.Helper()
	ids, _, ok := v.Busy(0)
	if !ok {
		b.Fatal("too many attempts")
	}
	var list []scheduler.RunningAttempt
	for _, id := range ids {
		for k := range -s.Free(id) + 4<<((id-1)%3) {
			list = append(list, scheduler.RunningAttempt{Worker: id, Task: scheduler.TaskRef{Job: 1}, RanMS: int64(100 * k)})
		}
	}
	s.ViewRunning(v, list)
	var samples []int64
	for i := range 20 {
		samples = append(samples, int64(5_000+1_000*i))
	}
	b.ReportAllocs()
	for b.Loop() {
		if e := v.Estimate(1, func(scheduler.TaskRef) []int64 { return samples }); e.Doubt != 0 {
			b.Fatalf("no estimate: %d", e.Doubt)
		}
	}
}

// The budgets of an explanation hold only if its work does not grow with the number of
// workers that are equal, and if it finds all changes in a busy fleet.
func TestABusyFleetIsExplainedCompletely(t *testing.T) {
	t.Parallel()
	s, last, class := mixedFleet(1_000)
	v := s.View(last, class, scheduler.Normal, 0, func(scheduler.TaskRef) bool { return true })
	changes, complete := v.Changes()
	if !complete || len(changes) == 0 {
		t.Errorf("got %d changes, complete: %v", len(changes), complete)
	}
	workers := 0
	for _, g := range v.Groups() {
		workers += len(g.Workers)
	}
	if workers != 1_000 || len(v.Groups()) > 500 {
		t.Errorf("got %d workers in %d groups, want 1000 in at most 500", workers, len(v.Groups()))
	}
}
