package api

import (
	"context"
	"errors"
	"slices"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxNamed bounds the tasks that one call of Retry or PurgeDeadLetters names.
const maxNamed = 10_000

// Retry implements JobService.
//
// A caller that was not told the outcome repeats the call. So a task that goes
// on, or has completed, since its job was last brought back counts as retried
// and is left alone: what was asked for is so. A repeat that comes so late that
// the task has failed again brings it back once more.
func (j *jobs) Retry(ctx context.Context, r *dtaskv1.RetryRequest) (*dtaskv1.RetryResponse, error) {
	s, err := j.choose(ctx, r.GetJob(), r.GetTasks())
	if err != nil {
		return nil, err
	}
	left := slices.DeleteFunc(slices.Clone(s.tasks), s.retried)
	if len(left) > 0 || len(s.tasks) == 0 {
		err = s.leader.Retry(ctx, s.job.ID, left)
	}
	if isWrongState(err) {
		err = j.whyNotRetried(s.job.ID, left, err)
	}
	if err != nil {
		return nil, err
	}
	view, err := j.jobView(ctx, s.job.ID)
	return &dtaskv1.RetryResponse{Job: view}, err
}

// A choice is some tasks of a job, or all of it, for the leader to change.
type choice struct {
	leader Leader
	st     *fsm.State // as confirmed by a quorum
	job    fsm.Job
	tasks  []uint32 // ascending; none means all
}

// choose looks up what a request names. Ids of tasks are looked up here, so
// that "no such task" must not come from a leader that was deposed.
func (j *jobs) choose(ctx context.Context, job string, names []string) (*choice, error) {
	id, err := jobID(job)
	if err != nil {
		return nil, err
	}
	if len(names) > maxNamed {
		return nil, invalid("tasks: are %d; send at most %d, or none for all", len(names), maxNamed)
	}
	leader := j.cfg.Leader()
	if leader == nil {
		return nil, errNotLeader
	}
	if err = j.Confirm(ctx); err != nil {
		return nil, err
	}
	st, _ := j.cfg.Machine.Fork()
	s := &choice{leader: leader, st: st}
	var ok bool
	if s.job, ok = st.Job(id); !ok {
		return nil, j.unchangeable(id, &sequencer.RejectedError{Reason: fsm.JobNotFound})
	}
	s.tasks, err = findTasks(ctx, st, s.job, names)
	return s, err
}

// findTasks finds tasks by the ids that their user gave to them, in one pass
// over the job. Indexes are ascending, each once.
func findTasks(ctx context.Context, st *fsm.State, job fsm.Job, names []string) ([]uint32, error) {
	if len(names) == 0 {
		return nil, nil
	}
	missing := make(map[string]bool, len(names))
	for _, name := range names {
		missing[name] = true
	}
	found := failedOf(st, job, missing)
	for i := range job.Total {
		if len(missing) == 0 {
			break
		}
		if i%walkStride == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if name := st.Name(fsm.TaskRef{Job: job.ID, Index: i}); missing[name] {
			delete(missing, name)
			found = append(found, i)
		}
	}
	for _, name := range names {
		if !missing[name] {
			continue
		}
		ref, ok := st.FindTask(job.ID, name) // run[2] stands for the chunk run[1-4]
		if !ok {
			return nil, noSuchTask(st, job.ID, name)
		}
		found = append(found, ref.Index)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// failedOf gives the tasks that ended without completing of the arrays that are
// named, and strikes those with any off the names; one without, which has none to
// give, is not known.
func failedOf(st *fsm.State, job fsm.Job, names map[string]bool) []uint32 {
	var found []uint32
	for _, a := range st.Arrays(job.ID) {
		if !names[a.Name] {
			continue
		}
		for i := a.First; i < a.First+a.Count; i++ {
			t, _ := st.Task(fsm.TaskRef{Job: job.ID, Index: i})
			if t.State.Terminal() && t.State != fsm.Completed {
				delete(names, a.Name)
				found = append(found, i)
			}
		}
	}
	return found
}

// retried reports whether a task goes on or has completed since its job was
// last brought back.
func (s *choice) retried(i uint32) bool {
	if s.job.RevivedMS == 0 {
		return false
	}
	t, _ := s.st.Task(fsm.TaskRef{Job: s.job.ID, Index: i})
	return !t.State.Terminal() || (t.State == fsm.Completed && t.EndedMS >= s.job.RevivedMS)
}

func isWrongState(err error) bool {
	rejected, ok := errors.AsType[*sequencer.RejectedError](err)
	return ok && rejected.Reason == fsm.WrongState
}

// whyNotRetried says what the refusal of a retry means, by the state as it is
// now, which is at least as new as the one that was refused. It gives nil if
// all goes on already, and the refusal itself if nothing is wrong any more.
func (j *jobs) whyNotRetried(id fsm.JobID, tasks []uint32, refusal error) error {
	st, _ := j.cfg.Machine.Fork()
	job, ok := st.Job(id)
	if !ok {
		return noSuchJob(id)
	}
	if job.CleaningUp() {
		return conflict("the clean-up tasks of job %d run: retry it when they have ended, or cancel it with now first", id)
	}
	if len(tasks) == 0 {
		switch {
		case job.Failed()+job.Counts[fsm.Cancelled] > 0:
			return refusal
		case job.RevivedMS > 0:
			return nil
		case job.State == fsm.JobCompleted:
			return conflict("job %d has completed: there is nothing to retry", id)
		}
		return conflict("job %d goes on and no task of it has failed: there is nothing to retry", id)
	}
	for _, i := range tasks {
		ref := fsm.TaskRef{Job: id, Index: i}
		switch t, _ := st.Task(ref); {
		case t.State == fsm.Completed:
			return conflict("task %s of job %d has completed: there is nothing to retry", quote(st.Name(ref)), id)
		case !t.State.Terminal():
			return conflict("task %s of job %d has not ended: it is %s", quote(st.Name(ref)), id, t.State)
		}
	}
	if task, dep, ok := leftBehind(st, id, tasks); ok {
		t, _ := st.Task(dep)
		return conflict("task %s of job %d depends on %s, which is %s and would stay behind: retry that one too, or the whole job",
			quote(st.Name(task)), id, quote(st.Name(dep)), t.State)
	}
	return refusal
}

// staysBehind finds, of a task or the array that it stands for, one that ended
// without completing and does not come back.
func staysBehind(st *fsm.State, head fsm.TaskRef, back []bool) (fsm.TaskRef, bool) {
	for n := range st.Span(head) {
		ref := fsm.TaskRef{Job: head.Job, Index: head.Index + n}
		t, _ := st.Task(ref)
		if t.State.Terminal() && t.State != fsm.Completed && !back[ref.Index] {
			return ref, true
		}
	}
	return fsm.TaskRef{}, false
}

// leftBehind finds the first of some tasks that could never run again, since it
// depends on one that does not come back. Tasks that were cancelled because of
// others come back by themselves.
func leftBehind(st *fsm.State, id fsm.JobID, tasks []uint32) (task, dep fsm.TaskRef, found bool) {
	back := make([]bool, tasks[len(tasks)-1]+1)
	for i := range uint32(len(back)) { //nolint:gosec // at most a million
		ref := fsm.TaskRef{Job: id, Index: i}
		t, _ := st.Task(ref)
		_, named := slices.BinarySearch(tasks, i)
		if !named && t.State != fsm.Cancelled {
			continue
		}
		back[i] = true
		for _, d := range st.Dependencies(ref) {
			stays, found := staysBehind(st, fsm.TaskRef{Job: id, Index: d}, back)
			if found && named {
				return ref, stays, true
			}
			back[i] = back[i] && !found
		}
	}
	return fsm.TaskRef{}, fsm.TaskRef{}, false
}
