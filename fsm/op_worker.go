package fsm

import (
	"fmt"
	"slices"
	"strings"
)

// RegisterWorker marks a worker up. If it was up as another incarnation, the
// attempts of that one must have been requeued before.
type RegisterWorker struct {
	ID          WorkerID // the name's number, or the next one for a new name
	Name        string
	Incarnation string
	Slots       uint32
	Labels      []Label
	Resources   []Resource
	Version     string
	Address     string
}

// Label is a property that a worker declares.
type Label struct{ Key, Value string }

// Resource is an amount of a countable resource, in thousandths of a unit.
type Resource struct {
	Name   string
	Amount int64
}

func (*RegisterWorker) kind() opKind { return 20 }

func (o *RegisterWorker) fields(c *coder) {
	number(c, &o.ID)
	c.str(&o.Name)
	c.str(&o.Incarnation)
	number(c, &o.Slots)
	c.labels(&o.Labels)
	c.resources(&o.Resources)
	c.str(&o.Version)
	c.str(&o.Address)
}

func (c *coder) labels(labels *[]Label) {
	list(c, labels, func(l *Label) {
		c.str(&l.Key)
		c.str(&l.Value)
	})
}

func (c *coder) resources(resources *[]Resource) {
	list(c, resources, func(r *Resource) {
		c.str(&r.Name)
		c.i64(&r.Amount)
	})
}

