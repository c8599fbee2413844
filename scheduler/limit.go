package scheduler

import "slices"

// full reports whether a limited class has as many attempts as its limit
// allows.
func (c *class) full() bool { return c.limit > 0 && c.held >= c.limit }

// freeOne records that an attempt of a class is no longer held.
func (s *Scheduler) freeOne(c *class) {
	wasFull := c.full()
	c.held--
	switch {
	case c.limit == 0:
	case c.retired && c.held == 0:
		s.recycle(c)
	case wasFull && c.blocked:
		// No worker may have capacity either: then Next blocks it again.
		s.removeBlocked(c)
		s.relistAll(c)
	}
}

func (s *Scheduler) removeBlocked(c *class) {
	c.blocked = false
	s.blocked = slices.DeleteFunc(s.blocked, func(b *class) bool { return b == c })
}

// Reserve counts an attempt that no worker is known to hold, but that may still
// run, towards the limit of its class until Unreserve.
func (s *Scheduler) Reserve(c ClassID) { s.classes[c].held++ }

// Unreserve ends a Reserve.
func (s *Scheduler) Unreserve(c ClassID) { s.freeOne(s.classes[c]) }

// Retire drops the entries of a limited class whose job has ended. After none
// of its attempts is held, the number of the class is used for another one.
// Class with the same demand before that brings it back. Retire does nothing
// for a class without a limit.
func (s *Scheduler) Retire(id ClassID) {
	c := s.classes[id]
	if c.limit == 0 || c.retired {
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
