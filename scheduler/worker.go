package scheduler

import (
	"cmp"
	"slices"
)

// A worker is the capacity of a worker, and what is taken of it.
type worker struct {
	id        WorkerID
	slots     uint32 // at most MaxSlots
	used      uint32 // above slots if capacity shrank, or if attempts wait for a slot
	waiting   uint32 // attempts that wait for a slot: see Scheduler.updateWaiting
	prefetch  uint32 // attempts that it may hold beyond its slots: see SetPrefetch
	reserved  bool   // it prefetches nothing until it has a free slot: see Scheduler.reserve
	accepting bool
	dedicated bool         // Capacity.Reserved
	turn      uint64       // orders workers of equal load: see Scheduler.draw
	pos       int          // in Scheduler.byLoad; -1 if absent
	kept      *reservation // it is kept free for one task

	labels []labelID     // sorted
	types  []typeID      // sorted; nil: all
	serves []namespaceID // sorted; nil: all
	total  []int64       // by resourceID; may be shorter than the number of resources
	taken  []int64       // by resourceID; above total if capacity shrank
	held   []holding     // the attempts that used and taken count

	byPriority [Urgent + 1]uint32 // the same attempts

	parts   []*affinityPart // ready queues that wait for it because of their keys
	awaited int             // tasks in them
	bound   bool            // it is in affinityWaits.bound

	yields []Yield // attempts that give their places to urgent tasks; mostly none

	share   uint64 // how full it is, while Scheduler.pack exists: see updateShare
	packPos int    // in Scheduler.pack; -1 if absent
}

// A holding counts the attempts of one class on a worker.
type holding struct {
	class ClassID
	n     uint32 // > 0
}

// ranked reports whether the worker may get any task, whatever its free capacity.
func (w *worker) ranked() bool { return w.pos >= 0 }

// usable reports whether the worker may get tasks, if only the one that it is kept for.
func (w *worker) usable() bool { return w.accepting && w.slots > 0 }

// amount returns the amount of a resource in a list that may be too short.
func amount(list []int64, r resourceID) int64 {
	if int(r) >= len(list) {
		return 0
	}
	return list[r]
}

// free returns how much of a resource is not taken, below zero if more is taken
// than there is.
func (w *worker) free(r resourceID) int64 { return amount(w.total, r) - amount(w.taken, r) }

// eligible reports whether the worker could run an attempt of this class if it
// were idle.
func (w *worker) eligible(c *shape) bool {
	for _, n := range c.needs {
		if n.amount > amount(w.total, n.resource) {
			return false
		}
	}
	return w.suits(c)
}

// suits reports whether the worker has the labels that the class requires, handles its
// type of task, serves its namespace, and is not reserved for others.
func (w *worker) suits(c *shape) bool {
	return w.handles(c.typ) && w.servesNamespace(c.namespace) && w.hasLabels(c) && w.meetsAll(c.rules) && (!w.dedicated || c.pooled)
}

func (w *worker) servesNamespace(n namespaceID) bool {
	if w.serves == nil {
		return true
	}
	_, ok := slices.BinarySearch(w.serves, n)
	return ok
}

func (w *worker) handles(t typeID) bool {
	if t == 0 || w.types == nil {
		return true
	}
	_, ok := slices.BinarySearch(w.types, t)
	return ok
}

func (w *worker) hasLabels(c *shape) bool {
	for _, l := range c.labels {
		if _, ok := slices.BinarySearch(w.labels, l); !ok {
			return false
		}
	}
	return true
}

// full reports whether the worker takes no attempt of any class.
func (w *worker) full() bool {
	return w.slots == 0 || w.used >= w.slots && (w.reserved || w.used >= w.slots+w.prefetch)
}

// hasSlot reports whether the worker has a slot for an attempt of the class, or
// may prefetch it.
func (w *worker) hasSlot(c *shape) bool { return w.used < w.slots || c.prefetchable && !w.full() }

