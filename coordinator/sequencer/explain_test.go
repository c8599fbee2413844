package sequencer_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// keep is a worker that runs what it gets until the test ends it.
func keep(fsm.AssignItem) *dtaskv1.Outcome { return nil }

// An explained is an Explanation for a caller who sees all workers.
type explained struct {
	*sequencer.Explanation

	Capacity *sequencer.Capacity
}

func mustExplain(tb testing.TB, s *sequencer.Sequencer, id fsm.JobID, i uint32) explained {
	tb.Helper()
	e, err := s.Explain(tb.Context(), fsm.TaskRef{Job: id, Index: i})
	if err != nil {
		tb.Fatal(err)
	}
	x := explained{Explanation: e}
	if e.Capacity != nil {
		x.Capacity = e.Capacity(func(fsm.WorkerID) bool { return true })
	}
	return x
}

// codes are the codes of the changes that would start a task.
func codes(e explained) (list map[string]int64) {
	list = make(map[string]int64)
	for _, c := range e.Capacity.Changes {
		list[c.Code] = c.Amount
	}
	return list
}

// What explain lists as a change is made, and the task starts.
func TestATaskStartsAfterTheChangeThatIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		id := mustSubmit(t, s, spec{key: "k", n: 3})
		e := mustExplain(t, s, id, 2)
		if x := e.Capacity; e.State != fsm.Pending || x == nil || x.EverFits || x.Earlier != 2 || len(x.Groups) != 0 || len(x.Changes) != 1 || x.Changes[0].New.Slots != 3 {
			t.Fatalf("without workers: got %+v, %+v", e, e.Capacity)
		}
		w := attachWorker(t, s, "w1", "a", 1, keep)
		e = mustExplain(t, s, id, 1)
		if g := e.Capacity.Groups; len(g) != 1 || g[0].Obstacles[0].Code != "no_free_slot" || codes(e)["add_slots"] != 1 {
			t.Fatalf("with a busy worker: got %+v", e.Capacity)
		}
		if e = mustExplain(t, s, id, 2); codes(e)["add_slots"] != 2 {
			t.Fatalf("behind another task: got %+v", e.Capacity)
		}
		var has []fsm.AttemptRef
		w.await("its attempt", func() bool { has = slices.Clone(w.held); return len(has) == 1 })
		attachWorker(t, s, "w1", "a", 2, keep, has...)
		c.await("the second task is assigned", func() bool { return c.task(id, 1).State == fsm.Assigned })
		if e = mustExplain(t, s, id, 1); e.State != fsm.Assigned || !e.Attached || e.Before != 0 || e.Capacity != nil {
			t.Fatalf("an assigned task: got %+v", e)
		}

		attachWorker(t, s, "w2", "b", 1, keep) // takes the third
		c.await("the third task is assigned", func() bool { return c.task(id, 2).State == fsm.Assigned })
		if err := s.Drain(t.Context(), "w2", time.Hour, ""); err != nil {
			t.Fatal(err)
		}
		attachWorker(t, s, "w3", "c", 1, keep)
		if err := s.Drain(t.Context(), "w3", time.Hour, ""); err != nil {
			t.Fatal(err)
		}
		late := mustSubmit(t, s, spec{key: "late", n: 1})
		if e = mustExplain(t, s, late, 0); len(codes(e)) != 3 { // w3 is undrained, w1 has a slot more, or another worker joins
			t.Fatalf("got %+v", e.Capacity.Changes)
		}
		for _, x := range e.Capacity.Changes {
			if x.Code == "undrain_worker" && x.Worker != 3 {
				t.Errorf("undraining worker %d would not start it", x.Worker)
			}
		}
		if _, err := s.Undrain(t.Context(), "w3"); err != nil {
			t.Fatal(err)
		}
		c.await("the last task is assigned", func() bool { return c.task(late, 0).State == fsm.Assigned })
	})
}

func TestAnAttemptOfAWorkerWithoutASessionIsExplained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		id := mustSubmit(t, s, spec{key: "k", n: 1})
		w := attachWorker(t, s, "w1", "a", 1, keep)
		c.await("the task is assigned", func() bool { return c.task(id, 0).State == fsm.Assigned })
		w.fallSilent()
		s.Detach(w.id, w)
		e := mustExplain(t, s, id, 0)
		if e.Attached || e.MarkedDown < time.Now().UnixMilli() || e.LeaseUntil != 0 {
			t.Errorf("got %+v, want a worker that is marked down later", e)
		}
		c.await("the task is ready again", func() bool { return c.task(id, 0).State == fsm.Pending })
		if e = mustExplain(t, s, id, 0); e.State != fsm.Pending || e.Attempt != 1 || len(e.Capacity.Groups) != 0 {
			t.Errorf("got %+v, want a pending task without workers", e)
		}
	})
}

func TestWhatWaitsForATimeIsExplained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		id := mustSubmit(t, s, spec{key: "k", n: 1, policy: patient()})
		e := mustExplain(t, s, id, 0)
		if left := e.QueueTimeout - time.Now().UnixMilli(); left < 1900 || left > 2000 {
			t.Errorf("got a queue timeout in %d ms, want 2000", left)
		}
		s.StopAssigning(true)
		attachWorker(t, s, "w1", "a", 1, keep)
		if e = mustExplain(t, s, id, 0); !e.Paused || !e.Capacity.Fits || len(e.Capacity.Changes) != 0 {
			t.Errorf("got %+v, %+v, want a task that fits while assignment is paused", e, e.Capacity)
		}
		if e = mustExplain(t, s, id+1, 0); e.State != 0 || e.Capacity != nil {
			t.Errorf("got %+v for an unknown job", e)
		}
	})
}

func TestAQuestionEndsWithTheTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		id := mustSubmit(t, s, spec{key: "k", n: 1})
		if err := end(); err == nil {
			t.Fatal("the term ended without a reason")
		}
		if _, err := s.Explain(t.Context(), fsm.TaskRef{Job: id}); !errors.Is(err, sequencer.ErrTermEnded) {
			t.Errorf("got %v, want the end of the term", err)
		}
	})
}

// The answer is computed on a copy, while the term continues. The race detector checks
// that nothing of it is shared.
func TestTasksRunWhileTheyAreExplained(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	const n = 200
	id := mustSubmit(t, s, spec{key: "k", n: n})
	for i := range 4 {
		attachWorker(t, s, fmt.Sprint("w", i), "a", 1, succeed)
	}
	var asking sync.WaitGroup
	for from := range 2 {
		asking.Go(func() {
			for i := from; i < n; i += 2 {
				e, err := s.Explain(t.Context(), fsm.TaskRef{Job: id, Index: uint32(i)}) //nolint:gosec // small
				if err != nil {
					t.Errorf("task %d: %v", i, err)
				} else if e.Capacity != nil {
					e.Capacity(func(fsm.WorkerID) bool { return true })
				}
			}
		})
	}
	for i := range 20 { // the capacity of a worker changes meanwhile
		attachWorker(t, s, "w0", "a", uint32(1+i%3), succeed) //nolint:gosec // small
	}
	asking.Wait()
	if job := c.awaitEnd(id); job.State != fsm.JobCompleted {
		t.Errorf("the job ended as %v", job.State)
	}
}
