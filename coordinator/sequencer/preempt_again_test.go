package sequencer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func (w *fakeWorker) preemptions() (list []fsm.AttemptRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.stops {
		if s.Reason == dtaskv1.StopReason_STOP_REASON_PREEMPTED {
			list = append(list, s.Attempt)
		}
	}
	return list
}

// The session with the stop is replaced by another one of the same process, which has free slots: only
// the quota is short.
func TestAPreemptionForAQuotaThatAReplacedSessionLostIsRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetQueue(t, s, fsm.DefaultQueue, fsm.QueueSettings{MaxRunning: 2})
		w := attachWorker(t, s, "w1", "i1", 8, hold)
		mustSubmit(t, s, spec{key: "low", n: 2, policy: preemptible()})
		w.await("both attempts", func() bool { return len(w.held) == 2 })
		now := mustSubmit(t, s, spec{key: "now", n: 1, policy: urgentPolicy()})
		w.awaitPreempted(1)
		w = attachWorker(t, s, "w1", "i1", 8, hold, w.held...) // the stop was lost
		<-time.After(10 * time.Minute)
		if list := w.preemptions(); len(list) == 0 {
			e := mustExplain(t, s, now, 0)
			t.Errorf("nothing ends any more for the urgent task, for which worker %d is kept: %+v", w.id, e.State)
		}
	})
}

// An attempt that was stopped and fenced never ends: its process hangs.
func TestAnAttemptThatHangsDoesNotEndThePreemptionOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		all := []*fakeWorker{attachWorker(t, s, "w1", "i1", 1, hold), attachWorker(t, s, "w2", "i2", 1, hold)}
		mustSubmit(t, s, spec{key: "low", n: 2, policy: &dtaskv1.TaskPolicy{
			Type: "noop", KillGraceMs: 20, Priority: dtaskv1.Priority_PRIORITY_LOW, Preemptible: true,
		}})
		for _, w := range all {
			w.await("its attempt", func() bool { return len(w.held) == 1 })
		}
		mustSubmit(t, s, spec{key: "now", n: 1, policy: urgentPolicy()})
		<-time.After(time.Hour)
		if n := len(all[0].preemptions()) + len(all[1].preemptions()); n != 2 {
			t.Errorf("%d attempts were asked to end in an hour, want 2", n)
		}
	})
}

func TestTheNextLeaderPreemptsTheAttemptThatBeganLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, stop := c.lead()
		w := attachWorker(t, s, "w1", "i1", 2, hold)
		mustSubmit(t, s, spec{key: "old", n: 1, policy: preemptible()})
		w.await("the old attempt", func() bool { return len(w.held) == 1 })
		<-time.After(20 * time.Second)
		young := mustSubmit(t, s, spec{key: "young", n: 1, policy: preemptible()})
		w.await("the young attempt", func() bool { return len(w.held) == 2 })
		held := w.held
		_ = stop() // its term has ended
		s, _ = c.lead()
		w = attachWorker(t, s, "w1", "i1", 2, hold, held...)
		r := &dtaskv1.Reports{}
		for i, a := range held { // as a worker does in a new session
			ref := &dtaskv1.AttemptRef{Job: uint64(a.Job), Task: a.Index, Attempt: a.Attempt}
			r.Started = append(r.Started, &dtaskv1.Started{Attempt: ref, RanMs: []uint32{20_000, 200}[i]})
		}
		if err := s.Report(t.Context(), w.id, w, r, false); err != nil {
			t.Fatal(err)
		}
		mustSubmit(t, s, spec{key: "now", n: 1, policy: urgentPolicy()})
		if list := w.awaitPreempted(1); list[0].Job != young {
			t.Errorf("%v ends, want the young one of job %d", list, young)
		}
	})
}

