package scheduler

import (
	"cmp"
	"slices"
)

// A worker is what the Scheduler knows of one.
type worker struct {
	id        WorkerID
	slots     uint32 // at most MaxSlots
	used      uint32 // more than slots if capacity shrank, or if some wait for a slot
	waiting   uint32 // as Scheduler.countWaiting left it
	ahead     uint32 // how many more than slots it may be given: see SetAhead
	turn      uint64 // orders equal loads: see Scheduler.draw
	at        int    // in Scheduler.idlest, -1 if it is not there
	accepting bool

	labels []labelID // sorted
	total  []int64   // by resourceID; shorter than those that came later
	taken  []int64   // as long as total at least; more than total if capacity shrank
	held   []holding // what makes up used and taken
}

// A holding counts the attempts of one class on a worker.
type holding struct {
	class ClassID
	n     uint32 // > 0
}

// before orders workers for placement: those that are not full first, then lower
// load first, compared as fractions, then by turn. Only workers with slots are
// compared.
func (w *worker) before(o *worker) bool {
	if full := w.full(); full != o.full() {
		return !full
	}
	a, b := uint64(w.used)*uint64(o.slots), uint64(o.used)*uint64(w.slots)
	if a != b {
		return a < b
	}
	if w.turn != o.turn {
		return w.turn < o.turn
	}
	return w.id < o.id
}

func (w *worker) moved(at int) { w.at = at }

// listed reports whether the worker may be given tasks, room or not.
func (w *worker) listed() bool { return w.at >= 0 }

func (w *worker) totalOf(r resourceID) int64 {
	if int(r) >= len(w.total) {
		return 0
	}
	return w.total[r]
}

func (w *worker) takenOf(r resourceID) int64 {
	if int(r) >= len(w.taken) {
		return 0
	}
	return w.taken[r]
}

// eligible reports whether the worker could run an attempt of this class if it
// were idle.
func (w *worker) eligible(c *class) bool {
	for _, n := range c.needs {
		if n.amount > w.totalOf(n.resource) {
			return false
		}
	}
	return w.labelled(c)
}

func (w *worker) labelled(c *class) bool {
	for _, l := range c.labels {
		if _, ok := slices.BinarySearch(w.labels, l); !ok {
			return false
		}
	}
	return true
}

// full reports whether it takes nothing more of any class.
func (w *worker) full() bool { return w.slots == 0 || w.used >= w.slots+w.ahead }

// fits reports whether it could take one now, but for whether it accepts any.
func (w *worker) fits(c *class) bool {
	if w.used >= w.slots && (!c.ahead || w.full()) {
		return false
	}
	for _, n := range c.needs {
		if n.amount > w.totalOf(n.resource)-w.takenOf(n.resource) {
			return false
		}
	}
	return w.labelled(c)
}