// fits reports whether the worker has capacity for an attempt of the class now,
// whether or not it accepts any.
func (w *worker) fits(c *shape) bool {
	return w.hasSlot(c) && w.fitsWithSlot(c)
}

// fitsWithSlot reports whether the worker would have capacity for an attempt of
// the class if it had a slot.
func (w *worker) fitsWithSlot(c *shape) bool {
	for _, n := range c.needs {
		if n.amount > w.free(n.resource) {
			return false
		}
	}
	return w.suits(c)
}

// hold takes what one attempt of the class needs.
func (s *Scheduler) hold(w *worker, c *class, p Priority) {
	s.holdOne(c)
	s.held[p]++
	w.byPriority[p]++
	w.used++
	for _, n := range c.needs {
		for int(n.resource) >= len(w.taken) {
			w.taken = append(w.taken, 0)
		}
		w.taken[n.resource] += n.amount
	}
	for i := range w.held {
		if w.held[i].class == c.id {
			w.held[i].n++
			return
		}
	}
	w.held = append(w.held, holding{c.id, 1})
}

// release undoes hold, and reports whether an attempt of the class was held.
func (s *Scheduler) release(w *worker, id ClassID, p Priority) bool {
	i := slices.IndexFunc(w.held, func(h holding) bool { return h.class == id })
	if i < 0 || w.byPriority[p] == 0 {
		return false
	}
	s.held[p]--
	w.byPriority[p]--
	if w.held[i].n--; w.held[i].n == 0 {
		w.held = slices.Delete(w.held, i, i+1)
	}
	w.used--
	for _, n := range s.classes[id].needs {
		w.taken[n.resource] -= n.amount
	}
	return true
}

// AddWorker adds a worker, or replaces the capacity of a known one. w must not
// be 0.
//
// A new worker accepts tasks and holds none. A known one keeps what it holds,
// and whether it accepts. If it holds more than its new capacity, it gets no
// task that needs what is short until enough was released.
func (s *Scheduler) AddWorker(w WorkerID, capacity Capacity) {
	wk := s.workers[w]
	if wk == nil {
		wk = &worker{id: w, pos: -1, packPos: -1, accepting: true, turn: s.draw()}
		s.workers[w] = wk
		at, _ := slices.BinarySearchFunc(s.sorted, w, byID)
		s.sorted = slices.Insert(s.sorted, at, wk)
	}
	s.version++
	s.reshare = true
	s.fleetChanged()
	s.fleet.remove(wk)

	wk.slots, wk.dedicated = clampSlots(capacity.Slots), capacity.Reserved
	// The lists are new ones: an offerList shares the former ones.
	wk.total, wk.labels, wk.types, wk.serves = nil, nil, nil, nil
	for _, q := range normalQuantities(capacity.Resources, MaxAmount) {
		r := intern(s.resources, q.Name)
		for int(r) >= len(wk.total) {
			wk.total = append(wk.total, 0)
		}
		wk.total[r] = q.Amount
	}
	for _, l := range normalLabels(capacity.Labels) {
		id := s.labelID(l)
		wk.labels = append(wk.labels, id, s.presence[id])
	}
	wk.labels = distinct(wk.labels)
	for _, name := range capacity.Types {
		wk.types = append(wk.types, s.typeID(name))
	}
	slices.Sort(wk.types)
	for _, name := range capacity.Namespaces {
		wk.serves = append(wk.serves, s.namespaceID(name))
	}
	slices.Sort(wk.serves)
	s.fleet.add(wk)
	s.capacityChanged(wk)
	s.unkept = true // it may be kept for a task
}

func clampSlots(n int) uint32 {
	return uint32(min(max(n, 0), MaxSlots)) //nolint:gosec // G115: 0 to MaxSlots
}