// apply marks a worker up. If it drains, it continues to drain.
// Requires: a known name comes with its number, a new one with the next.
// Rejects: OutOfOrder for another number, Malformed if a text is empty or too
// long.
// A second copy replaces the worker by an equal one.
func (o *RegisterWorker) apply(s *State, _ *Effects) Reason {
	if o.malformed() {
		return Malformed
	}
	id, known := s.workers.names.get(o.Name)
	if !known {
		id = s.workers.next
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
	list := s.workers.write(s.own)
	if at, found := s.workers.at(id); found {
		w.DrainUntil, w.DrainReason = list[at].DrainUntil, list[at].DrainReason
		s.mixWorker(list[at])
		list[at] = w
	} else {
		s.workers.insert(s.own, len(list), w) // new numbers are the highest
		s.workers.next++
		s.workers.names.set(s.own, o.Name, id)
	}
	s.mixWorker(w)
	s.workerEvent(WorkerUpEvent, w)
	return Accepted
}

// malformed reports whether a snapshot could not hold the worker, or a
// required text is empty.
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

// MarkWorkerDown marks a worker down.
type MarkWorkerDown struct {
	ID     WorkerID
	Reason string
}

func (*MarkWorkerDown) kind() opKind { return 21 }

func (o *MarkWorkerDown) fields(c *coder) {
	number(c, &o.ID)
	c.str(&o.Reason)
}

// apply marks a worker down. The leader proposes other operations for its
// attempts.
// Rejects: WorkerNotFound, WrongState if it is down, Malformed.
func (o *MarkWorkerDown) apply(s *State, _ *Effects) Reason {
	w := s.workers.get(o.ID)
	switch {
	case w == nil:
		return WorkerNotFound
	case w.State != WorkerUp:
		return WrongState
	case tooLong(o.Reason):
		return Malformed
	}
	return s.changeWorker(o.ID, func(w *Worker) {
		w.State, w.DownSince, w.DownReason = WorkerDown, s.now, o.Reason
		s.workerEvent(WorkerDownEvent, w)
	})
}

// changeWorker changes a copy of a worker and stores it.
// Rejects: WorkerNotFound.
func (s *State) changeWorker(id WorkerID, change func(*Worker)) Reason {
	at, found := s.workers.at(id)
	if !found {
		return WorkerNotFound
	}
	list := s.workers.write(s.own)
	w := *list[at]
	s.mixWorker(&w)
	change(&w)
	list[at] = &w
	s.mixWorker(&w)
	return Accepted
}

// retireWorker frees the name of a worker whose identity was revoked. The worker that joins
// under this name later is another one, which gets a number of its own: the logs and the
// attempts of the old one are not its. The old one keeps its number and is called
// NAME#NUMBER until it is forgotten.
func (s *State) retireWorker(w *Worker) {
	name := retiredName(w)
	for { // a worker without an identity may have any name
		if _, taken := s.workers.names.get(name); !taken {
			break
		}
		name += "#"
	}
	s.workers.names.delete(s.own, w.Name)
	s.workers.names.set(s.own, name, w.ID)
	s.changeWorker(w.ID, func(w *Worker) { w.Name = name })
}

// retiredName is the name of a worker whose identity was revoked.
func retiredName(w *Worker) string { return fmt.Sprintf("%s#%d", w.Name, w.ID) }

// ForgetWorkers removes workers that are down. Their numbers are not reused.
type ForgetWorkers struct{ IDs []WorkerID } // ascending

func (*ForgetWorkers) kind() opKind { return 22 }

func (o *ForgetWorkers) fields(c *coder) {
	list(c, &o.IDs, func(id *WorkerID) { number(c, id) })
}

// apply removes all of the workers at once: to remove thousands one by one
// would move the list each time.
// Rejects: WorkerNotFound, WrongState unless all are down and hold no
// attempt, Malformed unless the numbers ascend.
func (o *ForgetWorkers) apply(s *State, _ *Effects) Reason {
	last := WorkerID(0)
	for _, id := range o.IDs {
		at, found := s.workers.at(id)
		switch {
		case id <= last:
			return Malformed
		case !found:
			return WorkerNotFound
		case s.workers.list[at].State != WorkerDown || s.workers.held[at] != 0:
			return WrongState
		}
		last = id
	}
	for _, id := range o.IDs {
		w := s.workers.get(id)
		s.mixWorker(w)
		s.workers.names.delete(s.own, w.Name)
		s.workerEvent(WorkerForgottenEvent, w)
	}
	s.workers.remove(s.own, o.IDs)
	return Accepted
}

// DrainWorker stops new assignments to a worker, up or down, until
// UndrainWorker. A second one replaces deadline and reason.
type DrainWorker struct {
	ID WorkerID
	// Until is when the attempts that still run are ended and requeued, in ms;
	// above 0.
	Until  int64
	Reason string
}

func (*DrainWorker) kind() opKind { return 23 }

func (o *DrainWorker) fields(c *coder) {
	number(c, &o.ID)
	c.i64(&o.Until)
	c.str(&o.Reason)
}

// apply drains a worker. Its attempts are ended by other operations, which
// the leader proposes at the deadline.
// Rejects: WorkerNotFound, Malformed without a deadline or if the reason is
// too long.
// A second copy changes nothing.
func (o *DrainWorker) apply(s *State, _ *Effects) Reason {
	if o.Until <= 0 || tooLong(o.Reason) {
		return Malformed
	}
	return s.changeWorker(o.ID, func(w *Worker) {
		w.DrainUntil, w.DrainReason = o.Until, o.Reason
		s.workerEvent(WorkerDrainEvent, w)
	})
}

// UndrainWorker allows new assignments to a worker again.
type UndrainWorker struct{ ID WorkerID }

func (*UndrainWorker) kind() opKind { return 24 }

func (o *UndrainWorker) fields(c *coder) { number(c, &o.ID) }

// apply ends the drain of a worker.
// Rejects: WorkerNotFound, AlreadyEnded if it does not drain.
func (o *UndrainWorker) apply(s *State, _ *Effects) Reason {
	if w := s.workers.get(o.ID); w != nil && !w.Drains() {
		return AlreadyEnded
	}
	return s.changeWorker(o.ID, func(w *Worker) {
		w.DrainUntil, w.DrainReason = 0, ""
		s.workerEvent(WorkerUndrainEvent, w)
	})
}