// A job moves while its attempt ends for an urgent task: the attempt must not be offered again.
func TestAnAttemptThatEndsIsNotPreemptedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		totals := sequencer.NewTotals()
		c.config = func(cfg *sequencer.Config) { cfg.Totals = totals }
		s, _ := c.lead()
		w := attachWorker(t, s, "w1", "i1", 1, hold)
		slow := preemptible()
		slow.KillGraceMs = 30_000
		atQueueLevel(t, s)
		mustSetQueue(t, s, "etl", fsm.QueueSettings{})
		low := mustSubmit(t, s, spec{key: "low", n: 1, policy: slow})
		w.await("its attempt", func() bool { return len(w.held) == 1 })
		now := mustSubmit(t, s, spec{key: "now", n: 1, policy: urgentPolicy()})
		w.awaitPreempted(1)
		if _, err := s.MoveJob(t.Context(), fsm.MoveJob{Job: low, Queue: "etl"}, false); err != nil {
			t.Fatal(err)
		}
		if _, err := s.CancelJob(t.Context(), now, "test"); err != nil {
			t.Fatal(err)
		}
		mustSubmit(t, s, spec{key: "now2", n: 1, policy: urgentPolicy(), header: &dtaskv1.JobHeader{Name: "job", Queue: "etl"}})
		<-time.After(5 * time.Second)
		if n := totals.Preemptions.Load(); n != 1 {
			t.Errorf("%d preemptions of one attempt", n)
		}
	})
}

// The other worker is idle, and returns to the new leader a little later.
func TestNothingIsPreemptedWhileWorkersReturnToANewLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, stop := c.lead()
		w := attachWorker(t, s, "w1", "i1", 1, hold)
		mustSubmit(t, s, spec{key: "low", n: 1, policy: preemptible()})
		w.await("its attempt", func() bool { return len(w.held) == 1 })
		attachWorker(t, s, "w2", "i2", 1, hold)
		held := w.held
		_ = stop() // its term has ended
		s, _ = c.lead()
		w = attachWorker(t, s, "w1", "i1", 1, hold, held...)
		mustSubmit(t, s, spec{key: "now", n: 1, policy: urgentPolicy()})
		<-time.After(1500 * time.Millisecond)
		attachWorker(t, s, "w2", "i2", 1, hold)
		if list := w.preemptions(); len(list) > 0 {
			t.Errorf("%v ends although an idle worker is about to return", list)
		}
	})
}

// The last preemptible attempt hangs after it was fenced, and keeps the quota taken: its worker, with
// seven free slots, must not stay idle for other queues.
func TestAWorkerIsNotKeptForATaskForWhichNothingEndsAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetQueue(t, s, fsm.DefaultQueue, fsm.QueueSettings{MaxRunning: 1})
		mustSetQueue(t, s, "etl", fsm.QueueSettings{})
		w := attachWorker(t, s, "w1", "i1", 8, hold)
		mustSubmit(t, s, spec{key: "low", n: 1, policy: preemptible()})
		w.await("its attempt", func() bool { return len(w.held) == 1 })
		mustSubmit(t, s, spec{key: "now", n: 1, policy: urgentPolicy()})
		w.awaitPreempted(1)
		<-time.After(time.Minute)
		mustSubmit(t, s, spec{key: "other", n: 1, policy: &dtaskv1.TaskPolicy{Type: "noop"}, header: &dtaskv1.JobHeader{Name: "job", Queue: "etl"}})
		<-time.After(time.Hour)
		w.mu.Lock()
		n := len(w.held)
		w.mu.Unlock()
		if n < 2 {
			t.Errorf("the worker got %d attempts; the task of another queue has waited for an hour beside 7 free slots", n)
		}
	})
}

func TestTheYoungestOfSeveralJobsIsPreempted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := attachWorker(t, s, "w1", "i1", 2, hold)
		mustSubmit(t, s, spec{key: "old", n: 1, policy: preemptible(), header: &dtaskv1.JobHeader{Name: "job", Owner: "ann"}})
		w.await("the old attempt", func() bool { return len(w.held) == 1 })
		<-time.After(20 * time.Second)
		young := mustSubmit(t, s, spec{key: "young", n: 1, policy: preemptible(), header: &dtaskv1.JobHeader{Name: "job", Owner: "bob"}})
		w.await("the young attempt", func() bool { return len(w.held) == 2 })
		mustSubmit(t, s, spec{key: "now", n: 1, policy: urgentPolicy()})
		if list := w.awaitPreempted(1); list[0].Job != young {
			t.Errorf("%v ends, want the young one of job %d", list, young)
		}
	})
}