// hold takes what one attempt of the class needs.
func (w *worker) hold(c *class) {
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

// free gives it back and reports whether it was held at all.
func (w *worker) free(c *class) bool {
	i := slices.IndexFunc(w.held, func(h holding) bool { return h.class == c.id })
	if i < 0 {
		return false
	}
	if w.held[i].n--; w.held[i].n == 0 {
		w.held = slices.Delete(w.held, i, i+1)
	}
	w.used--
	for _, n := range c.needs {
		w.taken[n.resource] -= n.amount
	}
	return true
}

// AddWorker makes a worker known, or replaces the capacity of a known one.
//
// A new worker accepts tasks and has none; a known one keeps what it holds and
// whether it accepts. Where it now holds more than its capacity, it takes no
// task that needs what is short until enough was released. w must not be 0.
func (s *Scheduler) AddWorker(w WorkerID, capacity Capacity) {
	wk := s.workers[w]
	if wk == nil {
		wk = &worker{id: w, at: -1, accepting: true, turn: s.draw()}
		s.workers[w] = wk
		at, _ := slices.BinarySearchFunc(s.fleet, w, byID)
		s.fleet = slices.Insert(s.fleet, at, wk)
	}
	s.fleets++

	wk.slots = uint32(min(max(capacity.Slots, 0), MaxSlots)) //nolint:gosec // G115: 0 to MaxSlots
	clear(wk.total)
	for _, q := range normalQuantities(capacity.Resources, MaxAmount) {
		r := s.resource(q.Name)
		for int(r) >= len(wk.total) {
			wk.total = append(wk.total, 0)
		}
		wk.total[r] = q.Amount
	}
	wk.labels = wk.labels[:0]
	for _, l := range normalLabels(capacity.Labels) {
		wk.labels = append(wk.labels, s.label(l))
	}
	slices.Sort(wk.labels)
	s.list(wk)
	s.unblock(wk)
}

// RemoveWorker forgets a worker and all that it held. The attempts that it held
// need no Release, and a Release for them does nothing unless a worker with
// this id is added again before it: then Occupy and Release must agree about the
// new one.
func (s *Scheduler) RemoveWorker(w WorkerID) {
	wk := s.workers[w]
	if wk == nil {
		return
	}
	for _, h := range wk.held {
		for range h.n {
			s.unhold(s.classes[h.class])
		}
	}
	delete(s.workers, w)
	at, _ := slices.BinarySearchFunc(s.fleet, w, byID)
	s.fleet = slices.Delete(s.fleet, at, at+1)
	s.fleets++
	s.waiting -= int(wk.waiting)
	if wk.listed() {
		s.idlest.remove(wk.at)
	}
}

// Accepting reports whether a worker may be given tasks, room or not.
func (s *Scheduler) Accepting(w WorkerID) bool {
	wk := s.workers[w]
	return wk != nil && wk.accepting
}

// SetAccepting says whether a worker may be given new tasks: not while it
// drains or its session is not attached. What it holds stays held. An unknown
// worker is left unknown.
func (s *Scheduler) SetAccepting(w WorkerID, accepting bool) {
	wk := s.workers[w]
	if wk == nil || wk.accepting == accepting {
		return
	}
	wk.accepting = accepting
	s.list(wk)
	s.unblock(wk)
}

// SetAhead lets a worker be given up to n tasks more than it has slots, of
// classes that need nothing but a slot, so that it need not wait for the next
// when one ends. They go there only when no worker has a free slot, and as
// evenly. n is at most MaxSlots; what is held stays held. An unknown worker is
// left unknown.
func (s *Scheduler) SetPrefetch(w WorkerID, n int) {
	wk := s.workers[w]
	if wk == nil {
		return
	}
	wk.ahead = uint32(min(max(n, 0), MaxSlots)) //nolint:gosec // G115: 0 to MaxSlots
	s.list(wk)
	s.unblock(wk)
}

// Occupy takes a slot and the resources of a class on a worker, for an attempt
// that was not assigned by Next: one found at the start of a term. It does so
// whether or not they are free, and does nothing for an unknown worker.
func (s *Scheduler) Occupy(w WorkerID, c ClassID) {
	if wk := s.workers[w]; wk != nil {
		wk.hold(s.classes[c])
		s.classes[c].held++
		s.list(wk)
	}
}

// Release gives back the slot and the resources of one attempt of a class, and
// reports whether the worker held one. If it did not, nothing changes; for a
// known worker that is a fault of the caller.
func (s *Scheduler) Release(w WorkerID, c ClassID) bool {
	wk := s.workers[w]
	if wk == nil || !wk.free(s.classes[c]) {
		return false
	}
	s.unhold(s.classes[c])
	s.list(wk)
	s.unblock(wk)
	return true
}

// list puts a worker where it belongs in the heap after any of its figures has
// changed, or out of it.
func (s *Scheduler) list(w *worker) {
	s.countWaiting(w)
	switch wanted := w.accepting && w.slots > 0; {
	case wanted && w.listed():
		s.idlest.fix(w.at)
	case wanted:
		s.idlest.push(w)
	case w.listed():
		s.idlest.remove(w.at)
	}
}

func byID(w *worker, id WorkerID) int { return cmp.Compare(w.id, id) }
