package scheduler

import "slices"

// Unplaceable returns the number of entries that no worker that accepts tasks could
// run, even if all were idle: their type, namespace, labels or resources are nowhere. valid is that
// of Next: the first entries of each such queue for which it is false are dropped, so
// that cancelled tasks don't count for long.
func (s *Scheduler) Unplaceable(valid func(TaskRef) bool) int {
	n := 0
	for _, c := range s.classes {
		if c.number == 0 && !c.empty() && !s.couldRun(c) && !slices.ContainsFunc(c.alternatives, s.couldRun) {
			n += s.validEntries(c, valid)
		}
	}
	return n
}

func (c *class) empty() bool {
	return c.queues[Low].n+c.queues[Normal].n+c.queues[High].n+c.queues[Urgent].n == 0
}

// couldRun reports whether a worker could run an attempt of the class if it were idle. Mostly one
// of the first can, which is found before the workers of the class are listed. If few can, such as
// the one to which a task is pinned, only the list is fast: it is the same until the fleet changes.
func (s *Scheduler) couldRun(c *class) bool {
	if c.version != s.version {
		for _, w := range s.sorted[:min(maxProbes, len(s.sorted))] {
			if w.usable() && w.eligible(c.shape) {
				return true
			}
		}
	}
	return s.someUsable(c.shape)
}

// validEntries returns the number of a class's entries, from the first valid one of each
// queue on.
func (s *Scheduler) validEntries(c *class, valid func(TaskRef) bool) int {
	n := 0
	for p := Low; p <= Urgent; p++ {
		q := &c.queues[p]
		for q.n > 0 && s.isStale(q.front(), valid) {
			s.drop(q)
		}
		n += q.n
	}
	return n
}
