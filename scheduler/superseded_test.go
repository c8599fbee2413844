package scheduler_test

import (
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// A run may begin with entries that were superseded and end with one of after.
func TestATaskThatFollowsItsSupersededJobKeepsItsEntry(t *testing.T) {
	t.Parallel()
	for name, sweep := range map[string]func(*scheduler.Scheduler){
		"never swept":      func(*scheduler.Scheduler) {},
		"swept":            func(s *scheduler.Scheduler) { s.Sweep(func(scheduler.TaskRef) bool { return true }) },
		"superseded swept": func(s *scheduler.Scheduler) { s.SweepSuperseded() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fleet(1, 10)
			class := s.Class(scheduler.Demand{})
			other := scheduler.TaskRef{Job: 2}
			s.Push(other, class, scheduler.Normal, 0) // else the superseded entries are dropped at once
			s.PushRun(task(0), 5, class, scheduler.Normal)
			s.SupersedeJob(1, nil)
			s.Push(task(5), class, scheduler.Normal, 0)
			sweep(s)
			for _, want := range []scheduler.TaskRef{other, task(5)} {
				if a, ok := s.Next(nil); !ok || a.Task != want {
					t.Fatalf("got %v, %v; want %v", a.Task, ok, want)
				}
			}
			mustNotNext(t, s)
			if s.Len() != 0 {
				t.Errorf("%d entries are left", s.Len())
			}
		})
	}
}

// A task is in the ready queues of all alternatives.
func TestASupersededJobLeavesAllItsAlternatives(t *testing.T) {
	t.Parallel()
	s := fleet(1, 10)
	gpu := scheduler.Demand{Resources: []scheduler.Quantity{{Name: "gpu", Amount: 1}}, Alternatives: [][]scheduler.Quantity{nil}}
	class := s.Class(gpu)
	s.PushRun(task(0), 5, class, scheduler.Normal)
	s.PushRun(scheduler.TaskRef{Job: 2}, 5, class, scheduler.Normal)
	s.SupersedeJob(1, nil)
	for i := range uint32(5) {
		if a, ok := s.Next(nil); !ok || a.Task != (scheduler.TaskRef{Job: 2, Index: i}) {
			t.Fatalf("got %v, %v; want task %d of job 2", a.Task, ok, i)
		}
	}
	mustNotNext(t, s)
	if s.Len() != 0 || s.Depth(scheduler.Normal) != 0 {
		t.Errorf("%d entries are left", s.Len())
	}
}

// Tasks that keep their place may be anywhere in a run, and in the alternatives of their class.
func TestATaskThatIsNotSupersededWithItsJobKeepsItsPlace(t *testing.T) {
	t.Parallel()
	gpu := scheduler.Demand{Resources: []scheduler.Quantity{{Name: "gpu", Amount: 1}}, Alternatives: [][]scheduler.Quantity{nil}}
	for name, sweep := range map[string]func(*scheduler.Scheduler){
		"never swept":      func(*scheduler.Scheduler) {},
		"swept":            func(s *scheduler.Scheduler) { s.Sweep(func(scheduler.TaskRef) bool { return true }) },
		"superseded swept": func(s *scheduler.Scheduler) { s.SweepSuperseded() },
	} {
		for kind, demand := range map[string]scheduler.Demand{"alternatives": gpu, "no alternatives": {}} {
			t.Run(name+" with "+kind, func(t *testing.T) {
				t.Parallel()
				s := fleet(1, 20)
				class := s.Class(demand)
				s.PushRun(task(0), 8, class, scheduler.Normal)
				s.SupersedeJob(1, []uint32{2, 3, 7})
				s.Push(task(0), class, scheduler.Normal, 0)
				s.SupersedeJob(1, []uint32{0, 3, 6}) // task 6 was superseded before
				s.Push(task(2), class, scheduler.Normal, 0)
				sweep(s)
				for _, want := range []int{3, 0, 2} {
					if a, ok := s.Next(nil); !ok || a.Task != task(want) {
						t.Fatalf("got %v, %v; want task %d", a.Task, ok, want)
					}
				}
				mustNotNext(t, s)
				if s.Len() != 0 || s.Depth(scheduler.Normal) != 0 {
					t.Errorf("%d entries are left", s.Len())
				}
			})
		}
	}
}
