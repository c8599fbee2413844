package sequencer_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func preemptible() *dtaskv1.TaskPolicy {
	return &dtaskv1.TaskPolicy{Type: "noop", TimeoutMs: 60_000, KillGraceMs: 20, Priority: dtaskv1.Priority_PRIORITY_LOW, Preemptible: true}
}

func urgentPolicy() *dtaskv1.TaskPolicy {
	return &dtaskv1.TaskPolicy{Type: "noop", TimeoutMs: 60_000, Priority: dtaskv1.Priority_PRIORITY_URGENT}
}

// awaitPreempted waits until a worker is asked to end attempts for an urgent task, and returns them.
func (w *fakeWorker) awaitPreempted(n int) (list []fsm.AttemptRef) {
	w.t.Helper()
	w.await("a preemption", func() bool { return len(w.stops) >= n })
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.stops {
		if s.Reason != dtaskv1.StopReason_STOP_REASON_PREEMPTED {
			w.t.Errorf("stopped: %+v", s)
		}
		list = append(list, s.Attempt)
	}
	return list
}

// historyOf returns the ended attempts of a task.
func (c *cluster) historyOf(t fsm.TaskRef) (list []fsm.Attempt) {
	c.machine.Read(func(s *fsm.State, _ uint64) { list = s.History(t) })
	return list
}

func TestAnUrgentTaskStartsInPlaceOfThePreemptibleOneThatBeganLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		totals := sequencer.NewTotals()
		c.config = func(cfg *sequencer.Config) { cfg.Totals = totals }
		s, _ := c.lead()
		w := attachWorker(t, s, "w1", "i1", 2, hold)
		low := mustSubmit(t, s, spec{key: "low", n: 2, policy: preemptible()})
		w.await("both attempts", func() bool { return len(w.held) == 2 })
		last := w.held[1]
		now := mustSubmit(t, s, spec{key: "now", n: 1, policy: urgentPolicy()})
		if list := w.awaitPreempted(1); !slices.Equal(list, []fsm.AttemptRef{last}) {
			t.Fatalf("%v end, want %v", list, last)
		}
		if e := mustExplain(t, s, now, 0); e.EndsOn != w.id || e.Ends != 1 {
			t.Errorf("%d attempts end on worker %d for the urgent task, want 1 on %d", e.Ends, e.EndsOn, w.id)
		}
		if e := mustExplain(t, s, low, last.Index); e.PreemptedBy != now {
			t.Errorf("the attempt ends for job %d, want %d", e.PreemptedBy, now)
		}
		w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, last)
		w.await("the urgent task", func() bool { return len(w.held) == 3 && w.held[2].Job == now })
		if v := c.task(low, last.Index); v.State != fsm.Pending || v.Failures != 0 || v.Losses != 0 {
			t.Errorf("the preempted task is %+v", v)
		}
		if n := totals.Preemptions.Load(); n != 1 {
			t.Errorf("%d preemptions are counted", n)
		}
		if list := c.historyOf(last.TaskRef); len(list) != 1 || list[0].Error != "preempted: an urgent task took its place" {
			t.Errorf("the history of the tasks is %+v", list)
		}
		if err := s.Audit(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestATaskIsPreemptedThreeTimesAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := attachWorker(t, s, "w1", "i1", 1, hold)
		low := mustSubmit(t, s, spec{key: "low", n: 1, policy: preemptible()})
		for i := range 3 {
			w.await("the preemptible task", func() bool { return len(w.held) == 2*i+1 })
			mustSubmit(t, s, spec{key: fmt.Sprint("now", i), n: 1, policy: urgentPolicy()})
			w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, w.awaitPreempted(i + 1)[i])
			w.await("the urgent task", func() bool { return len(w.held) == 2*i+2 })
			w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, w.held[2*i+1])
		}
		w.await("the fourth attempt", func() bool { return len(w.held) == 7 })
		mustSubmit(t, s, spec{key: "now4", n: 1, policy: urgentPolicy()})
		<-time.After(5 * time.Second)
		if v := c.task(low, 0); v.State != fsm.Assigned || v.Attempt != 4 || len(w.preemptions()) != 3 {
			t.Errorf("the preemptible task is %+v, after %d preemptions", v, len(w.preemptions()))
		}
	})
}

func TestAWorkerThatIgnoresAPreemptionIsFenced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *sequencer.Config) { cfg.TimeoutSlack = 10 * time.Millisecond }
		s, _ := c.lead()
		w := attachWorker(t, s, "w1", "i1", 1, hold)
		low := mustSubmit(t, s, spec{key: "low", n: 1, policy: preemptible()})
		w.await("its attempt", func() bool { return len(w.held) == 1 })
		mustSubmit(t, s, spec{key: "now", n: 1, policy: urgentPolicy()})
		w.await("the stops", func() bool {
			return len(w.stops) == 2 && w.stops[1].Reason == dtaskv1.StopReason_STOP_REASON_SUPERSEDED
		})
		<-time.After(time.Second) // it is scheduled until the next batch
		if v := c.task(low, 0); v.State != fsm.Pending || v.Failures != 0 {
			t.Errorf("the preempted task is %+v", v)
		}
		if err := s.Audit(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTheNextLeaderPreemptsWhatAnEarlierOneAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, stop := c.lead()
		w := attachWorker(t, s, "w1", "i1", 1, hold)
		mustSubmit(t, s, spec{key: "low", n: 1, policy: preemptible()})
		w.await("its attempt", func() bool { return len(w.held) == 1 })
		now := mustSubmit(t, s, spec{key: "now", n: 1, policy: urgentPolicy()})
		a := w.awaitPreempted(1)[0]
		_ = stop() // its term has ended
		s, _ = c.lead()
		w = attachWorker(t, s, "w1", "i1", 1, hold, a) // the stop was lost
		w.awaitPreempted(1)
		w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, a)
		w.await("the urgent task", func() bool { return len(w.held) == 2 && w.held[1].Job == now })
	})
}
