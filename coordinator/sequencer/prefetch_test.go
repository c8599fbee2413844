package sequencer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestOnlyShortTasksArePrefetched(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	w := attachWorker(t, s, "w", "i", 2, succeed)
	if _, err := s.Attach(t.Context(), sequencer.Hello{Name: "w", Incarnation: "i", Slots: 2, Prefetch: 3}, w); err != nil {
		t.Fatal(err)
	}
	// holds submits tasks that keep running, and checks how many of them the
	// worker gets while others wait.
	holds := func(key string, want int, policy *dtaskv1.TaskPolicy) {
		t.Helper()
		w.mu.Lock()
		w.answer, w.held = hold, nil
		w.mu.Unlock()
		id := mustSubmit(t, s, spec{key: key, n: 10, policy: policy})
		// A request behind it in the inbox is executed after all assignments.
		w.await("its assignments", func() bool { return len(w.held) >= want })
		if got := int(c.job(id).Counts[fsm.Assigned]); got != want {
			t.Errorf("%s: the worker holds %d tasks, want %d", key, got, want)
		}
		if st := workersOf(t, s)[w.id]; st.Held != want || st.Prefetch != 3 {
			t.Errorf("%s: the worker has status %+v", key, st)
		}
		w.mu.Lock()
		held := w.held
		w.answer = succeed
		w.mu.Unlock()
		for _, a := range held {
			w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, a)
		}
		c.awaitEnd(id)
	}
	holds("unknown", 2, nil)
	c.awaitEnd(mustSubmit(t, s, spec{key: "short ones", n: 50}))
	holds("short", 5, nil)
	holds("at most once", 2, &dtaskv1.TaskPolicy{Type: "noop", Execution: dtaskv1.Execution_EXECUTION_AT_MOST_ONCE})
	w.mu.Lock()
	w.answer, w.tookMS = succeed, 10_000
	w.mu.Unlock()
	c.awaitEnd(mustSubmit(t, s, spec{key: "long ones", n: 2}))
	holds("after long ones", 2, nil)
}

// What waits at a worker whose slots are taken by long tasks is asked back, by a new leader too.
func TestANewLeaderRevokesWhatWaitsBehindLongTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		w := attachWorker(t, s, "w", "i", 1, succeed)
		if _, err := s.Attach(t.Context(), sequencer.Hello{Name: "w", Incarnation: "i", Slots: 1, Prefetch: 3}, w); err != nil {
			t.Fatal(err)
		}
		c.awaitEnd(mustSubmit(t, s, spec{key: "short ones", n: 50}))
		w.mu.Lock()
		w.answer, w.held = hold, nil
		w.mu.Unlock()
		once := mustSubmit(t, s, spec{key: "once", n: 1, policy: atMostOnce})
		w.await("the first", func() bool { return len(w.held) == 1 })
		waits := mustSubmit(t, s, spec{key: "waits", n: 1})
		w.await("the second", func() bool { return len(w.held) == 2 })
		w.tell(&dtaskv1.Reports{StartRequests: []*dtaskv1.AttemptRef{refTo(w.held[0])}})
		w.await("its start grant", func() bool { return len(w.begins) == 1 })
		if err := end(); err == nil {
			t.Fatal("the term ended without a reason")
		}
		s, _ = c.lead()
		attachWorker(t, s, "w", "i", 1, hold, w.held...)
		<-time.After(10 * time.Second)
		if n := s.Stats().StealRequests; n != 1 {
			t.Errorf("%d attempts were asked for, want that of job %d behind job %d", n, waits, once)
		}
	})
}
