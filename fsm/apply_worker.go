package fsm

import (
	"slices"
	"strings"
)

// apply makes a worker up. One that is drained stays so.
// Requires: a known name comes with its number, a new one with the next.
// Rejects: OutOfOrder for another number, Malformed for an empty or overlong
// name or address.
// A second copy replaces the worker by itself.
func (o *RegisterWorker) apply(s *State, _ *Effects) Reason {
	if o.malformed() {
		return Malformed
	}
	id, known := s.workerNames.get(o.Name)
	if !known {
		id = s.nextWorker
	}
	if o.ID != id {
		return OutOfOrder
	}
	w := &Worker{
		ID: id, Name: o.Name, Incarnation: o.Incarnation, State: WorkerUp, Slots: o.Slots,
		Labels:    slices.SortedStableFunc(slices.Values(o.Labels), func(a, b Label) int { return strings.Compare(a.Key, b.Key) }),
		Resources: slices.SortedStableFunc(slices.Values(o.Resources), func(a, b Resource) int { return strings.Compare(a.Name, b.Name) }),
		Version:   o.Version, Address: o.Address, UpSince: s.now,
	}
	list := s.writeWorkers()
	if at, found := s.workerAt(id); found {
		w.DrainUntil, w.DrainReason = list[at].DrainUntil, list[at].DrainReason
		s.mixWorker(list[at])
		list[at] = w
	} else {
		s.insertWorker(len(list), w) // new numbers are the highest
		s.nextWorker++
		s.workerNames.set(s.own, o.Name, id)
	}
	s.mixWorker(w)
	return Accepted
}

// malformed reports whether a snapshot could not hold the worker, or nobody
// could name it.
func (o *RegisterWorker) malformed() bool {
	if o.Name == "" || o.Incarnation == "" || tooLong(o.Name, o.Incarnation, o.Version, o.Address) {
		return true
	}
	size := 0
	for _, l := range o.Labels {
		size += len(l.Key) + len(l.Value)
	}
	for _, r := range o.Resources {
		size += len(r.Name)
	}
	return size+len(o.Labels)+len(o.Resources) > maxBlob/16
}

// apply makes a worker down. Its attempts are put back by operations of their
// own, as the leader decides for each.
// Rejects: NoSuchWorker, WrongState if it is down, Malformed.
func (o *MarkWorkerDown) apply(s *State, _ *Effects) Reason {
	w := s.worker(o.ID)
	switch {
	case w == nil:
		return WorkerNotFound
	case w.State != WorkerUp:
		return WrongState
	case tooLong(o.Reason):
		return Malformed
	}
	s.mixWorker(w)
	down := *w
	down.State, down.DownSince, down.DownReason = WorkerDown, s.now, o.Reason
	at, _ := s.workerAt(o.ID)
	s.writeWorkers()[at] = &down
	s.mixWorker(&down)
	return Accepted
}

// apply removes workers that are down. Numbers are not used again. What is
// refused stays; the others go.
func (o *ForgetWorkers) apply(s *State, _ *Effects) Reason {
	_, first := s.forgetWorkers(o.IDs)
	return first
}

// forgetWorkers removes workers, and gives those that it has removed and the reason
// of the first refusal.
func (s *State) forgetWorkers(ids []WorkerID) (forgotten []WorkerID, first Reason) {
	gone := make([]bool, len(s.workers))
	forgotten, first = accepted(ids, func(id WorkerID) Reason { return s.forgetWorker(id, gone) })
	if len(forgotten) > 0 {
		s.removeWorkers(gone)
	}
	return forgotten, first
}

// forgetWorker removes a worker, but for its place in the list: it is marked in
// gone.
// Rejects: NoSuchWorker, WrongState unless it is down and holds no attempt.
func (s *State) forgetWorker(id WorkerID, gone []bool) Reason {
	at, found := s.workerAt(id)
	switch {
	case !found || gone[at]:
		return WorkerNotFound
	case s.workers[at].State != WorkerDown || s.heldBy[at] != 0:
		return WrongState
	}
	w := s.workers[at]
	s.mixWorker(w)
	s.workerNames.delete(s.own, w.Name)
	gone[at] = true
	return Accepted
}
