package scheduler

import (
	"slices"
	"strconv"
)

// Alternatives of a demand have a class each, and a task is in the ready queues of all of
// them, one after the other in the order of its flow. So the first alternative that fits
// takes the task, and quotas, limits, affinity and reservations need not know of the others.
//
// Invariant: the ready queues of one priority of all alternatives have the same tasks in the
// same order. What adds or removes a task in one of them does it in all: push, pop, Sweep,
// Retire and recycle.

// classWithAlternatives is Class for a demand in normal form that has alternatives.
func (s *Scheduler) classWithAlternatives(d Demand) ClassID {
	lists := slices.Concat([][]Quantity{d.Resources}, d.Alternatives)
	for i := range lists {
		lists[i] = normalQuantities(lists[i], MaxAmount+1)
	}
	d.Alternatives = lists[1:]
	var all []*class
	isNew := false
	for i, resources := range lists {
		x := d
		x.Resources = resources
		var c *class
		if c, isNew = s.classFor(&x, lists, uint8(i)); !isNew {
			break // then all of them exist
		}
		all = append(all, c)
	}
	if !isNew {
		c := s.classes[s.classOf[string(s.key)]]
		c.uses++
		return c.id
	}
	var g *group
	if d.Limit > 0 {
		g = &group{limit: d.Limit}
	}
	for _, c := range all {
		c.alternatives, c.group = all, g
	}
	all[0].uses++
	return all[0].id
}

// appendAlternatives encodes the resources of all alternatives, and the number of one of them.
func appendAlternatives(b []byte, lists [][]Quantity, number uint8) []byte {
	if len(lists) == 0 {
		return b
	}
	b = strconv.AppendUint(append(b, '='), uint64(number), 10)
	for _, list := range lists {
		b = append(b, '/')
		for _, q := range list {
			b = appendString(b, q.Name)
			b = append(strconv.AppendInt(b, q.Amount, 10), ' ')
		}
	}
	return b
}

// first returns the class that stands for the class and its alternatives: that of Class.
func (c *class) first() *class {
	if c.alternatives == nil {
		return c
	}
	return c.alternatives[0]
}

// isUnused reports whether neither a caller nor an attempt needs a class or one of its
// alternatives any more.
func (c *class) isUnused() bool {
	if c.alternatives == nil {
		return c.uses == 0 && c.held == 0
	}
	return !slices.ContainsFunc(c.alternatives, func(a *class) bool { return a.uses > 0 || a.held > 0 })
}

// pushToOthers pushes tasks to the ready queues of the further alternatives of a class. They
// count once in depth.
func (s *Scheduler) pushToOthers(e entry, c *class, p Priority) {
	for _, a := range c.alternatives[1:] {
		s.push(e, a.id, p)
		s.depth[p] -= int(e.n)
	}
}

// popFromOthers removes the first task of the ready queues of all other alternatives: it is the
// one that was removed from q.
func (s *Scheduler) popFromOthers(q *readyQueue) {
	for _, a := range q.class.alternatives {
		if other := &a.queues[q.priority]; other != q {
			other.fifo.pop(&s.pages)
			s.relist(other)
		}
	}
}

// Alternative returns the class of an alternative of a class that Class returned. For a number
// that the class does not have, it is the class itself.
func (s *Scheduler) Alternative(id ClassID, number uint8) ClassID {
	if all := s.classes[id].alternatives; number > 0 && int(number) < len(all) {
		return all[number].id
	}
	return id
}

// AlternativeOf returns which alternative an attempt of a class takes: 0 is the Resources of its
// Demand.
func (s *Scheduler) AlternativeOf(id ClassID) uint8 { return s.classes[id].number }

// Alternatives returns how many alternatives a class has, itself included.
func (s *Scheduler) Alternatives(id ClassID) int { return max(1, len(s.classes[id].alternatives)) }
