package sequencer

import (
	"context"
	"time"

	"github.com/dtask/dtask/fsm"
)

// ChangeResult is the outcome of a user's change of a job.
type ChangeResult struct {
	Version uint32 // of the job, after the change
	Purged  uint32 // dead letters that were removed
	Existed bool   // the key was known, with the same change
}

// Revive resumes a job with tasks that ended without completing. Generated means
// that a program generated the key. Errors: *RejectedError, *BusyError,
// ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) Revive(ctx context.Context, op fsm.Revive, generated bool) (ChangeResult, error) {
	return s.change(ctx, op.Job, &op.Precondition, generated, func(b *batch) fsm.Reason {
		s.absorb(b) // tasks that became ready must be queued before their entries can be superseded
		r := b.entry.Do(&op)
		s.absorb(b)
		return r
	})
}

// Purge removes dead letters. Parameters and errors are those of Revive.
func (s *Sequencer) Purge(ctx context.Context, op fsm.Purge, generated bool) (ChangeResult, error) {
	return s.change(ctx, op.Job, &op.Precondition, generated, func(b *batch) fsm.Reason { return b.entry.Do(&op) })
}

// change makes a change of a job unless it was made before with the same key;
// then it returns the first outcome.
func (s *Sequencer) change(
	ctx context.Context, id fsm.JobID, p *fsm.Precondition, generated bool, propose func(b *batch) fsm.Reason,
) (ChangeResult, error) {
	return do(ctx, s.inbox, classCancel, func(b *batch) (ChangeResult, error) {
		if r, known, err := FirstOutcome(b.view, id, p); known {
			return r, err
		}
		if p.Key != "" && b.view.Keys() >= s.cfg.MaxKeys {
			return ChangeResult{}, &BusyError{What: "too many idempotency keys in memory", Limit: LimitMemory, RetryAfter: time.Second}
		}
		p.KeyExpires = b.keyExpires(generated)
		if r := propose(b); r != fsm.Accepted {
			return ChangeResult{}, &RejectedError{Reason: r}
		}
		job, _ := b.view.Job(id)
		made, _ := b.view.ChangeOf(p.Key)
		return ChangeResult{Version: job.Version, Purged: made.Purged}, nil
	})
}

// FirstOutcome returns the outcome of an earlier change with the same key. known
// is false if the key is unused. The error is a *RejectedError with KeyConflict
// if the key belongs to another request.
func FirstOutcome(v *fsm.State, id fsm.JobID, p *fsm.Precondition) (r ChangeResult, known bool, err error) {
	if _, _, _, known = v.Key(p.Key); !known {
		return ChangeResult{}, false, nil
	}
	c, isChange := v.ChangeOf(p.Key)
	if !isChange || c.Job != id || c.Digest != p.Digest {
		return ChangeResult{}, true, &RejectedError{Reason: fsm.KeyConflict}
	}
	return ChangeResult{Version: c.Version, Purged: c.Purged, Existed: true}, true, nil
}
