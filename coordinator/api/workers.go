package api

import (
	"context"
	"strconv"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// States of a worker that is up and takes nothing new: it holds attempts, or
// drains by order and holds none any more.
const (
	stateDraining = "draining"
	stateDrained  = "drained"
)

// ListWorkers implements ClusterService. The leader knows how many attempts each
// worker holds; another replica, for a stale listing, counts them.
func (c *cluster) ListWorkers(ctx context.Context, r *dtaskv1.ListWorkersRequest) (*dtaskv1.ListWorkersResponse, error) {
	if !r.GetStale() {
		if err := c.confirm(ctx); err != nil {
			return nil, err
		}
	}
	var known map[fsm.WorkerID]sequencer.WorkerStatus
	if l := c.cfg.Leader(); l != nil {
		known = l.Workers()
	}
	st, _ := c.cfg.Machine.Fork()
	if known == nil {
		var err error
		if known, err = countHeld(ctx, st); err != nil {
			return nil, err
		}
	}
	resp := &dtaskv1.ListWorkersResponse{}
	for w := range st.Workers() {
		resp.Workers = append(resp.Workers, showWorker(w, known[w.ID]))
	}
	return resp, nil
}

func showWorker(w *fsm.Worker, status sequencer.WorkerStatus) *dtaskv1.Worker {
	view := &dtaskv1.Worker{
		Id: strconv.FormatUint(uint64(w.ID), 10), Name: w.Name, State: w.State.String(), Slots: w.Slots,
		Prefetch: uint32(status.Prefetch), //nolint:gosec // at most 65,535
		UpSince:  w.UpSince, DownSince: w.DownSince, Version: w.Version, Address: w.Address,
		Labels: make(map[string]string, len(w.Labels)), Resources: make(map[string]int64, len(w.Resources)),
		DrainUntil: w.DrainUntil, DrainReason: w.DrainReason,
	}
	view.Running = min(uint32(status.Held), w.Slots)      //nolint:gosec // a count
	view.Queued = uint32(status.Held) - view.GetRunning() //nolint:gosec // a count
	switch {
	case w.State != fsm.WorkerUp:
	case w.Drains() && status.Held == 0:
		view.State = stateDrained
	case w.Drains() || status.Draining:
		view.State = stateDraining
	}
	for _, l := range w.Labels {
		view.Labels[l.Key] = l.Value
	}
	for _, x := range w.Resources {
		view.Resources[x.Name] = x.Amount
	}
	return view
}

// countHeld counts the live attempts of each worker from the replicated state.
// Of each job it looks at the tasks up to the last assigned one.
func countHeld(ctx context.Context, st *fsm.State) (map[fsm.WorkerID]sequencer.WorkerStatus, error) {
	held := make(map[fsm.WorkerID]sequencer.WorkerStatus)
	for job := range st.Jobs(0) {
		left := job.Counts[fsm.Assigned]
		for i := uint32(0); i < job.Total && left > 0; i++ {
			if i%walkStride == 0 && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			t, _ := st.Task(fsm.TaskRef{Job: job.ID, Index: i})
			if t.State != fsm.Assigned {
				continue
			}
			left--
			w := held[t.Worker]
			w.Held++
			held[t.Worker] = w
		}
	}
	return held, nil
}
