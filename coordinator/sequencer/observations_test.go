package sequencer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The leader may be another one than that under which the attempt began, and the
// worker's clock may be wrong.
func TestAnAttemptStartedAsLongAgoAsItsWorkerReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := attachWorker(t, s, "w1", "a", 1, hold)
		id := mustSubmit(t, s, spec{key: "k", n: 1})
		w.await("its assignment", func() bool { return len(w.held) == 1 })
		<-time.After(7 * time.Second)
		reported := time.Now().UnixMilli()
		w.tell(&dtaskv1.Reports{Started: []*dtaskv1.Started{{Attempt: refTo(w.held[0]), RanMs: 5000}}})
		w.await("its observation", func() bool { return len(s.Observed(id)) == 1 })
		began := s.Observed(id)[0].StartedMS
		if late := began - (reported - 5000); late < 0 || late > 1000 {
			t.Errorf("it started at %d, %d ms after it did", began, late)
		}
		w.tell(&dtaskv1.Reports{Progress: []*dtaskv1.Progress{{Attempt: refTo(w.held[0]), Permille: 10}}})
		w.await("its progress", func() bool { return s.Observed(id)[0].Permille == 10 })
		if got := s.Observed(id)[0].StartedMS; got != began {
			t.Errorf("progress moved its start from %d to %d", began, got)
		}
	})
}

// What a worker reports of an attempt is kept during its lease, and ends with the attempt if the
// worker comes back before.
func TestAnAttemptThatIsHeldAgainAfterItsLeaseIsNotObservedForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetLimit(t, s, "db", atMost(1))
		id := mustSubmit(t, s, using("k", 2, "db"))
		w := attachWorker(t, s, "w1", "a", 1, keep)
		w.await("its assignment", func() bool { return len(w.held) == 1 })
		a := w.held[0]
		w.tell(&dtaskv1.Reports{Started: []*dtaskv1.Started{{Attempt: refTo(a)}}})
		w.fallSilent()
		<-time.After(10 * time.Second) // the worker is down, and the lease has not ended
		w = attachWorker(t, s, "w1", "a", 1, keep, a)
		if s.Observed(id)[a.Index].StartedMS == 0 {
			t.Fatal("the attempt is not known to run")
		}
		w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, a)
		c.await("the task has ended", func() bool { return c.job(id).Counts[fsm.Completed] == 1 })
		if o, ok := s.Observed(id)[a.Index]; ok {
			t.Errorf("the attempt has ended, and is observed: %+v", o)
		}
	})
}
