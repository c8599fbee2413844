package scheduler

import "slices"

// full reports whether a limited class has as many attempts as it may.
func (c *class) full() bool { return c.limit > 0 && c.held >= c.limit }

// unhold notes that an attempt of a class is held no more.
func (s *Scheduler) unhold(c *class) {
	wasFull := c.full()
	c.held--
	switch {
	case c.limit == 0:
	case c.retired && c.held == 0:
		s.recycle(c)
	case wasFull && c.blocked:
		// It may be blocked for want of room as well: then Next finds out.
		c.blocked = false
		s.blocked = slices.DeleteFunc(s.blocked, func(b *class) bool { return b == c })
		s.enlistAll(c)
	}
}

// Reserve counts an attempt towards the limit of its class that no worker is
// known to hold, but may run still, until Unreserve.
func (s *Scheduler) Reserve(c ClassID) { s.classes[c].held++ }

// Unreserve ends a Reserve.
func (s *Scheduler) Unreserve(c ClassID) { s.unhold(s.classes[c]) }

// Retire drops the entries of a limited class and, once none of its attempts is
// held, uses its number for another one. Its job has ended. Class with the same
// demand before that brings it back. Any other class stays.
func (s *Scheduler) Retire(id ClassID) {
	c := s.classes[id]
	if c.limit == 0 || c.retired {
		return
	}
	for p := Low; p <= Urgent; p++ {
		l := &c.lanes[p]
		for l.n > 0 {
			l.fifo.pop(&s.pages)
			s.depth[p]--
		}
		s.enlist(l)
	}
	if c.retired = true; c.held == 0 {
		s.recycle(c)
	}
}

func (s *Scheduler) recycle(c *class) {
	if c.blocked {
		s.blocked = slices.DeleteFunc(s.blocked, func(b *class) bool { return b == c })
	}
	delete(s.classOf, c.key)
	*c = class{id: c.id, limit: 1, retired: true}
	for p := Low; p <= Urgent; p++ {
		c.lanes[p] = lane{class: c, priority: p, at: -1}
	}
	s.spare = append(s.spare, c)
}

// newClass gives a class that is not in use, or makes one.
func (s *Scheduler) newClass(limited bool) *class {
	if last := len(s.spare) - 1; last >= 0 && limited {
		c := s.spare[last]
		s.spare = s.spare[:last]
		return c
	}
	c := &class{id: ClassID(len(s.classes))} //nolint:gosec // G115: classes are far fewer than 2^32
	s.classes = append(s.classes, c)
	return c
}
