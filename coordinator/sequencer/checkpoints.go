package sequencer

import (
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// budgetLogInterval limits the log lines about a full checkpoint budget.
const budgetLogInterval = time.Minute

// checkpoints stores the checkpoints of attempts.
type checkpoints struct {
	loggedAt time.Time // when the full budget was last logged
}

// save stores a checkpoint and answers after the commit. An attempt continues
// if its checkpoint is refused.
func (x *checkpoints) save(b *batch, w *worker, c *dtaskv1.Checkpoint) {
	r := b.entry.Do(&fsm.Checkpoint{
		HeldAttempt: fsm.HeldAttempt{AttemptRef: AttemptOf(c.GetAttempt()), Worker: w.id},
		Saved: fsm.SavedCheckpoint{
			Number: c.GetNumber(), Format: fsm.CheckpointFormat(max(0, min(c.GetFormat(), 255))), //nolint:gosec // bounded here
			Data: c.GetData(), File: c.GetFile(), Size: c.GetSize(), SHA256: c.GetSha256(),
		},
	})
	answer := &dtaskv1.CheckpointResult{Attempt: c.GetAttempt(), Number: c.GetNumber()}
	if r != fsm.Accepted && r != fsm.AlreadyAccepted {
		answer.Error = "checkpoint refused: " + r.String()
	}
	if r == fsm.BudgetExceeded && b.now.Sub(x.loggedAt) >= budgetLogInterval {
		x.loggedAt = b.now
		b.cfg.Logger.Warn("checkpoint budget exceeded; tasks continue without", "bytes", b.view.CheckpointBytes(),
			"job_id", c.GetAttempt().GetJob(), "worker", w.name)
	}
	m := b.to(w)
	m.Checkpoints = append(m.Checkpoints, answer)
}
