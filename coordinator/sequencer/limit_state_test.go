package sequencer

import (
	"testing"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

func TestTheBucketsOfANewLeaderAreEmpty(t *testing.T) {
	t.Parallel()
	r := testSequencer(t).dispatch.policies.rates
	l := fsm.LimitSettings{Rate: 1, PeriodMS: 1000, Burst: 5}
	if n := r.add("api", l).whole(); n != 0 {
		t.Errorf("got %d tokens, want none: the former leader may have used them", n)
	}
	r.set["tenant/*"] = true
	if n := r.add("tenant/acme", l).whole(); n != 5 {
		t.Errorf("got %d tokens of a limit that was set in this term, want 5", n)
	}
}

func TestACancelledAttemptOnALostWorkerCountsUntilItsLeaseEnds(t *testing.T) {
	t.Parallel()
	s := testSequencer(t)
	class := s.dispatch.sched.Class(scheduler.Demand{Uses: []string{"db"}})
	a := fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1}, Attempt: 1}
	s.dispatch.sched.Reserve(class)
	s.workers.leases.byRef[a] = lease{class: class, keeps: true}
	held := func() uint32 { return s.dispatch.sched.LimitLoads()[0].Held }
	if s.workers.leases.ended(a); held() != 1 {
		t.Errorf("got %d attempts after the cancellation, want 1", held())
	}
	if s.workers.leases.end(a); held() != 0 {
		t.Errorf("got %d attempts after the lease, want 0", held())
	}
}
