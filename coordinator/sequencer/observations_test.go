package sequencer_test

import (
	"testing"
	"testing/synctest"
	"time"

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
