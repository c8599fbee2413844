package fsm

import (
	"slices"
	"strings"
)

// apply makes a worker up.
// Requires: a known name comes with its number, a new one with the next.
// Rejects: OutOfOrder for another number, Malformed for an empty name.
// A second copy replaces the worker by itself.
func (o *WorkerJoin) apply(s *State, _ *Effects) Reason {
	if o.Name == "" || o.Incarnation == "" {
		return Malformed
	}
	id, known := s.workerNames.get(o.Name)
	if !known {
		id = WorkerID(len(s.workers)) //nolint:gosec // far below 2^32
	}
	if o.ID != id {
		return OutOfOrder
	}
	w := &Worker{
		ID: id, Name: o.Name, Incarnation: o.Incarnation, State: WorkerUp, Slots: o.Slots,
		Labels:    slices.SortedFunc(slices.Values(o.Labels), func(a, b Label) int { return strings.Compare(a.Key, b.Key) }),
		Resources: slices.SortedFunc(slices.Values(o.Resources), func(a, b Resource) int { return strings.Compare(a.Name, b.Name) }),
		Version:   o.Version, Address: o.Address, UpSince: s.now,
	}
	list := s.writeWorkers()
	if known {
		list[id] = w
	} else {
		s.workers = append(list, w)
		s.workerNames.set(s.own, o.Name, id)
	}
	s.mix(uint64(id)<<8 | uint64(WorkerUp))
	s.mixString(o.Name)
	s.mixString(o.Incarnation)
	return Accepted
}

// apply makes a worker down. Its attempts are put back by operations of their
// own, as the leader decides for each.
// Rejects: NoSuchWorker, WrongState if it is down.
func (o *WorkerLeave) apply(s *State, _ *Effects) Reason {
	w := s.worker(o.ID)
	if w == nil {
		return NoSuchWorker
	}
	if w.State != WorkerUp {
		return WrongState
	}
	down := *w
	down.State, down.DownSince, down.DownReason = WorkerDown, s.now, o.Reason
	s.writeWorkers()[o.ID] = &down
	s.mix(uint64(o.ID)<<8 | uint64(WorkerDown))
	s.mixString(w.Incarnation)
	return Accepted
}

// apply removes workers that are down. Numbers are not used again.
// Rejects: NoSuchWorker or WrongState, for the first such; the others go.
func (o *ForgetWorkers) apply(s *State, _ *Effects) Reason {
	first := Accepted
	for _, id := range o.IDs {
		w := s.worker(id)
		r := Accepted
		switch {
		case w == nil:
			r = NoSuchWorker
		case w.State != WorkerDown:
			r = WrongState
		default:
			s.workerNames.delete(s.own, w.Name)
			s.writeWorkers()[id] = nil
			s.mix(uint64(id))
		}
		if first == Accepted {
			first = r
		}
	}
	return first
}
