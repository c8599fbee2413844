package scheduler

import "slices"

// full reports whether a class has as many attempts as its own limit, or one of its named
// limits, allows.
func (c *class) full() bool { return c.groupFull() || c.fullLimit() != nil }

// groupFull reports whether a class has as many attempts as its own limit allows.
func (c *class) groupFull() bool { return c.limit > 0 && c.held >= c.limit }

// freeOne records that an attempt of a class is no longer held.
func (s *Scheduler) freeOne(c *class) {
	wasFull := c.groupFull()
	c.held--
	if len(c.uses) > 0 {
		s.giveBack(c)
	}
	switch {
	case !c.isLimited():
	case c.retired && c.held == 0:
		s.recycle(c)
	case wasFull && c.blocked && c.awaits == nil:
		// No worker may have capacity either: then Next blocks it again.
		s.removeBlocked(c)
		s.relistAll(c)
	}
}

// isLimited reports whether a class has a limit of its own or named ones: many jobs may
// have such classes for themselves.
func (c *class) isLimited() bool { return c.limit > 0 || len(c.uses) > 0 }

func (s *Scheduler) removeBlocked(c *class) {
	c.blocked = false
	if l := c.awaits; l != nil {
		c.awaits = nil
		l.waiting = slices.DeleteFunc(l.waiting, func(b *class) bool { return b == c })
		return
	}
	s.blocked = slices.DeleteFunc(s.blocked, func(b *class) bool { return b == c })
}

// Reserve counts an attempt that no worker is known to hold, but that may still
// run, towards the limits of its class until Unreserve.
func (s *Scheduler) Reserve(c ClassID) { s.classes[c].take() }

// Unreserve ends a Reserve.
func (s *Scheduler) Unreserve(c ClassID) { s.freeOne(s.classes[c]) }

// Retire drops the entries of a limited class whose jobs have ended. After none
// of its attempts is held, the number of the class is used for another one.
// Class with the same demand before that brings it back. Retire does nothing
// for a class without a limit.
func (s *Scheduler) Retire(id ClassID) {
	c := s.classes[id]
	if !c.isLimited() || c.retired {
		return
	}
	for p := Low; p <= Urgent; p++ {
		q := &c.queues[p]
		for q.n > 0 {
			q.fifo.pop(&s.pages)
			s.depth[p]--
		}
		s.relist(q)
	}
	if c.retired = true; c.held == 0 {
		s.recycle(c)
	}
}

func (s *Scheduler) recycle(c *class) {
	s.removeBlocked(c)
	s.unuse(c)
	delete(s.classOf, c.key)
	*c = class{id: c.id, limit: 1, retired: true}
	c.initQueues()
	s.unused = append(s.unused, c)
}

// newClass returns an unused class, or a new one.
func (s *Scheduler) newClass(limited bool) *class {
	if last := len(s.unused) - 1; last >= 0 && limited {
		c := s.unused[last]
		s.unused = s.unused[:last]
		return c
	}
	c := &class{id: ClassID(len(s.classes))} //nolint:gosec // G115: classes are far fewer than 2^32
	c.initQueues()
	s.classes = append(s.classes, c)
	return c
}
