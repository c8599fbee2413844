package scheduler_test

import (
	"strconv"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

func limited(limit, group uint32) scheduler.Demand {
	return scheduler.Demand{Limit: limit, Group: scheduler.TaskRef{Job: 1, Index: group}}
}

func TestALimitedClassKeepsItsPosition(t *testing.T) {
	t.Parallel()
	s := fleet(2, 3)
	c := s.Class(limited(2, 0))
	for i := range 4 {
		s.Push(task(i), c, scheduler.Normal, 0)
	}
	for i := range 2 {
		s.Push(task(10+i), 0, scheduler.Normal, 0)
	}
	first, second := mustNext(t, s), mustNext(t, s)
	if a := mustNext(t, s); a.Task != task(10) {
		t.Fatalf("a full class blocks later tasks: got %+v", a)
	}
	if !s.Release(first.Worker, c, first.Priority) {
		t.Fatal("the attempt was not held")
	}
	if a := mustNext(t, s); a.Task != task(2) {
		t.Fatalf("got %+v, want the next task of the array, which is older", a)
	}
	if a := mustNext(t, s); a.Task != task(11) {
		t.Fatalf("got %+v", a)
	}
	mustNotNext(t, s)
	s.RemoveWorker(second.Worker) // its attempts no longer count
	s.AddWorker(9, scheduler.Capacity{Slots: 8})
	if a := mustNext(t, s); a.Task != task(3) {
		t.Fatalf("got %+v", a)
	}
}

func TestAnAttemptThatMayStillRunCounts(t *testing.T) {
	t.Parallel()
	s := fleet(1, 4)
	c := s.Class(limited(1, 0))
	s.Reserve(c)
	s.Push(task(0), c, scheduler.Normal, 0)
	mustNotNext(t, s)
	s.Unreserve(c)
	mustNext(t, s)
}

func TestALimitedClassIsRecycledAfterItsLastAttempt(t *testing.T) {
	t.Parallel()
	s := fleet(1, 4)
	c := s.Class(limited(1, 0))
	s.Push(task(0), c, scheduler.Normal, 0)
	a := mustNext(t, s)
	s.Push(task(1), c, scheduler.Normal, 0)
	s.Retire(c)
	if s.Len() != 0 {
		t.Errorf("%d entries are left", s.Len())
	}
	if other := s.Class(limited(1, 1)); other == c {
		t.Error("a class is recycled while one of its attempts is held")
	}
	s.Release(a.Worker, c, a.Priority)
	if other := s.Class(limited(5, 2)); other != c {
		t.Errorf("got class %d, want %d again", other, c)
	}
	s.Push(task(2), c, scheduler.Normal, 0)
	mustNext(t, s)
	s.Push(task(3), 0, scheduler.Normal, 0)
	mustNext(t, s)
}

// Nothing ends for a long time, while jobs that wait for a limit, a quota or a worker come and are
// cancelled: what waited of them must not be kept until something ends.
func TestJobsThatAreCancelledWhileTheyWaitLeaveNothing(t *testing.T) {
	t.Parallel()
	gpu := []scheduler.Quantity{{Name: "gpu", Amount: 1}}
	for name, demand := range map[string]scheduler.Demand{
		"limit":    {Uses: []string{"db"}},
		"quota":    {Queue: "q", Resources: gpu},
		"capacity": {Resources: []scheduler.Quantity{{Name: "gpu", Amount: 3}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scheduler.New(1)
			s.AddWorker(1, scheduler.Capacity{Slots: 4, Resources: []scheduler.Quantity{{Name: "gpu", Amount: 2}}})
			s.SetQueue("q", scheduler.Queue{Max: gpu})
			holder := s.Class(scheduler.Demand{Queue: "q", Resources: gpu, Uses: []string{"db"}})
			s.SetNamedLimit("db", 1)
			s.Push(task(0), holder, scheduler.Normal, 0)
			if _, ok := s.Next(nil); !ok {
				t.Fatal("the holder does not start")
			}
			for i := range 1000 {
				demand.Owner = strconv.Itoa(i)
				c := s.Class(demand)
				s.Push(task(i+1), c, scheduler.Normal, 0)
				if a, ok := s.Next(nil); ok {
					t.Fatalf("%+v starts", a)
				}
				s.Retire(c)
			}
			if n := s.Parked(); n > 10 {
				t.Errorf("%d are kept", n)
			}
		})
	}
}
