package scheduler

// full reports whether a class has as many attempts as its own limit, or one of its named
// limits, allows.
func (c *class) full() bool { return c.groupFull() || c.fullLimit() != nil }

// groupFull reports whether a class has as many attempts as its own limit allows.
func (c *class) groupFull() bool { return c.group != nil && c.group.held >= c.group.limit }

// holdOne records that an attempt of a class is held.
func (s *Scheduler) holdOne(c *class) {
	c.held++
	if c.group != nil {
		c.group.held++
	}
	c.count()
	c.flow.held.add(c)
	q := c.flow.queue
	q.held.add(c)
	if q.full() {
		s.relistQueue(q)
	}
}

// freeOne records that an attempt of a class is no longer held.
func (s *Scheduler) freeOne(c *class) {
	wasFull, q := c.groupFull(), c.flow.queue
	c.held--
	if c.group != nil {
		c.group.held--
	}
	s.uncount(c)
	c.flow.held.remove(c)
	q.held.remove(c)
	s.lowered(c.flow)
	if wasFull && !c.groupFull() {
		s.unparkLimited(c)
	}
	if len(q.over)+len(q.overParts) > 0 && (q.saving != nil || q.limits(c)) {
		s.unparkOver(q)
	}
	if q.limit > 0 && q.pos < 0 {
		s.relistQueue(q)
	}
	if c.uses == 0 && c.held == 0 && c.isUnused() {
		s.recycle(c)
	}
}

// unparkLimited returns to the order what the limit of a class held back.
func (s *Scheduler) unparkLimited(c *class) {
	for p := Low; p <= Urgent; p++ {
		s.unpark(&c.queues[p], byLimit)
		for _, a := range c.alternatives {
			s.unpark(&a.queues[p], byLimit)
		}
	}
}

// Reserve counts an attempt that no worker is known to hold, but that may still
// run, towards the limits of its class, and the share and quotas of its queue, until
// Unreserve.
func (s *Scheduler) Reserve(c ClassID) { s.holdOne(s.classes[c]) }

// Unreserve ends a Reserve.
func (s *Scheduler) Unreserve(c ClassID) { s.freeOne(s.classes[c]) }

// Retain counts another use of a class, as Class does.
func (s *Scheduler) Retain(id ClassID) { s.classes[id].first().uses++ }

// Unuse ends a use of a class, whose number stays valid at least until an attempt of it
// ends: for a caller that needs the class only now.
func (s *Scheduler) Unuse(id ClassID) { s.classes[id].first().uses-- }

// Retire ends a use of a class by a job, which has ended. After the last one, the entries
// of the class are dropped, and as soon as none of its attempts is held, its number is
// used for another class. Class with the same demand before that brings it back.
func (s *Scheduler) Retire(id ClassID) {
	c := s.classes[id].first()
	if c.uses--; c.uses > 0 {
		return
	}
	s.dropEntries(c)
	for _, a := range c.alternatives {
		s.dropEntries(a)
	}
	if c.isUnused() {
		s.recycle(c)
	}
}

// dropEntries drops all entries of a class, but not those of its alternatives.
func (s *Scheduler) dropEntries(c *class) {
	for p := Low; p <= Urgent; p++ {
		q := &c.queues[p]
		if c.number == 0 {
			s.depth[p] -= q.n
		}
		for q.n > 0 {
			q.popRun(&s.pages)
		}
		s.relist(q)
	}
}

// recycle removes a class without uses and attempts, and its alternatives. Their ready queues
// may still be in lists of parked ones, where they have no effect: see compact.
func (s *Scheduler) recycle(c *class) {
	if c.alternatives == nil {
		s.recycleOne(c)
	}
	for _, a := range c.alternatives {
		s.recycleOne(a)
	}
}

func (s *Scheduler) recycleOne(c *class) {
	s.dropEntries(c)
	s.removeLimits(c)
	delete(s.classOf, c.key)
	if c.shape.classes--; c.shape.classes == 0 {
		delete(s.shapes, c.shape.key) // unblock takes it out of Scheduler.blocked
		c.shape.dropParts()
	}
	s.classes[c.id] = s.unusedClass(c.id)
	s.unused = append(s.unused, c.id)
	s.removeClass(c.flow)
}

// unusedClass returns a class without flow. It has a shape, so that it need not be
// skipped where classes are compared.
func (s *Scheduler) unusedClass(id ClassID) *class {
	c := &class{id: id, shape: s.noShape}
	for p := Low; p <= Urgent; p++ {
		c.queues[p] = readyQueue{class: c, priority: p, pos: -1}
	}
	return c
}

// newClass returns a class with an unused number, or a new one.
func (s *Scheduler) newClass() *class {
	if last := len(s.unused) - 1; last >= 0 {
		c := s.classes[s.unused[last]]
		s.unused = s.unused[:last]
		return c
	}
	c := s.unusedClass(ClassID(len(s.classes))) //nolint:gosec // G115: classes are far fewer than 2^32
	s.classes = append(s.classes, c)
	return c
}
