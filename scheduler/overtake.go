package scheduler

import "slices"

// overtake assigns the first task in order that may wait at a worker ahead of
// attempts of a lower priority: they were assigned before it was ready, and
// wait for a slot there. The worker starts it before them. A task that is never
// prefetched may do that, too: it gets the worker's next free slot.
//
// It costs nothing unless attempts of a lower priority wait. Then it looks for a
// worker from where the last search ended, so that a crowd of urgent tasks is
// spread evenly and costs one look at each worker.
//
// These starts count for the turn by age, but do not take it: the oldest task of the queue
// could only wait behind all that a worker holds, where its next start in order puts it.
// That start comes: every 16th start of a worker is the oldest attempt that it holds, so that
// attempts of a lower priority end, and without them nothing overtakes.
func (s *Scheduler) overtake(valid func(TaskRef) bool) (Assignment, bool) {
	lower := s.held[Low] + s.held[Normal] + s.held[High]
	for p := Urgent; p > Low; p-- {
		if s.waiting == 0 || lower == 0 {
			break
		}
		if s.depth[p] > 0 && s.someOvertakable(p) {
			if q, w := s.findOvertaker(p, valid); w != nil {
				q.class.flow.queue.countsForAge()
				return s.startInTurn(q, w, valid), true
			}
		}
		lower -= s.held[p-1]
	}
	return Assignment{}, false
}

// countsForAge counts a start that does not take the turn by age.
func (q *queue) countsForAge() { q.turn = min(q.turn+1, agedStart-1) }

// someOvertakable reports whether a task of a priority may overtake others at any worker.
// It is a cheap question about what workers hold, before all ready queues are read.
func (s *Scheduler) someOvertakable(p Priority) bool {
	for _, w := range s.sorted {
		if w.ranked() && w.waiting > 0 && w.ahead(p) < min(w.used, w.slots+w.prefetch) {
			return true
		}
	}
	return false
}

// findOvertaker returns the ready queue of the first task of a priority that may
// overtake, and the worker; nil if no task may.
func (s *Scheduler) findOvertaker(p Priority, valid func(TaskRef) bool) (*readyQueue, *worker) {
	var best *readyQueue
	s.markOvertakers()
	places := make(map[*shape]bool)
	for _, c := range s.classes {
		r := &c.queues[p]
		for r.n > 0 && s.isStale(r.front(), valid) {
			s.drop(r)
		}
		if r.n == 0 || !c.mayStart(p) || !c.flow.queue.overtakes || best != nil && s.ordered(best, r) {
			continue
		}
		place, known := places[c.shape]
		switch {
		case c.affinity != nil:
			place = s.overtakableFor(c, p) != nil
		case !known:
			place = s.anyOvertakable(c.shape, p)
			places[c.shape] = place
		}
		if place {
			best = r
		}
	}
	if best == nil {
		return nil, nil
	}
	return best, s.overtakableFor(best.class, p)
}

// anyOvertakable reports whether a worker exists where a task of a shape may overtake.
func (s *Scheduler) anyOvertakable(c *shape, p Priority) bool {
	return slices.ContainsFunc(s.sorted, func(w *worker) bool { return w.mayBeOvertaken(c, p) })
}

// ordered reports whether the first task of a is before that of b. Both have one priority.
func (s *Scheduler) ordered(a, b *readyQueue) bool {
	f, g := a.class.flow, b.class.flow
	if f.queue != g.queue {
		x, y := s.queueKey(f.queue), s.queueKey(g.queue)
		return x.before(&y) || !y.before(&x) && f.queue.name < g.queue.name
	}
	if f != g {
		x, y := s.ownerKey(f), s.ownerKey(g)
		return x.before(&y) || !y.before(&x) && f.owner.before(g.owner)
	}
	return a.front().seq < b.front().seq
}

// markOvertakers sets which queues may have tasks that overtake others. Priorities act
// inside a queue: one with urgent tasks only would otherwise hold as much as fits,
// whatever its weight. It may while another queue has at least its share, or while no
// other queue holds anything.
func (s *Scheduler) markOvertakers() {
	var most orderKey
	var last *queue
	holding, equal := 0, 0 // queues that hold anything; those with the largest share
	// unordered: only the largest share matters, and how many have it
	for _, q := range s.queues {
		if q.held.slots == 0 {
			continue
		}
		key := s.queueKey(q)
		switch c := compareShares(key.share, key.weight, most.share, most.weight); {
		case holding == 0 || c > 0:
			most, equal = key, 1
		case c == 0:
			equal++
		}
		holding, last = holding+1, q
	}
	// unordered: each queue is independent of the others
	for _, q := range s.queues {
		q.overtakes = holding == 0 || holding == 1 && last == q
		if !q.overtakes {
			key := s.queueKey(q)
			c := compareShares(key.share, key.weight, most.share, most.weight)
			q.overtakes = c < 0 || c == 0 && equal > 1
		}
	}
}

// overtakable returns the next worker where a task may overtake, or nil.
func (s *Scheduler) overtakable(c *shape, p Priority) *worker {
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
func (w *worker) mayBeOvertaken(c *shape, p Priority) bool {
	if !w.ranked() || w.waiting == 0 {
		return false
	}
	ahead, room := w.ahead(p), w.slots
	if c.prefetchable {
		room += w.prefetch
	}
	return ahead < w.used && ahead < room && w.fitsWithSlot(c)
}

// ahead returns the number of attempts of this or a higher priority.
func (w *worker) ahead(p Priority) (n uint32) {
	for q := p; q <= Urgent; q++ {
		n += w.byPriority[q]
	}
	return n
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
		if !w.ranked() || w.used < w.slots || w.prefetch == 0 || !w.fitsWithSlot(c.shape) {
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
