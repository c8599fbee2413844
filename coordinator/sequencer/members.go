package sequencer

import (
	"context"

	"github.com/dtask/dtask/fsm"
)

// Admit records the instance that a server id belongs to, and what else is
// known of it. Errors: *RejectedError with WrongState if the id belongs to
// another instance, *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) Admit(ctx context.Context, r fsm.Replica) error {
	_, err := apply(ctx, s.inbox, classWorker, &r, nil)
	return err
}

// ChangeLevel proposes the change of the feature level that decide returns for the
// present level; nothing if it returns nil. Errors as for Admit.
func (s *Sequencer) ChangeLevel(ctx context.Context, decide func(level fsm.Level, held bool) *fsm.SetLevel) error {
	op, err := do(ctx, s.inbox, classWorker, func(b *batch) (*fsm.SetLevel, error) {
		op := decide(b.view.Level(), b.view.LevelHeld())
		if op == nil {
			return nil, nil
		}
		_, err := settled(b.entry.Do(op), false)
		return op, err
	})
	if err == nil && op != nil {
		s.cfg.Logger.InfoContext(ctx, "feature level set", "feature_level", uint32(op.Level), "held", op.Held)
	}
	return err
}

// SetClusterName names the cluster; empty removes its name. already means that it has this
// name. Errors: *RejectedError with Malformed or AboveLevel, *BusyError, ErrTermEnded,
// ErrOutcomeUnknown.
func (s *Sequencer) SetClusterName(ctx context.Context, name string) (already bool, err error) {
	return do(ctx, s.inbox, classWorker, func(b *batch) (bool, error) {
		r := b.entry.Do(&fsm.SetClusterName{Name: name})
		return settled(r, r == fsm.AlreadyEnded)
	})
}

// RecordAuditHeads records heads of audit logs, at the time of the entry, and returns those
// that the state rejects: the logs were cut or changed. Heads that the state has are not
// proposed. Errors: *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) RecordAuditHeads(ctx context.Context, heads ...fsm.AuditHead) (rejected []fsm.AuditHead, err error) {
	return do(ctx, s.inbox, classWorker, func(b *batch) (rejected []fsm.AuditHead, err error) {
		for _, h := range heads {
			last, known := b.view.AuditHead(h.ServerID)
			if known && last.Seq == h.Seq && last.Hash == h.Hash {
				continue
			}
			h.AtMS = b.entry.NowMS()
			r := b.entry.Do(&fsm.RecordAuditHead{AuditHead: h})
			if r == fsm.OutOfOrder {
				rejected = append(rejected, h)
			} else if r != fsm.Accepted {
				return nil, &RejectedError{Reason: r}
			}
		}
		return rejected, nil
	})
}

// Founded reports whether this term founded the cluster.
func (s *Sequencer) Founded() bool { return s.founded }
