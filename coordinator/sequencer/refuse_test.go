package sequencer_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestALeaderThatRefusesNewJobsFinishesTheOthers(t *testing.T) {
	t.Parallel()
	full := &sequencer.BusyError{What: "full", RetryAfter: time.Second}
	var refuses atomic.Bool
	c := newCluster(t)
	c.config = func(cfg *sequencer.Config) {
		cfg.CheckSubmit = func() error {
			if refuses.Load() {
				return full
			}
			return nil
		}
	}
	s, _ := c.lead()
	w := attachWorker(t, s, "w", "a", 1, hold)
	x := spec{key: "k", n: 2}
	id := mustSubmit(t, s, x)
	unwanted := mustSubmit(t, s, spec{key: "unwanted", n: 1})
	w.await("an assignment", func() bool { return len(w.held) == 1 })

	refuses.Store(true)
	var busy *sequencer.BusyError
	if _, err := s.Submit(t.Context(), spec{key: "k2", n: 1}.submission()); !errors.As(err, &busy) || busy != full {
		t.Errorf("a new job: got %v, want %v", err, full)
	}
	if again, err := s.Submit(t.Context(), x.submission()); err != nil || again.ID != id || !again.Existed {
		t.Errorf("a known key: got %+v, %v", again, err)
	}
	if _, err := s.CancelJob(t.Context(), unwanted, "enough"); err != nil {
		t.Errorf("cancel: %v", err)
	}
	w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, w.held[0])
	w.await("the next assignment", func() bool { return len(w.held) == 2 })
	w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, w.held[1])
	if job := c.awaitEnd(id); job.State != fsm.JobCompleted {
		t.Errorf("the earlier job is %v", job.State)
	}

	refuses.Store(false)
	mustSubmit(t, s, spec{key: "k2", n: 1})
}
