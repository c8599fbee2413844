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
