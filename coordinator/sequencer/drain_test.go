package sequencer_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// wallClock is a wall clock that a test sets forward.
type wallClock struct{ ahead atomic.Int64 }

func (w *wallClock) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

func (w *wallClock) add(d time.Duration) { w.ahead.Add(int64(d)) }

func (c *cluster) worker(name string) (w fsm.Worker) {
	c.machine.Read(func(s *fsm.State, _ uint64) {
		if x := s.WorkerByName(name); x != nil {
			w = *x
		}
	})
	return w
}

func mustDrain(tb testing.TB, s *sequencer.Sequencer, name string, deadline time.Duration) {
	tb.Helper()
	if err := s.Drain(tb.Context(), name, deadline, "new disk"); err != nil {
		tb.Fatalf("draining %s: %v", name, err)
	}
}

func TestADrainedWorkerGetsNothingNewUntilItIsUndrained(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	w1 := attachWorker(t, s, "w1", "i1", 4, succeed)
	mustDrain(t, s, "w1", time.Hour)
	if w := c.worker("w1"); !w.Drains() || w.DrainReason != "new disk" {
		t.Fatalf("after the answer the worker is %+v", w)
	}
	w1.await("the drain", func() bool { return slices.Equal(w1.drains, []bool{true}) })
	id := mustSubmit(t, s, spec{key: "k", n: 20})
	w2 := attachWorker(t, s, "w2", "i1", 2, succeed)
	c.awaitEnd(id)
	for i := range uint32(20) {
		if v := c.task(id, i); v.Worker != w2.id {
			t.Errorf("task %d ran on worker %d", i, v.Worker)
		}
	}

	mustDrain(t, s, "w2", time.Hour)
	if already, err := s.Undrain(t.Context(), "w1"); already || err != nil {
		t.Fatalf("undrain: already %v, %v", already, err)
	}
	w1.await("the undrain", func() bool { return slices.Equal(w1.drains, []bool{true, false}) })
	id = mustSubmit(t, s, spec{key: "l", n: 5})
	c.awaitEnd(id)
	if v := c.task(id, 0); v.Worker != w1.id {
		t.Errorf("after the drain it ran on worker %d", v.Worker)
	}
	if already, err := s.Undrain(t.Context(), "w1"); !already || err != nil {
		t.Errorf("undrain again: already %v, %v", already, err)
	}
}

func TestOnlyAKnownWorkerCanBeDrained(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	for _, err := range []error{
		s.Drain(t.Context(), "nobody", time.Hour, ""),
		func() error { _, err := s.Undrain(t.Context(), "nobody"); return err }(),
	} {
		if r, ok := errors.AsType[*sequencer.RejectedError](err); !ok || r.Reason != fsm.WorkerNotFound {
			t.Errorf("got %v", err)
		}
	}
}

func TestTheNextLeaderContinuesADrain(t *testing.T) {
	t.Parallel()
	c, clock := newCluster(t), new(wallClock)
	c.config = func(cfg *sequencer.Config) { cfg.WallClock = clock.now }
	s, end := c.lead()
	w := attachWorker(t, s, "w1", "i1", 1, hold)
	id := mustSubmit(t, s, spec{key: "k", n: 1})
	w.await("its attempt", func() bool { return len(w.held) == 1 })
	mustDrain(t, s, "w1", time.Minute)
	_ = end()

	s, _ = c.lead()
	w = attachWorker(t, s, "w1", "i1", 1, hold, w.held...)
	other := attachWorker(t, s, "w2", "i1", 1, hold)
	if len(w.stops) > 0 {
		t.Fatalf("before the deadline: %v", w.stops)
	}
	clock.add(2 * time.Minute)
	w.await("the end of its attempt", func() bool {
		return len(w.stops) == 1 && w.stops[0].Reason == dtaskv1.StopReason_STOP_REASON_DRAINED
	})
	w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, w.held[0])
	other.await("the attempt after it", func() bool { return len(other.held) == 1 })
	if v := c.task(id, 0); v.Failures != 0 || v.Losses != 0 || v.Attempt != 2 || v.Worker != other.id {
		t.Errorf("the task is %+v", v)
	}
}

func TestAWorkerThatIgnoresItsDrainDeadlineIsFenced(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		policy *dtaskv1.TaskPolicy
		want   fsm.TaskState
	}{
		"may be repeated":          {&dtaskv1.TaskPolicy{Type: "noop", TimeoutMs: 60_000, KillGraceMs: 20}, fsm.Pending},
		"at most once and started": {&dtaskv1.TaskPolicy{Type: "noop", TimeoutMs: 60_000, Execution: dtaskv1.Execution_EXECUTION_AT_MOST_ONCE}, fsm.Lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.config = func(cfg *sequencer.Config) {
				cfg.TimeoutSlack, cfg.LivenessTimeout, cfg.Lease = 10*time.Millisecond, 500*time.Millisecond, 500*time.Millisecond
			}
			s, _ := c.lead()
			w := attachWorker(t, s, "w1", "i1", 1, hold)
			id := mustSubmit(t, s, spec{key: "k", n: 1, policy: x.policy})
			w.await("its attempt", func() bool { return len(w.held) == 1 })
			a := w.held[0]
			if x.want == fsm.Lost {
				ask := &dtaskv1.Reports{StartRequests: []*dtaskv1.AttemptRef{{Job: uint64(a.Job), Task: a.Index, Attempt: a.Attempt}}}
				if err := s.Report(t.Context(), w.id, w, ask, false); err != nil {
					t.Fatal(err)
				}
				w.await("its start grant", func() bool { return len(w.begins) == 1 })
			}
			mustDrain(t, s, "w1", 0)
			c.await("the end of the attempt", func() bool { return c.task(id, 0).State == x.want })
			w.await("the stops", func() bool { return len(w.stops) == 2 })
			if v := c.task(id, 0); v.Failures != 0 {
				t.Errorf("it counted as a retry: %+v", v)
			}
			if err := s.Audit(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAWorkerThatRestartsStaysDrained(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	w := attachWorker(t, s, "w1", "i1", 1, succeed)
	mustDrain(t, s, "w1", time.Hour)
	s.Detach(w.id, w)
	welcome, err := s.Attach(t.Context(), sequencer.Hello{Name: "w1", Incarnation: "i2", Slots: 3}, w)
	if err != nil || !welcome.Draining || welcome.Worker != w.id {
		t.Fatalf("the next process: %+v, %v", welcome, err)
	}
	if x := c.worker("w1"); !x.Drains() || x.Incarnation != "i2" {
		t.Errorf("the worker is %+v", x)
	}
	if err := s.Audit(t.Context()); err != nil {
		t.Error(err)
	}
}
