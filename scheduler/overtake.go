package scheduler

// overtake assigns the first task in order that may wait at a worker ahead of
// attempts of a lower priority: they were assigned before it was ready, and
// wait for a slot there. The worker starts it before them. A task that is never
// prefetched may do that, too: it gets the worker's next free slot.
//
// It costs nothing unless attempts of a lower priority wait. Then it looks for a
// worker from where the last search ended, so that a crowd of urgent tasks is
// spread evenly and costs one look at each worker.
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

// overtakable returns the next worker where a task may overtake, or nil.
func (s *Scheduler) overtakable(c *class, p Priority) *worker {
	for i := range s.sorted {
		at := (s.overtaken + i) % len(s.sorted)
		if w := s.sorted[at]; w.mayBeOvertaken(c, p) {
			s.overtaken = at + 1
			return w
		}
	}
	return nil
}

// mayBeOvertaken reports whether an attempt of this class and priority may wait
// at the worker ahead of others: some have a lower priority, and those that have
// not leave it room.
func (w *worker) mayBeOvertaken(c *class, p Priority) bool {
	if !w.ranked() || w.waiting == 0 {
		return false
	}
	ahead, room := uint32(0), w.slots
	for q := p; q <= Urgent; q++ {
		ahead += w.byPriority[q]
	}
	if c.prefetchable {
		room += w.prefetch
	}
	return ahead < w.used && ahead < room && w.fitsWithSlot(c)
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
