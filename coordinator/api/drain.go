package api

import (
	"context"
	"errors"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxDrain bounds the deadline of a drain.
const maxDrain = 366 * 24 * time.Hour

// DrainWorker implements AdminService. A caller that was not told the outcome
// repeats the call: the drain then ends as much later.
func (c *admin) DrainWorker(ctx context.Context, r *dtaskv1.DrainWorkerRequest) (*dtaskv1.DrainWorkerResponse, error) {
	if d := r.GetDeadlineMs(); d < 0 || d > maxDrain.Milliseconds() {
		return nil, invalid("deadline_ms: %d is out of range; send 0 to %d", d, maxDrain.Milliseconds())
	}
	if n := len(r.GetReason()); n > maxReason {
		return nil, invalid("reason: has %d bytes; send at most %d", n, maxReason)
	}
	leader := c.cfg.Leader()
	if leader == nil {
		return nil, errNotLeader
	}
	err := leader.Drain(ctx, r.GetName(), time.Duration(r.GetDeadlineMs())*time.Millisecond, r.GetReason())
	if err != nil {
		return nil, namedWorker(err, r.GetName())
	}
	return &dtaskv1.DrainWorkerResponse{Worker: c.workerNow(leader, r.GetName())}, nil
}

// UndrainWorker implements AdminService. It is idempotent by nature.
func (c *admin) UndrainWorker(ctx context.Context, r *dtaskv1.UndrainWorkerRequest) (*dtaskv1.UndrainWorkerResponse, error) {
	leader := c.cfg.Leader()
	if leader == nil {
		return nil, errNotLeader
	}
	already, err := leader.Undrain(ctx, r.GetName())
	if err != nil {
		return nil, namedWorker(err, r.GetName())
	}
	return &dtaskv1.UndrainWorkerResponse{Worker: c.workerNow(leader, r.GetName()), AlreadyUndrained: already}, nil
}

// namedWorker says which worker there is not.
func namedWorker(err error, name string) error {
	if r, ok := errors.AsType[*sequencer.RejectedError](err); ok && r.Reason == fsm.WorkerNotFound {
		return notFound("no worker is named %s", quote(name))
	}
	return err
}

// workerNow is how a worker stands after a change that was committed.
func (c *admin) workerNow(leader Leader, name string) *dtaskv1.Worker {
	var now *fsm.Worker
	c.cfg.Machine.Read(func(st *fsm.State, _ uint64) { now = st.WorkerByName(name) })
	if now == nil {
		return nil
	}
	return showWorker(now, leader.Workers(now.ID)[now.ID])
}
