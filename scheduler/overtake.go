package scheduler

// overtake assigns the first task in order that may wait at a worker ahead of
// attempts of a lower priority: they were assigned before it was ready, and
// wait for a slot there. The worker starts it before them. A task that is never
// prefetched may do that, too: it gets the worker's next free slot.
//
// It costs nothing unless attempts of a lower priority wait; then it reads all
// workers for each class with such tasks.
func (s *Scheduler) overtake(valid func(TaskRef) bool) (Assignment, bool) {
	lower := s.held[Low] + s.held[Normal] + s.held[High]
	for p := Urgent; p > Low; p-- {
		if s.waiting == 0 || lower == 0 {
			break
		}
		if s.depth[p] > 0 {
			if q, w := s.findOvertaker(p, valid); w != nil {
				return s.assign(q, w), true
			}
		}
		lower -= s.held[p-1]
	}
	return Assignment{}, false
}

// findOvertaker returns the queue of the first task of a priority that may
// overtake, and the worker; nil if no task may.
func (s *Scheduler) findOvertaker(p Priority, valid func(TaskRef) bool) (best *readyQueue, at *worker) {
	for _, c := range s.classes {
		q := &c.queues[p]
		for q.n > 0 && s.isStale(q.front(), valid) {
			s.pop(q)
		}
		if q.n == 0 || c.full() || best != nil && best.front().seq < q.front().seq {
			continue
		}
		if w := s.overtakable(c, p); w != nil {
			best, at = q, w
		}
	}
	return best, at
}

// isStale reports whether the first task of a run must be dropped.
func (s *Scheduler) isStale(e *entry, valid func(TaskRef) bool) bool {
	return s.isSuperseded(e) || valid != nil && !valid(e.task())
}

// overtakable returns the worker with the least load of this and higher
// priorities where a task may overtake, or nil.
func (s *Scheduler) overtakable(c *class, p Priority) (best *worker) {
	load := func(w *worker) (n uint64) {
		for q := p; q <= Urgent; q++ {
			n += uint64(w.byPriority[q])
		}
		return n
	}
	for _, w := range s.sorted {
		if !w.ranked() || w.waiting == 0 || load(w) == uint64(w.used) {
			continue
		}
		most := uint64(w.slots)
		if c.prefetchable {
			most += uint64(w.prefetch)
		}
		if load(w) >= most || !w.fitsWithSlot(c) {
			continue
		}
		if best == nil || load(w)*uint64(best.slots) < load(best)*uint64(w.slots) {
			best = w
		}
	}
	return best
}

// reserve makes one worker prefetch nothing until it has a free slot, for a
// blocked class that is never prefetched: otherwise shorter tasks, which are,
// could take each place on the workers before a slot is free.
func (s *Scheduler) reserve(c *class) {
	if c.prefetchable || c.full() {
		return
	}
	var best *worker
	for _, w := range s.sorted {
		if !w.ranked() || w.used < w.slots || w.prefetch == 0 || !w.fitsWithSlot(c) {
			continue
		}
		if w.reserved {
			return
		}
		if best == nil || w.before(best) {
			best = w
		}
	}
	if best != nil {
		best.reserved = true
		s.rank(best)
	}
}
