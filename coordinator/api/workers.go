package api

import (
	"context"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// States of a worker that is up and gets no new work: it holds attempts, or was
// drained by the operator and holds none any longer.
const (
	stateDraining = "draining"
	stateDrained  = "drained"
)

// ListWorkers implements AdminService. The leader knows how many attempts each worker
// holds now; other replicas use the count of the replicated state.
func (a *admin) ListWorkers(ctx context.Context, r *dtaskv1.ListWorkersRequest) (*dtaskv1.ListWorkersResponse, error) {
	token, err := parsePageToken(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	st, index := a.cfg.Machine.Fork()
	limit, after := pageLimit(r.GetLimit()), fsm.WorkerID(min(token.id, math.MaxUint32)) //nolint:gosec // bounded
	page, ids := selectWorkers(st, caller(ctx), r.GetName(), after, limit+1)             // the last only shows that there are more
	statuses := a.workerStatuses(st, ids)
	resp := &dtaskv1.ListWorkersResponse{Freshness: a.freshness(index)}
	for i, size := 0, 0; i < len(page); i++ {
		if i == limit || size > maxPageBytes {
			resp.NextPageToken = resp.GetWorkers()[i-1].GetId()
			break
		}
		shown := showWorker(page[i], statuses[page[i].ID])
		redact(shown, caller(ctx))
		size += proto.Size(shown)
		resp.Workers = append(resp.Workers, shown)
	}
	return resp, nil
}

// selectWorkers returns at most limit workers with ids above after, and their ids. If
// name is set, it returns only the worker with this name. It omits those that serve no
// namespace of the caller.
func selectWorkers(st *fsm.State, p *auth.Principal, name string, after fsm.WorkerID, limit int) (list []*fsm.Worker, ids []fsm.WorkerID) {
	if name != "" {
		if w := st.WorkerByName(name); w != nil && w.ID > after && servesCaller(w, p) {
			return []*fsm.Worker{w}, []fsm.WorkerID{w.ID}
		}
		return nil, nil
	}
	for w := range st.WorkersAfter(after) {
		if len(list) == limit {
			break
		}
		if !servesCaller(w, p) {
			continue
		}
		list, ids = append(list, w), append(ids, w.ID)
	}
	return list, ids
}

// servesCaller reports whether a worker may run jobs of the caller.
func servesCaller(w *fsm.Worker, p *auth.Principal) bool {
	served := w.Namespaces()
	return served == nil || p.SeesAll() || slices.ContainsFunc(served, p.Sees)
}

// redact removes from a worker what the caller need not know. Submitters and readers get no
// address, and not the reason for a drain, which is written for operators. Only those who
// may submit jobs get the names of secrets, which jobs refer to.
func redact(w *dtaskv1.Worker, p *auth.Principal) {
	if p.Role == auth.Reader {
		w.Secrets = nil
	}
	if p.Role == auth.Reader || p.Role == auth.Submitter {
		w.Address, w.DrainReason = "", ""
	}
}

// workerStatuses returns what the leader knows about workers now, or else the number of
// their attempts. It asks after the state was forked: a worker that the state shows as
// draining gets no work any longer.
func (a *admin) workerStatuses(st *fsm.State, ids []fsm.WorkerID) map[fsm.WorkerID]sequencer.WorkerStatus {
	if len(ids) == 0 {
		return nil
	}
	if l := a.cfg.Leader(); l != nil {
		if known := l.Workers(ids...); known != nil {
			return known
		}
	}
	statuses := make(map[fsm.WorkerID]sequencer.WorkerStatus, len(ids))
	for _, id := range ids {
		statuses[id] = sequencer.WorkerStatus{Held: st.LiveAttempts(id)}
	}
	return statuses
}

// showWorker shows a worker. Attempts that exceed its slots are queued rather than
// running: the worker prefetches them.
func showWorker(w *fsm.Worker, status sequencer.WorkerStatus) *dtaskv1.Worker {
	shown := &dtaskv1.Worker{
		Id: strconv.FormatUint(uint64(w.ID), 10), Name: w.Name, State: w.State.String(), Slots: w.Slots,
		Prefetch: uint32(status.Prefetch), //nolint:gosec // at most 65,535
		UpSince:  w.UpSince, DownSince: w.DownSince, Version: w.Version, Address: w.Address,
		Labels: make(map[string]string, len(w.Labels)), Resources: make(map[string]int64, len(w.Resources)),
		DrainUntil: w.DrainUntil, DrainReason: w.DrainReason,
	}
	shown.Running = min(uint32(status.Held), w.Slots)       //nolint:gosec // a count
	shown.Queued = uint32(status.Held) - shown.GetRunning() //nolint:gosec // a count
	switch {
	case w.State != fsm.WorkerUp:
	case w.Drains() && status.Held == 0:
		shown.State = stateDrained
	case w.Drains() || status.Draining:
		shown.State = stateDraining
	}
	shown.Types, shown.Secrets = w.Types(), w.Secrets()
	for _, l := range w.Labels {
		if fsm.IsOwnLabel(l.Key) {
			continue
		}
		shown.Labels[l.Key] = l.Value
	}
	for _, x := range w.Resources {
		shown.Resources[x.Name] = x.Amount
	}
	return shown
}
