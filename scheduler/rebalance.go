package scheduler

import (
	"cmp"
	"slices"
)

// A StealRequest takes attempts of a class that wait for a slot from a worker.
type StealRequest struct {
	From  WorkerID
	Class ClassID
	N     int // > 0
	// Waited is for how many milliseconds each of them must have waited there; 0: any time.
	Waited int64
}

// Imbalanced reports whether a worker holds attempts that wait for a slot while
// another worker has a free slot. It takes constant time.
func (s *Scheduler) Imbalanced() bool {
	return s.waiting > 0 && len(s.byLoad.items) > 0 && s.byLoad.items[0].used < s.byLoad.items[0].slots
}

// Rebalance returns which workers should release attempts that wait there for a
// slot because other workers have free slots for them: no more than those
// slots, and first from the workers on which most attempts wait. mayAsk reports
// whether a worker may be asked; it must not call the Scheduler. Rebalance
// changes nothing: the caller releases what was released and pushes it again.
//
// At the worker of their key, only those above the bound of loads are released at
// once, and others when they have waited for a second.
//
// It scans all workers. Call it if Imbalanced is true and Next finds no
// assignment.
func (s *Scheduler) Rebalance(mayAsk func(WorkerID) bool) []StealRequest {
	if !s.Imbalanced() {
		return nil
	}
	var idle, loaded []*worker
	free := 0
	for _, w := range s.sorted {
		switch {
		case w.waiting > 0 && mayAsk(w.id):
			loaded = append(loaded, w)
		case w.ranked() && w.used < w.slots:
			idle = append(idle, w)
			free += int(w.slots - w.used)
		}
	}
	slices.SortStableFunc(loaded, func(a, b *worker) int { return cmp.Compare(b.waiting, a.waiting) }) // then by id
	slots := make(map[ClassID]int)                                                                     // free slots for a class
	var list []StealRequest
	for _, w := range loaded {
		left, excess := min(int(w.waiting), free), s.excess(w)
		for _, h := range w.held {
			c := s.classes[h.class]
			if !c.prefetchable {
				continue
			}
			if _, known := slots[h.class]; !known {
				slots[h.class] = freeSlots(c, idle)
			}
			r := StealRequest{From: w.id, Class: h.class, N: min(left, int(h.n), slots[h.class])}
			if s.keyWorker(c) == w {
				if excess > 0 {
					r.N = min(r.N, excess)
				} else {
					r.Waited = affinityWait
				}
			}
			if r.N == 0 {
				continue
			}
			list = append(list, r)
			if r.Waited > 0 {
				continue // mostly nothing is released: the slots are for others
			}
			excess -= r.N
			left -= r.N
			free -= r.N
			slots[h.class] -= r.N
		}
	}
	return list
}

// freeSlots counts the free slots for a class that takes no resources.
func freeSlots(c *class, idle []*worker) (n int) {
	for _, w := range idle {
		if w.suits(c.shape) {
			n += int(w.slots - w.used)
		}
	}
	return n
}

// updateWaiting updates the number of attempts that wait for a slot after a
// worker has changed.
func (s *Scheduler) updateWaiting(w *worker) {
	s.waiting -= int(w.waiting)
	w.waiting = max(w.used, w.slots) - w.slots
	s.waiting += int(w.waiting)
}
