package sequencer_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Timers can't be removed. Those of times that are far ahead must not remain until then: a leader
// would have one for each job of the last days or years.
func TestAJobThatHasEndedLeavesNoTimerForLong(t *testing.T) {
	t.Parallel()
	const late = 3 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		for i, set := range []func(h *dtaskv1.JobHeader){
			startsAfter(late), expiresIn(late), func(h *dtaskv1.JobHeader) { h.DeadlineMs = late.Milliseconds() },
		} {
			id := mustSubmit(t, s, timed(fmt.Sprint(i), 1, set))
			if _, err := s.CancelJob(t.Context(), id, "not needed"); err != nil {
				t.Fatal(err)
			}
		}
		waits := mustSubmit(t, s, timed("waits", 1, startsAfter(late)))
		pass(2 * time.Hour)
		if got := s.JobTimers(t.Context()); len(got) != 1 || got[waits] != 1 {
			t.Errorf("there are timers of the jobs %v, want one of job %d", got, waits)
		}
		pass(time.Until(simEpoch.Add(late - time.Minute)))
		if job := c.job(waits); job.State != fsm.JobPending || !job.Gated {
			t.Errorf("before its time, the job is %v, gated %v", job.State, job.Gated)
		}
		pass(2 * time.Minute)
		if job := c.job(waits); job.Gated {
			t.Error("after its time, the gate of the job is closed")
		}
	})
}

// Timers that fire early look at the clock again. Those of deadlines must not do that while it is in
// doubt.
func TestADeadlineFarAheadOutlastsAClockThatIsAheadForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, clock := newCluster(t), new(wallClock)
		var agrees atomic.Bool
		agrees.Store(true)
		c.config = func(cfg *sequencer.Config) { cfg.WallClock, cfg.ClockAgrees = clock.now, agrees.Load }
		s, _ := c.lead()
		raiseToSchedules(t, s)
		id := mustSubmit(t, s, timed("d", 1, func(h *dtaskv1.JobHeader) { h.DeadlineMs = (20 * time.Hour).Milliseconds() }))
		pass(50 * time.Minute)
		clock.add(24 * time.Hour)
		agrees.Store(false)
		pass(20 * time.Minute)
		clock.add(-24 * time.Hour)
		agrees.Store(true)
		pass(time.Minute)
		if job := c.job(id); job.State != fsm.JobPending {
			t.Errorf("after 71 minutes, the job with a deadline of 20 hours is %v (%s)", job.State, job.Error)
		}
		pass(20 * time.Hour)
		if job := c.job(id); job.State != fsm.JobFailed {
			t.Errorf("after its deadline, the job is %v", job.State)
		}
	})
}
