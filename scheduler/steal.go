package scheduler

import (
	"cmp"
	"slices"
)

// A Relief takes attempts of a class that wait for a slot from a worker.
type StealRequest struct {
	From  WorkerID
	Class ClassID
	N     int // > 0
}

// Uneven reports whether some worker holds attempts that wait for a slot while
// another has a free one. It costs nothing to ask.
func (s *Scheduler) Imbalanced() bool {
	return s.waiting > 0 && len(s.idlest.items) > 0 && s.idlest.items[0].used < s.idlest.items[0].slots
}

// Relieve says which workers should give back what waits there for a slot, and
// how much of it, because other workers have free slots for it now: no more than
// those slots, from those on which most waits first. may says of which workers
// something may be asked; it must not call the Scheduler. Nothing changes here:
// what is given back comes with Release, and is pushed again.
//
// It looks at all workers. Call it when Uneven says so and when no ready task is
// left that Next would place.
func (s *Scheduler) Rebalance(may func(WorkerID) bool) []StealRequest {
	if !s.Imbalanced() {
		return nil
	}
	var idle, laden []*worker
	free := 0
	for _, w := range s.fleet {
		switch {
		case w.waiting > 0 && may(w.id):
			laden = append(laden, w)
		case w.listed() && w.used < w.slots:
			idle = append(idle, w)
			free += int(w.slots - w.used)
		}
	}
	slices.SortStableFunc(laden, func(a, b *worker) int { return cmp.Compare(b.waiting, a.waiting) }) // else by id
	room := make(map[ClassID]int)                                                                     // free slots for a class
	var list []StealRequest
	for _, w := range laden {
		left := min(int(w.waiting), free)
		for _, h := range w.held {
			c := s.classes[h.class]
			if !c.ahead {
				continue
			}
			if _, known := room[h.class]; !known {
				room[h.class] = slotsFor(c, idle)
			}
			n := min(left, int(h.n), room[h.class])
			if n == 0 {
				continue
			}
			list = append(list, StealRequest{From: w.id, Class: h.class, N: n})
			left -= n
			free -= n
			room[h.class] -= n
		}
	}
	return list
}

// slotsFor counts the free slots for a class that needs nothing but labels.
func slotsFor(c *class, idle []*worker) (n int) {
	for _, w := range idle {
		if w.labelled(c) {
			n += int(w.slots - w.used)
		}
	}
	return n
}

// countWaiting keeps the number of attempts that wait for a slot, after any
// figure of a worker has changed.
func (s *Scheduler) countWaiting(w *worker) {
	s.waiting -= int(w.waiting)
	w.waiting = 0
	if w.used > w.slots {
		w.waiting = w.used - w.slots
	}
	s.waiting += int(w.waiting)
}
