package scheduler

import "math"

// Fitting returns how many of the workers that accept tasks could run tasks of a class if
// they were idle, and how many of its tasks these could run at the same time, whatever the
// limit of the class. It reads all workers. c must come from Class of this Scheduler, or
// Fitting panics.
func (s *Scheduler) Fitting(c ClassID) (workers int, tasks uint64) {
	x := s.classes[c]
	for _, w := range s.sorted {
		if !w.ranked() || !w.eligible(x.shape) {
			continue
		}
		n := int64(w.slots)
		for _, need := range x.needs {
			n = min(n, amount(w.total, need.resource)/need.amount)
		}
		workers++
		tasks += uint64(max(n, 0)) //nolint:gosec // not negative
	}
	return workers, min(tasks, math.MaxInt64)
}
