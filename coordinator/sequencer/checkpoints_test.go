package sequencer_test

import (
	"testing"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func (c *cluster) checkpoint(id fsm.JobID, i uint32) (saved string) {
	c.machine.Read(func(s *fsm.State, _ uint64) {
		if v, ok := s.Checkpoint(fsm.TaskRef{Job: id, Index: i}); ok {
			saved = string(v.Data)
		}
	})
	return saved
}

func checkpointOf(a fsm.AttemptRef, number uint32, data string) *dtaskv1.Checkpoint {
	return &dtaskv1.Checkpoint{
		Attempt: &dtaskv1.AttemptRef{Job: uint64(a.Job), Task: a.Index, Attempt: a.Attempt}, Number: number,
		Format: dtaskv1.CheckpointFormat_CHECKPOINT_FORMAT_DATA, Data: []byte(data), Size: int64(len(data)),
	}
}

func (w *fakeWorker) save(list ...*dtaskv1.Checkpoint) {
	w.t.Helper()
	if err := w.seq.Report(w.t.Context(), w.id, w, &dtaskv1.Reports{Checkpoints: list}, false); err != nil {
		w.t.Fatalf("report: %v", err)
	}
}

func TestACheckpointIsAnsweredAfterCommitAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, end := c.lead()
	w := attachWorker(t, s, "w1", "i1", 1, hold)
	id := mustSubmit(t, s, spec{key: "k", n: 1})
	w.await("its attempt", func() bool { return len(w.held) == 1 })
	a := w.held[0]
	resume := c.log.pause()
	w.save(checkpointOf(a, 1, "half"))
	if len(w.saved) > 0 {
		t.Error("answered before the commit")
	}
	resume()
	w.await("the answer", func() bool { return len(w.saved) == 1 })
	w.save(checkpointOf(a, 1, "half"))
	w.await("the second answer", func() bool { return len(w.saved) == 2 })
	stale := a
	stale.Attempt++
	w.save(checkpointOf(stale, 1, "zombie"), checkpointOf(a, 2, string(make([]byte, 64<<10+1))))
	w.await("the refusals", func() bool { return len(w.saved) == 4 })
	for i, answer := range w.saved {
		if (answer.GetError() == "") != (i < 2) {
			t.Errorf("answer %d: %v", i, answer)
		}
	}
	_ = end()

	s, _ = c.lead()
	attachWorker(t, s, "w1", "i2", 1, hold) // its process was killed
	if got := c.checkpoint(id, 0); got != "half" {
		t.Errorf("the next leader has checkpoint %q", got)
	}
	c.await("the second attempt", func() bool { return c.task(id, 0).Attempt == 2 })
	if got := c.checkpoint(id, 0); got != "half" {
		t.Errorf("the second attempt starts with checkpoint %q", got)
	}
}

func TestACheckpointMayArriveWithTheOutcomeOfItsAttempt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	w := attachWorker(t, s, "w1", "i1", 1, hold)
	id := mustSubmit(t, s, spec{key: "k", n: 1})
	w.await("its attempt", func() bool { return len(w.held) == 1 })
	last := checkpointOf(w.held[0], 7, "last")
	r := &dtaskv1.Reports{
		Checkpoints: []*dtaskv1.Checkpoint{last},
		Outcomes:    outcomesOf(1, ended{at: w.held[0], how: &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, ExitCode: 1}}),
	}
	if err := s.Report(t.Context(), w.id, w, r, false); err != nil {
		t.Fatal(err)
	}
	c.await("the second attempt", func() bool { return c.task(id, 0).Attempt == 2 })
	if got := c.checkpoint(id, 0); got != "last" {
		t.Errorf("the second attempt starts with checkpoint %q", got)
	}
}
