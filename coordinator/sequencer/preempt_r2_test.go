package sequencer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

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

func TestARetriedTaskIsStillPreemptible(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := attachWorker(t, s, "w1", "i1", 1, hold)
		id := mustSubmit(t, s, spec{key: "low", n: 1, policy: preemptible()})
		for i := range 3 {
			w.await("an attempt", func() bool { return len(w.held) == i+1 })
			w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, w.held[i])
			<-time.After(time.Minute)
			if _, err := s.Revive(t.Context(), fsm.Revive{Job: id}, false); err != nil {
				t.Fatal(err)
			}
		}
		w.await("the attempt", func() bool { return len(w.held) == 4 })
		mustSubmit(t, s, spec{key: "now", n: 1, policy: urgentPolicy()})
		<-time.After(20 * time.Second)
		if n := len(w.preemptions()); n != 1 {
			t.Errorf("%d preemptions of a task that was never preempted, want 1; task %+v", n, c.task(id, 0))
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