// RemoveWorker removes a worker and everything that it held. Its attempts need
// no Release. A Release for one of them does nothing, unless a worker with this
// id is added before: then Occupy and Release must agree about the new one.
func (s *Scheduler) RemoveWorker(w WorkerID) {
	wk := s.workers[w]
	if wk == nil {
		return
	}
	s.removeYields(wk)
	for _, h := range wk.held {
		for range h.n {
			s.freeOne(s.classes[h.class])
		}
	}
	for p, n := range wk.byPriority {
		s.held[p] -= int(n)
	}
	delete(s.workers, w)
	at, _ := slices.BinarySearchFunc(s.sorted, w, byID)
	s.sorted = slices.Delete(s.sorted, at, at+1)
	s.version++
	s.reshare = true
	s.fleetChanged()
	s.fleet.remove(wk)
	s.affinity.bound = slices.DeleteFunc(s.affinity.bound, func(x *worker) bool { return x == wk })
	wk.accepting = false
	if wk.kept != nil {
		s.unkeep(wk.kept)
	}
	s.waiting -= int(wk.waiting)
	if wk.ranked() {
		s.byLoad.remove(wk.pos)
		if s.pack != nil {
			s.rankPacked(wk)
		}
	}
}

// SetAccepting sets whether a worker may get new tasks; it may not while it
// drains or has no session. It keeps what it holds. An unknown worker is
// ignored.
func (s *Scheduler) SetAccepting(w WorkerID, accepting bool) {
	if wk := s.workers[w]; wk != nil && wk.accepting != accepting {
		wk.accepting = accepting
		s.fleetChanged()
		s.capacityChanged(wk)
		s.unkept = s.unkept || accepting
	}
}

// SetPrefetch lets a worker hold up to n attempts more than it has slots, of
// classes that need nothing but a slot, so that a slot need not wait for the
// next attempt. They are placed only if no worker has a free slot, and evenly.
// n is at most MaxSlots. The worker keeps what it holds. An unknown worker is
// ignored.
func (s *Scheduler) SetPrefetch(w WorkerID, n int) {
	if wk := s.workers[w]; wk != nil {
		wk.prefetch = clampSlots(n)
		s.capacityChanged(wk)
	}
}

// Occupy takes a slot and the resources of a class on a worker, for an attempt
// that Next did not assign: one found at the start of a term. They need not be
// free. An unknown worker is ignored. An invalid priority counts as Normal.
func (s *Scheduler) Occupy(w WorkerID, c ClassID, p Priority) {
	if wk := s.workers[w]; wk != nil {
		s.hold(wk, s.classes[c], p.orNormal())
		s.rank(wk)
		if wk.kept != nil {
			s.recheck(wk.kept)
		}
	}
}

// Release frees the slot and the resources of one attempt of a class, with the
// priority with which it was assigned, and reports whether the worker held one.
// If it did not, nothing changes; for a known worker that is a bug of the
// caller.
func (s *Scheduler) Release(w WorkerID, c ClassID, p Priority) bool {
	wk := s.workers[w]
	if wk == nil || !s.release(wk, c, p.orNormal()) {
		return false
	}
	s.freeOne(s.classes[c])
	s.capacityChanged(wk)
	return true
}

// capacityChanged ranks a worker again and unblocks the classes that now fit.
func (s *Scheduler) capacityChanged(w *worker) {
	if w.used < w.slots {
		w.reserved = false
	}
	s.rank(w)
	s.unblock(w)
	if len(w.parts) > 0 && !s.affinity.stale {
		s.wakeKeyed(w)
	}
	if w.kept != nil {
		s.recheck(w.kept)
	}
}

// rank moves a worker to its position in the heap after a change, or in or out
// of the heap.
func (s *Scheduler) rank(w *worker) {
	s.updateWaiting(w)
	switch wanted := w.usable() && w.kept == nil; {
	case wanted && w.ranked():
		s.byLoad.fix(w.pos)
	case wanted:
		s.byLoad.push(w)
	case w.ranked():
		s.byLoad.remove(w.pos)
	}
	if s.pack != nil {
		s.rankPacked(w)
	}
}

func byID(w *worker, id WorkerID) int { return cmp.Compare(w.id, id) }
