package api

import (
	"context"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// jobs is JobService.
type jobs struct {
	dtaskv1.UnimplementedJobServiceServer
	*Server
}

// GetJob implements JobService.
func (j *jobs) GetJob(_ context.Context, r *dtaskv1.GetJobRequest) (*dtaskv1.Job, error) {
	id, err := jobID(r.GetId())
	if err != nil {
		return nil, err
	}
	if !r.GetWithLevels() {
		return j.currentJob(id)
	}
	m, ok, err := j.summary(id)
	if err != nil {
		return nil, err
	}
	if ok {
		return j.summarized(&m), nil
	}
	tasks, index, err := j.openTasks(r.GetId())
	if err != nil {
		return nil, err
	}
	return j.jobOf(tasks, index)
}

// Cancel implements JobService.
func (j *jobs) Cancel(ctx context.Context, r *dtaskv1.CancelRequest) (*dtaskv1.CancelResponse, error) {
	id, err := jobID(r.GetJob())
	if err != nil {
		return nil, err
	}
	leader, err := j.leader()
	if err != nil {
		return nil, err
	}
	var already bool
	switch {
	case r.GetTask() == "":
		already, err = j.cancelJob(ctx, leader, id, r)
	case r.GetNow():
		return nil, invalid("now requires a whole job: leave task empty")
	default:
		already, err = j.cancelTask(ctx, leader, id, r)
	}
	return &dtaskv1.CancelResponse{AlreadyCancelled: already}, err
}

// cancelJob cancels a whole job. The leader decides by its own view, so that nothing is
// read before.
func (j *jobs) cancelJob(ctx context.Context, leader Leader, id fsm.JobID, r *dtaskv1.CancelRequest) (already bool, err error) {
	cancel := leader.CancelJob
	if r.GetNow() {
		cancel = leader.CancelJobNow
	}
	already, err = cancel(ctx, id, r.GetReason())
	if isRejected(err, fsm.AlreadyEnded) {
		return false, j.explainNotCancelled(id, err)
	}
	if isRejected(err, fsm.JobNotFound) {
		if head, ok, _ := j.archivedJob(id); ok && head.State == fsm.JobCancelled {
			return true, nil
		}
	}
	return already, j.explainMissing(id, err)
}

func (j *jobs) cancelTask(ctx context.Context, leader Leader, id fsm.JobID, r *dtaskv1.CancelRequest) (already bool, err error) {
	// The task id is looked up here: a deposed leader must not report an unknown task.
	if err := j.Confirm(ctx); err != nil {
		return false, err
	}
	ref, isArray, err := j.findTaskOrArray(id, r.GetTask())
	if err != nil {
		return false, err
	}
	cancel := leader.CancelTask
	if isArray {
		cancel = leader.CancelArray
	}
	already, err = cancel(ctx, ref, r.GetReason())
	return already, j.explainMissing(id, err)
}

// explainNotCancelled explains why a job can't be cancelled: it has ended, or only its
// cleanup tasks are left.
func (s *Server) explainNotCancelled(id fsm.JobID, rejection error) error {
	err := rejection
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		if job, ok := st.Job(id); ok && job.CleaningUp() {
			err = conflict("the ordinary tasks of job %d have ended as %s and its cleanup tasks are running: let them finish, or cancel it with now", id, job.Outcome)
		}
	})
	return err
}
