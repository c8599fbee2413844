package sequencer

import (
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// budgetLogEvery is how often the log says that there is no room for checkpoints.
const budgetLogEvery = time.Minute

// checkpoint saves how far an attempt has come and answers once that is
// committed. Nothing hangs on it: an attempt whose checkpoint is refused goes on.
func (s *Sequencer) checkpoint(b *batch, w *worker, c *dtaskv1.Checkpoint) {
	r := b.draft.Do(&fsm.Checkpoint{
		HeldAttempt: fsm.HeldAttempt{AttemptRef: AttemptOf(c.GetAttempt()), Worker: w.id},
		Saved: fsm.SavedCheckpoint{
			Number: c.GetNumber(), Format: fsm.CheckpointFormat(max(0, min(c.GetFormat(), 255))), //nolint:gosec // bounded here
			Data: c.GetData(), File: c.GetFile(), Size: c.GetSize(), SHA256: c.GetSha256(),
		},
	})
	answer := &dtaskv1.CheckpointResult{Attempt: c.GetAttempt(), Number: c.GetNumber()}
	if r != fsm.Accepted && r != fsm.AlreadyAccepted {
		answer.Error = "the checkpoint is refused: " + r.String()
	}
	if r == fsm.BudgetExceeded && b.now.Sub(s.budgetAt) >= budgetLogEvery {
		s.budgetAt = b.now
		s.cfg.Logger.Warn("no room for another checkpoint: tasks go on without", "bytes", s.view.CheckpointBytes(),
			"job_id", c.GetAttempt().GetJob(), "worker", w.name)
	}
	m := b.to(w.session)
	m.Checkpoints = append(m.Checkpoints, answer)
}
