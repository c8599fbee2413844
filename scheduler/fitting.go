package scheduler

import "math"

// Fitting returns how many of the workers that accept tasks could run tasks of a class, or of
// one of its alternatives, if they were idle, and how many of its tasks these could run at the
// same time, whatever the limit of the class: with alternatives, at most so many. It reads all
// workers. c must come from Class of this Scheduler, or Fitting panics.
func (s *Scheduler) Fitting(c ClassID) (workers int, tasks uint64) {
	x := s.classes[c]
	for _, w := range s.sorted {
		if !w.ranked() {
			continue
		}
		fits, most := w.eligible(x.shape), w.capacityFor(x.shape)
		for _, a := range x.alternatives {
			if a != x {
				fits, most = fits || w.eligible(a.shape), most+w.capacityFor(a.shape)
			}
		}
		if fits {
			workers++
			tasks += uint64(min(most, int64(w.slots))) //nolint:gosec // not negative
		}
	}
	return workers, min(tasks, math.MaxInt64)
}

// capacityFor returns how many attempts of a shape the worker could run at the same time if
// it were idle; 0 if none.
func (w *worker) capacityFor(c *shape) int64 {
	if !w.eligible(c) {
		return 0
	}
	n := int64(w.slots)
	for _, need := range c.needs {
		n = min(n, amount(w.total, need.resource)/need.amount)
	}
	return max(n, 0)
}
