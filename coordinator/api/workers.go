package api

import (
	"context"
	"strconv"

	"google.golang.org/protobuf/proto"

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

// ListWorkers implements AdminService. The leader knows how many attempts each
// worker holds now; another replica, for a stale listing, has the replicated
// state's count.
func (c *admin) ListWorkers(ctx context.Context, r *dtaskv1.ListWorkersRequest) (*dtaskv1.ListWorkersResponse, error) {
	limit, after, err := workersPage(r)
	if err != nil {
		return nil, err
	}
	if !r.GetStale() {
		if err := c.Confirm(ctx); err != nil {
			return nil, err
		}
	}
	st, _ := c.cfg.Machine.Fork()
	page, ids := someWorkers(st, r.GetName(), after, limit+1) // one more shows that there are more
	known := c.statuses(st, ids)
	resp := &dtaskv1.ListWorkersResponse{}
	for i, size := 0, 0; i < len(page); i++ {
		if i == limit || size > maxPage {
			resp.NextPageToken = resp.GetWorkers()[i-1].GetId()
			break
		}
		view := showWorker(page[i], known[page[i].ID])
		size += proto.Size(view)
		resp.Workers = append(resp.Workers, view)
	}
	return resp, nil
}

// workersPage reads where a page of workers begins and how many it has at most.
func workersPage(r *dtaskv1.ListWorkersRequest) (limit int, after fsm.WorkerID, err error) {
	if limit = int(r.GetLimit()); limit == 0 {
		limit = defaultListed
	}
	if limit > maxListed {
		return 0, 0, invalid("limit: %d is too many; send 1 to %d, or 0 for %d", r.GetLimit(), maxListed, defaultListed)
	}
	if token := r.GetPageToken(); token != "" {
		id, err := strconv.ParseUint(token, 10, 32)
		if err != nil {
			return 0, 0, invalid("page_token: %s is none; send the one of the answer before", quote(token))
		}
		after = fsm.WorkerID(id)
	}
	return limit, after, nil
}

// someWorkers are up to most workers after a number, and their numbers; only the
// one of a name unless that is empty.
func someWorkers(st *fsm.State, name string, after fsm.WorkerID, most int) (list []*fsm.Worker, ids []fsm.WorkerID) {
	if name != "" {
		if w := st.WorkerByName(name); w != nil && w.ID > after {
			return []*fsm.Worker{w}, []fsm.WorkerID{w.ID}
		}
		return nil, nil
	}
	for w := range st.WorkersAfter(after) {
		if len(list) == most {
			break
		}
		list, ids = append(list, w), append(ids, w.ID)
	}
	return list, ids
}

// statuses are what the leader knows of workers now, asked after the state was
// looked at: of one that drains, nothing is given to it any more; or without it
// how many attempts each holds.
func (c *admin) statuses(st *fsm.State, ids []fsm.WorkerID) map[fsm.WorkerID]sequencer.WorkerStatus {
	if len(ids) == 0 {
		return nil
	}
	if l := c.cfg.Leader(); l != nil {
		if known := l.Workers(ids...); known != nil {
			return known
		}
	}
	held := make(map[fsm.WorkerID]sequencer.WorkerStatus, len(ids))
	for _, id := range ids {
		held[id] = sequencer.WorkerStatus{Held: st.LiveAttempts(id)}
	}
	return held
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
