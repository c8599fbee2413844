package sequencer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

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
