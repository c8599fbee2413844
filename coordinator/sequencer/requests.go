package sequencer

import (
	"context"

	"github.com/dtask/dtask/fsm"
)

// CancelJob ends the ordinary tasks of a job that has not ended; its clean-up
// tasks run then. already means that it had been cancelled before. Errors:
// *RejectedError with NoSuchJob or AlreadyEnded, *BusyError, ErrTermEnded,
// ErrOutcomeUnknown.
func (s *Sequencer) CancelJob(ctx context.Context, id fsm.JobID, reason string) (already bool, err error) {
	return s.request(ctx, classCancel, &fsm.CancelJob{Job: id, Reason: reason}, func() bool {
		job, _ := s.view.Job(id)
		return job.State == fsm.JobCancelled || job.CleaningUp() && job.Outcome == fsm.JobCancelled
	})
}

// CancelJobNow ends all tasks of a job that has not ended, clean-up tasks too.
// already and errors as for CancelJob.
func (s *Sequencer) CancelJobNow(ctx context.Context, id fsm.JobID, reason string) (already bool, err error) {
	return s.request(ctx, classCancel, &fsm.CancelJob{Job: id, Reason: reason, IncludeCleanup: true}, func() bool {
		job, _ := s.view.Job(id)
		return job.State == fsm.JobCancelled
	})
}

// CancelTask ends a task that has not ended, and with it all that depend on it.
// Errors as CancelJob, and NoSuchTask.
func (s *Sequencer) CancelTask(ctx context.Context, t fsm.TaskRef, reason string) (already bool, err error) {
	return s.request(ctx, classCancel, &fsm.CancelTask{Task: t, Reason: reason}, func() bool {
		task, _ := s.view.Task(t)
		return task.State == fsm.Cancelled
	})
}

// CancelArray ends the tasks of an array that have not ended, as CancelTask does;
// t is one of them.
func (s *Sequencer) CancelArray(ctx context.Context, t fsm.TaskRef, reason string) (already bool, err error) {
	return s.request(ctx, classCancel, &fsm.CancelTask{Task: t, Reason: reason, WholeArray: true}, func() bool {
		for _, a := range s.view.Arrays(t.Job) {
			for i := a.First; i < a.First+a.Count && a.First <= t.Index && t.Index < a.First+a.Count; i++ {
				if task, _ := s.view.Task(fsm.TaskRef{Job: t.Job, Index: i}); task.State != fsm.Cancelled && task.State != fsm.Completed {
					return false
				}
			}
		}
		return true
	})
}

// Retry lets a job go on with tasks that ended without completing; tasks are
// ascending indexes, none means all. Errors: *RejectedError with NoSuchJob,
// NoSuchTask or WrongState, *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) Retry(ctx context.Context, id fsm.JobID, tasks []uint32) error {
	_, err := s.request(ctx, classCancel, &fsm.Revive{Job: id, Tasks: tasks}, nil)
	return err
}

// Purge takes dead letters of a job out of the queue; tasks and errors as for
// Retry.
func (s *Sequencer) Purge(ctx context.Context, id fsm.JobID, tasks []uint32) error {
	_, err := s.request(ctx, classCancel, &fsm.Purge{Job: id, Tasks: tasks}, nil)
	return err
}

// Admit records which instance a server id belongs to, and what else is known of
// it. Errors: *RejectedError with WrongState if it belongs to another one,
// *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) Admit(ctx context.Context, r fsm.Replica) error {
	_, err := s.request(ctx, classWorker, &r, nil)
	return err
}

// request is one operation and its answer.
type request struct {
	op     fsm.Op
	was    func() bool        // of an AlreadyEnded: it ended as this request wants
	answer chan requestResult // size 1: the asker may have gone
}

type requestResult struct {
	already bool
	err     error
}

func (s *Sequencer) request(ctx context.Context, c class, op fsm.Op, was func() bool) (already bool, err error) {
	q := &request{op: op, was: was, answer: make(chan requestResult, 1)}
	if err := s.inbox.put(c, q); err != nil {
		return false, err
	}
	select {
	case r := <-q.answer:
		return r.already, r.err
	case <-ctx.Done():
		return false, cause(ctx)
	}
}

func (q *request) refuse(err error) { q.answer <- requestResult{err: err} }

func (q *request) run(_ *Sequencer, b *batch) bool {
	r := b.draft.Do(q.op)
	result := requestResult{already: r == fsm.AlreadyEnded && q.was != nil && q.was()}
	if r != fsm.Accepted && !result.already {
		result.err = &RejectedError{Reason: r}
	}
	b.then(func(_ uint64, err error) {
		if err != nil {
			result = requestResult{err: err}
		}
		q.answer <- result
	})
	return true
}
