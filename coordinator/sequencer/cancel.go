package sequencer

import (
	"context"

	"github.com/dtask/dtask/fsm"
)

// CancelJob ends the ordinary tasks of a job that has not ended; its cleanup
// tasks run afterwards. already means that the job was cancelled before.
// Errors: *RejectedError with JobNotFound or AlreadyEnded, *BusyError,
// ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) CancelJob(ctx context.Context, id fsm.JobID, reason string) (already bool, err error) {
	return apply(ctx, s.inbox, classCancel, &fsm.CancelJob{Job: id, Reason: reason}, func(v *fsm.State) bool {
		job, _ := v.Job(id)
		return job.State == fsm.JobCancelled || job.CleaningUp() && job.Outcome == fsm.JobCancelled
	})
}

// CancelJobNow ends all tasks of a job that has not ended, including cleanup
// tasks. already and errors as for CancelJob.
func (s *Sequencer) CancelJobNow(ctx context.Context, id fsm.JobID, reason string) (already bool, err error) {
	return apply(ctx, s.inbox, classCancel, &fsm.CancelJob{Job: id, Reason: reason, IncludeCleanup: true}, func(v *fsm.State) bool {
		job, _ := v.Job(id)
		return job.State == fsm.JobCancelled
	})
}

// CancelTask ends a task that has not ended, and all tasks that depend on it.
// Errors as for CancelJob, and TaskNotFound.
func (s *Sequencer) CancelTask(ctx context.Context, t fsm.TaskRef, reason string) (already bool, err error) {
	return apply(ctx, s.inbox, classCancel, &fsm.CancelTask{Task: t, Reason: reason}, func(v *fsm.State) bool {
		task, _ := v.Task(t)
		return task.State == fsm.Cancelled
	})
}

// CancelArray ends the tasks of the array that contains t, like CancelTask.
func (s *Sequencer) CancelArray(ctx context.Context, t fsm.TaskRef, reason string) (already bool, err error) {
	return apply(ctx, s.inbox, classCancel, &fsm.CancelTask{Task: t, Reason: reason, WholeArray: true}, func(v *fsm.State) bool {
		a, _ := v.ArrayTask(t)
		for i := a.First; i < a.First+a.Count; i++ {
			if task, _ := v.Task(fsm.TaskRef{Job: t.Job, Index: i}); task.State != fsm.Cancelled && task.State != fsm.Completed {
				return false
			}
		}
		return true
	})
}
