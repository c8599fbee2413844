package api

import (
	"context"
	"slices"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/statetext"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Retry implements JobService.
//
// The key makes it take effect once. A task that runs again, or has completed, since
// its job was last retried is left alone, whatever the key: it was retried already.
func (j *jobs) Retry(ctx context.Context, r *dtaskv1.RetryRequest) (*dtaskv1.RetryResponse, error) {
	done, err := j.once(ctx, r, func(c change) (sequencer.ChangeResult, error) {
		s, err := j.selectTasks(ctx, c, r.GetTasks())
		if err != nil {
			return sequencer.ChangeResult{}, err
		}
		return j.retry(ctx, s)
	})
	if err != nil {
		return nil, err
	}
	job, err := j.changedJob(r.GetJob(), done)
	return &dtaskv1.RetryResponse{Job: job, Version: done.Version, Existed: done.Existed}, err
}

// retry retries what was selected and was not retried already.
func (j *jobs) retry(ctx context.Context, s *selection) (sequencer.ChangeResult, error) {
	unchanged := sequencer.ChangeResult{Version: s.job.Version}
	tasks := slices.DeleteFunc(slices.Clone(s.tasks), s.retried)
	if len(tasks) == 0 && len(s.tasks) > 0 {
		return unchanged, nil
	}
	done, err := s.leader.Revive(ctx, fsm.Revive{Job: s.id, Tasks: tasks, Precondition: s.required}, s.generated)
	if explained := j.explainPrecondition(&s.change, err); explained != nil {
		return done, explained
	}
	switch {
	case isRejected(err, fsm.WrongState):
		return unchanged, j.explainNotRetried(s.id, tasks, err)
	case isRejected(err, fsm.RunOpen):
		return unchanged, j.openKey(s.job.Header)
	case isRejected(err, fsm.NeedUnmet):
		return unchanged, j.explainUnmetNeed(s.id, err)
	}
	return done, err
}

// retried reports whether a task runs again, or has completed, since its job was last
// retried.
func (s *selection) retried(i uint32) bool {
	t := s.task(i)
	return s.job.RevivedMS > 0 && (!t.State.Terminal() || (t.State == fsm.Completed && t.EndedMS >= s.job.RevivedMS))
}

// explainNotRetried explains the rejection of a retry by the current state, which is at
// least as new as the one that rejected it. It returns nil if all tasks run again
// already, and the rejection itself if it has no reason any longer.
func (j *jobs) explainNotRetried(id fsm.JobID, tasks []uint32, rejection error) error {
	st, _ := j.cfg.Machine.Fork()
	job, ok := st.Job(id)
	if !ok {
		return jobNotFound(id)
	}
	if job.CleaningUp() {
		return conflict("cleanup tasks of job %d are running: retry it when they have ended, or cancel it with now first", id)
	}
	if len(tasks) == 0 {
		switch {
		case job.Failed()+job.Counts[fsm.Cancelled] > 0 && job.State != fsm.JobCompleted:
			return rejection
		case job.RevivedMS > 0:
			return nil
		case job.State == fsm.JobCompleted:
			return conflict("job %d has completed: nothing to retry", id)
		}
		return conflict("job %d %s and has no failed tasks: nothing to retry", id, statetext.Predicate(job.State.String()))
	}
	for _, i := range tasks {
		ref := fsm.TaskRef{Job: id, Index: i}
		switch t, _ := st.Task(ref); {
		case t.State == fsm.Completed:
			return conflict("%s has completed: nothing to retry", describeTask(st, ref))
		case !t.State.Terminal():
			return conflict("%s has not ended: it %s", describeTask(st, ref), statetext.Predicate(t.State.String()))
		}
	}
	if stuck, ok := st.Stuck(id, tasks); ok {
		task, dep := describeTask(st, stuck.Task), quote(st.Name(stuck.Dependency))
		t, _ := st.Task(stuck.Dependency)
		state := statetext.Predicate(t.State.String())
		if stuck.Needless {
			return conflict("%s is not needed: %s %s; retry the whole job, or submit it again", task, dep, state)
		}
		return conflict("%s depends on %s, which %s: retry that one too, or the whole job", task, dep, state)
	}
	return rejection
}
