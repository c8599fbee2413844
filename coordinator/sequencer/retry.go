package sequencer

import (
	"context"

	"github.com/dtask/dtask/fsm"
)

// Retry resumes a job with tasks that ended without completing. tasks are ascending
// indexes; none means all of them. Errors: *RejectedError with JobNotFound, TaskNotFound or
// WrongState, *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) Retry(ctx context.Context, id fsm.JobID, tasks []uint32) error {
	_, err := apply(ctx, s.inbox, classCancel, &fsm.Revive{Job: id, Tasks: tasks}, nil)
	return err
}

// Purge removes dead letters of a job from the queue. tasks and errors as for Retry.
func (s *Sequencer) Purge(ctx context.Context, id fsm.JobID, tasks []uint32) error {
	_, err := apply(ctx, s.inbox, classCancel, &fsm.Purge{Job: id, Tasks: tasks}, nil)
	return err
}
