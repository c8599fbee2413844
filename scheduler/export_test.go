package scheduler

import (
	"fmt"
	"slices"
)

// SparePages returns the number of drained pages that are kept.
func (s *Scheduler) SparePages() int { return s.pages.n }

// Reserved reports whether a worker prefetches nothing until it has a free
// slot.
func (s *Scheduler) Reserved(id WorkerID) bool { return s.workers[id].reserved }

// Free returns the number of free slots of a worker; below 0 if attempts wait for one.
func (s *Scheduler) Free(id WorkerID) int { return int(s.workers[id].slots) - int(s.workers[id].used) }

// Held returns the number of attempts of a class.
func (s *Scheduler) Held(c ClassID) uint32 { return s.classes[c].held }

// SetLimit changes the limit of a class.
func (s *Scheduler) SetLimit(id ClassID, limit uint32) {
	c := s.classes[id]
	if c.limit = limit; c.blocked && !c.full() {
		s.removeBlocked(c)
		s.relistAll(c)
	}
}

// Check recomputes what the Scheduler maintains, and returns the first
// difference.
func (s *Scheduler) Check() error {
	for p := Low; p <= Urgent; p++ {
		n := 0
		for _, c := range s.classes {
			q := &c.queues[p]
			n += q.n
			if listed, want := q.pos >= 0, q.n > 0 && !c.blocked; listed != want {
				return fmt.Errorf("queue %d/%v is in the heap: %v, want %v", c.id, p, listed, want)
			}
			if q.pos >= 0 && q.oldest != q.front().seq {
				return fmt.Errorf("queue %d/%v: key %d, front %d", c.id, p, q.oldest, q.front().seq)
			}
			if q.n == 0 && (q.head != nil || q.tail != nil) {
				return fmt.Errorf("queue %d/%v is empty and has a page", c.id, p)
			}
		}
		if n != s.depth[p] {
			return fmt.Errorf("depth of %v is %d, the queues have %d", p, s.depth[p], n)
		}
		if err := checkHeap(&s.ready[p], func(q *readyQueue) int { return q.pos }); err != nil {
			return fmt.Errorf("queues of %v: %w", p, err)
		}
	}
	if err := checkHeap(&s.byLoad, func(w *worker) int { return w.pos }); err != nil {
		return fmt.Errorf("workers: %w", err)
	}
	if err := s.checkLimits(); err != nil {
		return err
	}
	return s.checkWorkers()
}

// checkLimits compares the counters of named limits with those of the classes, and looks for
// classes that wait for a limit that is not full.
func (s *Scheduler) checkLimits() error {
	held, classes := make(map[string]uint32), make(map[string]int)
	for _, c := range s.classes {
		for _, l := range c.uses {
			if s.limits[l.name] != l {
				return fmt.Errorf("class %d uses limit %q, which is not known", c.id, l.name)
			}
			held[l.name] += c.held
			classes[l.name]++
		}
		if c.awaits != nil && (!c.blocked || !slices.Contains(c.awaits.waiting, c) || !c.awaits.full()) {
			return fmt.Errorf("class %d waits for limit %q in vain", c.id, c.awaits.name)
		}
		if c.awaits != nil && slices.Contains(s.blocked, c) {
			return fmt.Errorf("class %d waits for limit %q and for a worker", c.id, c.awaits.name)
		}
	}
	for name, l := range s.limits {
		if l.held != held[name] || l.classes != classes[name] {
			return fmt.Errorf("limit %q counts %d attempts and %d classes, want %d and %d", name, l.held, l.classes, held[name], classes[name])
		}
		for _, c := range l.waiting {
			if c.awaits != l {
				return fmt.Errorf("class %d is in the list of limit %q and does not wait for it", c.id, name)
			}
		}
	}
	return nil
}

func (s *Scheduler) checkWorkers() error {
	if len(s.sorted) != len(s.workers) {
		return fmt.Errorf("%d workers in order, %d by id", len(s.sorted), len(s.workers))
	}
	held := make(map[ClassID]uint32)
	var byPriority [Urgent + 1]int
	for _, w := range s.sorted {
		if w.reserved && w.used < w.slots {
			return fmt.Errorf("worker %d is reserved and has a free slot", w.id)
		}
		n := uint32(0)
		for p := range w.byPriority {
			n += w.byPriority[p]
			byPriority[p] += int(w.byPriority[p])
		}
		if n != w.used {
			return fmt.Errorf("worker %d holds %d attempts of all priorities, and %d", w.id, n, w.used)
		}
		for _, h := range w.held {
			held[h.class] += h.n
		}
	}
	for _, c := range s.classes {
		if c.held != held[c.id] { // nothing is reserved in these tests
			return fmt.Errorf("class %d counts %d attempts, workers hold %d", c.id, c.held, held[c.id])
		}
	}
	if byPriority != s.held {
		return fmt.Errorf("workers hold %v attempts by priority, counted %v", byPriority, s.held)
	}
	for i, w := range s.sorted {
		if i > 0 && s.sorted[i-1].id >= w.id {
			return fmt.Errorf("worker %d is out of order", w.id)
		}
		if w.ranked() != (w.accepting && w.slots > 0) {
			return fmt.Errorf("worker %d is in the heap: %v", w.id, w.ranked())
		}
		var used uint32
		taken := make([]int64, len(w.taken))
		for _, h := range w.held {
			used += h.n
			for _, n := range s.classes[h.class].needs {
				taken[n.resource] += n.amount * int64(h.n)
			}
		}
		if used != w.used {
			return fmt.Errorf("worker %d has %d slots taken and holds %d attempts", w.id, w.used, used)
		}
		for r := range taken {
			if taken[r] != w.taken[r] {
				return fmt.Errorf("worker %d: %d of resource %d is taken, its attempts take %d", w.id, w.taken[r], r, taken[r])
			}
		}
		for _, c := range s.blocked {
			if w.ranked() && !c.full() && w.fits(c) {
				return fmt.Errorf("class %d is blocked and fits worker %d", c.id, w.id)
			}
		}
	}
	return nil
}

func checkHeap[T ordered[T]](h *heap[T], at func(T) int) error {
	for i, x := range h.items {
		if at(x) != i {
			return fmt.Errorf("the element at %d has position %d", i, at(x))
		}
		if i > 0 && x.before(h.items[(i-1)/2]) {
			return fmt.Errorf("the element at %d is ordered before its parent", i)
		}
	}
	return nil
}
