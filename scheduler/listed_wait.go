package scheduler

import "slices"

// maxListedWaits is how many ready queues wait for a limit or a quota in a plain list, all of which
// return when one may start. Further ones wait in parts. With a limit per customer, say, few wait
// for each, and an owner with tasks of all of them is in no part: each end of an attempt would look
// at all of those.
const maxListedWaits = 16

// listWaits are the ready queues in a list. Some may have no tasks any more.
type listWaits []*readyQueue

// add adds a ready queue that was parked, and reports whether there was room for it among most.
func (l *listWaits) add(r *readyQueue, most int) bool {
	if len(*l) >= most {
		*l = slices.DeleteFunc(*l, func(x *readyQueue) bool {
			if x.n == 0 {
				x.parked = listable
			}
			return x.n == 0
		})
	}
	if len(*l) >= most {
		return false
	}
	*l = append(*l, r)
	return true
}

// takeAll calls f with all, and empties the list.
func (l *listWaits) takeAll(f func(*readyQueue)) {
	for i, r := range *l {
		(*l)[i] = nil
		f(r)
	}
	*l = (*l)[:0]
}

// someWait reports whether ready queues wait in parts.
func someWait(parts []*waitPart) bool {
	return slices.ContainsFunc(parts, func(p *waitPart) bool { return len(p.byAge.items) > 0 })
}

// awaitLimit adds a ready queue that was parked to those that wait for a limit, which is full.
func (s *Scheduler) awaitLimit(r *readyQueue, l *namedLimit) {
	if !someWait(l.parts) && l.waiting.add(r, s.maxListed) {
		return
	}
	s.setBlocked(&l.gate, true)
	s.joinPart(r, s.limitPart(l, r))
}

// limitPart returns the part of a limit for a ready queue.
func (s *Scheduler) limitPart(l *namedLimit, r *readyQueue) *waitPart {
	q := r.class.flow.queue
	for _, p := range l.parts {
		if p.queue == q && p.priority == r.priority {
			return p
		}
	}
	if len(l.parts) == cap(l.parts) {
		l.parts = compact(l.parts, func(p *waitPart) bool { return s.queues[p.queue.name] != p.queue })
	}
	p := &waitPart{gate: &l.gate, why: byNamedLimit, queue: q, priority: r.priority, openAt: -1}
	l.parts = append(l.parts, p)
	return p
}

// wake returns to the order what waits for a limit. What finds the limit full again waits
// again when it is at the front.
func (s *Scheduler) wake(l *namedLimit) {
	l.waiting.takeAll(func(r *readyQueue) { s.unpark(r, byNamedLimit) })
	s.setBlocked(&l.gate, false)
}

// awaitQuota adds a ready queue that was parked to those that the quotas of its queue hold back.
func (s *Scheduler) awaitQuota(r *readyQueue) {
	q := r.class.flow.queue
	if !someWait(q.overParts) && q.over.add(r, s.maxListed) {
		return
	}
	p := q.overPart(r)
	s.setBlocked(p.gate, true)
	s.joinPart(r, p)
}

// overPart returns the part for what the quotas of a queue hold back of the shape and priority of a
// ready queue.
func (q *queue) overPart(r *readyQueue) *waitPart {
	for _, p := range q.overParts {
		if p.shape == r.class.shape && p.priority == r.priority {
			return p
		}
	}
	if len(q.overParts) == cap(q.overParts) {
		q.overParts = compact(q.overParts, func(p *waitPart) bool { return p.shape.classes == 0 })
	}
	p := &waitPart{gate: &gate{}, why: byQuota, queue: q, priority: r.priority, shape: r.class.shape, openAt: -1}
	p.gate.parts = []*waitPart{p}
	q.overParts = append(q.overParts, p)
	return p
}

// unparkOver returns to the order what the quotas of a queue hold back no longer. Of a list, it is
// all. What they are saved for is in parts with others that need as much, and must wait.
func (s *Scheduler) unparkOver(q *queue) {
	if q.saving != nil {
		s.unparkSaved(q.saving.ready)
		for _, a := range q.saving.ready.class.alternatives {
			s.unparkSaved(&a.queues[q.saving.priority])
		}
	}
	q.over.takeAll(func(r *readyQueue) { s.unpark(r, byQuota) })
	for _, p := range q.overParts {
		if q.leaves(p.shape, q.saving) { // also if nothing waits: it may do so before the next end
			s.setBlocked(p.gate, false)
		}
	}
}

// unparkSaved returns a ready queue for whose first task quotas are saved to the order, if they are
// enough for it.
func (s *Scheduler) unparkSaved(r *readyQueue) {
	if r.in(byQuota) && r.class.flow.queue.leaves(r.class.shape, nil) {
		s.resumeWait(r.gated)
	}
}
