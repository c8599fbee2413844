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

// couldRun reports whether a worker could run an attempt of the class if it were idle. The one that
// was found last mostly still can: if few can, such as the one to which a task is pinned, finding
// it means reading half of the fleet.
func (s *Scheduler) couldRun(c *class) bool {
	could := func(w *worker) bool { return w.usable() && w.eligible(c.shape) }
	if w := s.workers[c.runs]; w != nil && could(w) {
		return true
	}
	i := slices.IndexFunc(s.sorted, could)
	if i >= 0 {
		c.runs = s.sorted[i].id
	}
	return i >= 0
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
