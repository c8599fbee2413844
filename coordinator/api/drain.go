package api

import (
	"context"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxDrain bounds the deadline of a drain.
const maxDrain = 366 * 24 * time.Hour

// DrainWorker implements AdminService. A repeated call starts the deadline again.
func (a *admin) DrainWorker(ctx context.Context, r *dtaskv1.DrainWorkerRequest) (*dtaskv1.DrainWorkerResponse, error) {
	if d := r.GetDeadlineMs(); d < 0 || d > maxDrain.Milliseconds() {
		return nil, invalid("invalid deadline_ms %d: must be 0 to %d", d, maxDrain.Milliseconds())
	}
	leader, err := a.leader()
	if err == nil {
		err = leader.Drain(ctx, r.GetName(), time.Duration(r.GetDeadlineMs())*time.Millisecond, r.GetReason())
	}
	if err != nil {
		return nil, explainWorker(err, r.GetName())
	}
	return &dtaskv1.DrainWorkerResponse{Worker: a.currentWorker(leader, r.GetName())}, nil
}

// UndrainWorker implements AdminService.
func (a *admin) UndrainWorker(ctx context.Context, r *dtaskv1.UndrainWorkerRequest) (*dtaskv1.UndrainWorkerResponse, error) {
	leader, err := a.leader()
	already := false
	if err == nil {
		already, err = leader.Undrain(ctx, r.GetName())
	}
	if err != nil {
		return nil, explainWorker(err, r.GetName())
	}
	return &dtaskv1.UndrainWorkerResponse{Worker: a.currentWorker(leader, r.GetName()), AlreadyUndrained: already}, nil
}

// explainWorker names the worker that does not exist.
func explainWorker(err error, name string) error {
	if isRejected(err, fsm.WorkerNotFound) {
		return notFound("worker %s not found", quote(name))
	}
	return err
}

// currentWorker shows a worker after a committed change.
func (a *admin) currentWorker(leader Leader, name string) *dtaskv1.Worker {
	var w *fsm.Worker
	a.cfg.Machine.Read(func(st *fsm.State, _ uint64) { w = st.WorkerByName(name) })
	if w == nil {
		return nil
	}
	return showWorker(w, leader.Workers(w.ID)[w.ID])
}
