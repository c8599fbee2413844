package scheduler

import "slices"

// A capacityPart has the ready queues of one queue, priority and shape that were parked because
// no worker had capacity for the shape. When a worker has, they stay here, and return to the
// order one by one, as soon as each would be the first or the oldest in it: a release costs what
// can start, not what waits.
//
// Invariant: while the shape is not blocked, all of them count in queue.resumable.
type capacityPart struct {
	queue    *queue
	priority Priority
	shape    *shape
	order    turns[*capacityWait] // as in queue.ready, and those of one flow by age
	byAge    heap[capacityAge]    // the same, oldest first
}

// A capacityWait is a ready queue that has been parked because of its shape.
type capacityWait struct {
	ready  *readyQueue
	part   *capacityPart
	pos    int32 // in capacityPart.order; -1 if it is not there: it is listed, or has no tasks
	agePos int32 // in capacityPart.byAge
	flowAt int32 // in flow.waits
}

func (k *capacityWait) before(o *capacityWait) bool {
	if f, g := k.ready.class.flow, o.ready.class.flow; f != g {
		return f.before(g)
	}
	return k.ready.oldest < o.ready.oldest
}

// A capacityAge is a capacityWait in the order of age.
type capacityAge struct {
	age uint64 // that of the front
	*capacityWait
}

func (k capacityAge) before(o capacityAge) bool { return k.age < o.age }
func (k capacityAge) setPos(pos int)            { k.agePos = int32(pos) } //nolint:gosec // G115: ready queues are far fewer

// awaitCapacity adds a ready queue to those that wait for a worker with capacity for its shape,
// which is blocked.
func (s *Scheduler) awaitCapacity(r *readyQueue) {
	k := r.capacity
	if k == nil {
		k = &capacityWait{ready: r, part: s.capacityPart(r), pos: -1, agePos: -1}
		r.capacity = k
	}
	r.oldest = r.front().seq
	k.part.order.push(s.ownerKey(r.class.flow), k, &k.pos)
	k.part.byAge.push(capacityAge{r.oldest, k})
	f := r.class.flow
	k.flowAt = int32(len(f.waits)) //nolint:gosec // G115: ready queues of an owner are far fewer
	f.waits = append(f.waits, k)
	s.passOver(f.queue)
}

// capacityPart returns the part of a ready queue.
func (s *Scheduler) capacityPart(r *readyQueue) *capacityPart {
	q, sh := r.class.flow.queue, r.class.shape
	list := sh.parts
	if len(q.parts) < len(list) {
		list = q.parts
	}
	for _, p := range list {
		if p.shape == sh && p.queue == q && p.priority == r.priority {
			return p
		}
	}
	p := &capacityPart{queue: q, priority: r.priority, shape: sh}
	q.parts, sh.parts = append(q.parts, p), append(sh.parts, p)
	return p
}

// endCapacityWait removes a ready queue from those that wait for capacity.
func (s *Scheduler) endCapacityWait(k *capacityWait) {
	p, f := k.part, k.ready.class.flow
	p.order.remove(k.pos)
	p.byAge.remove(int(k.agePos))
	last := len(f.waits) - 1
	f.waits[last].flowAt = k.flowAt
	f.waits[k.flowAt] = f.waits[last]
	f.waits[last] = nil
	f.waits = f.waits[:last]
	if !p.shape.blocked {
		p.queue.resumable--
	}
}

// recheckWait brings a parked ready queue up to date after a change of its tasks. Without tasks
// it doesn't wait, and if it gets some, it is parked only if its shape is still blocked.
func (s *Scheduler) recheckWait(r *readyQueue) {
	switch k := r.capacity; {
	case k.pos >= 0 && r.n == 0:
		s.endCapacityWait(k)
		if q := k.part.queue; !k.part.shape.blocked || !q.awaitsCapacity() {
			s.relistQueue(q)
		}
	case k.pos >= 0 && r.front().seq != r.oldest:
		r.oldest = r.front().seq
		p := k.part
		p.byAge.items[k.agePos].age = r.oldest
		p.byAge.fix(int(k.agePos))
		p.order.fix(k.pos)
	case k.pos < 0 && r.n > 0 && !k.part.shape.blocked:
		r.parked = listable
	case k.pos < 0 && r.n > 0:
		s.awaitCapacity(r)
	}
}

// awaitsCapacity reports whether any of its ready queues waits for capacity.
func (q *queue) awaitsCapacity() bool {
	return slices.ContainsFunc(q.parts, func(p *capacityPart) bool { return len(p.order.items) > 0 })
}

// resumeWait returns a ready queue whose shape is no longer blocked to the order.
func (s *Scheduler) resumeWait(k *capacityWait) {
	s.endCapacityWait(k)
	s.unpark(k.ready, byShape)
}

// resumeFirst returns those ready queues of a queue and priority to the order that would be the
// first in it. Its first owner must have its present key.
func (s *Scheduler) resumeFirst(q *queue, p Priority) {
	for _, part := range q.parts {
		if part.priority != p || part.shape.blocked || len(part.order.items) == 0 {
			continue
		}
		h := &part.order
		for {
			key := s.ownerKey(h.items[0].of.ready.class.flow)
			if key == h.items[0].key {
				break
			}
			h.raise(key)
		}
		k := h.items[0].of
		if l := &q.ready[p]; len(l.items) == 0 || s.ordered(k.ready, l.items[0].of.levels[p].ready.items[0].readyQueue) {
			s.resumeWait(k)
		}
	}
}

// resumeOldest returns those ready queues of a queue to the order that may be the oldest in it.
func (s *Scheduler) resumeOldest(q *queue) {
	for _, part := range q.parts {
		if !part.shape.blocked && len(part.byAge.items) > 0 {
			s.resumeWait(part.byAge.items[0].capacityWait)
		}
	}
}

// setBlocked blocks or unblocks a shape.
func (s *Scheduler) setBlocked(sh *shape, blocked bool) {
	if sh.blocked == blocked {
		return
	}
	sh.blocked = blocked
	for _, p := range sh.parts {
		n := len(p.order.items)
		switch {
		case n == 0:
		case blocked: // the queue leaves the order when it is at the front, unless it is paused or full
			p.queue.resumable -= n
			s.passOver(p.queue)
		default:
			p.queue.resumable += n
			s.relistQueue(p.queue)
		}
	}
}

// lowerWaits moves the waiting ready queues of an owner forward after the end of an attempt.
func (s *Scheduler) lowerWaits(f *flow) {
	now := s.ownerKey(f)
	for _, k := range f.waits {
		k.part.order.lower(k.pos, &now)
	}
}

// oldestWait returns the ready queue with the oldest valid task of a part that nothing but
// capacity holds back; nil without one.
func (s *Scheduler) oldestWait(p *capacityPart, valid func(TaskRef) bool) *readyQueue {
	for {
		r := p.oldestFrom(0, nil)
		if r == nil || !s.isStale(r.front(), valid) {
			return r
		}
		s.drop(r)
	}
}

// oldestFrom returns best, or the ready queue with an older task from a position of byAge on,
// which nothing but capacity holds back.
func (p *capacityPart) oldestFrom(pos int, best *readyQueue) *readyQueue {
	if pos >= len(p.byAge.items) || best != nil && p.byAge.items[pos].age > best.oldest {
		return best
	}
	if r := p.byAge.items[pos].ready; r.class.mayStart() {
		return r
	}
	return p.oldestFrom(2*pos+2, p.oldestFrom(2*pos+1, best))
}

// dropParts forgets the parts of a shape that no class has any more.
func (sh *shape) dropParts() {
	for _, p := range sh.parts {
		p.queue.parts = slices.DeleteFunc(p.queue.parts, func(x *capacityPart) bool { return x == p })
	}
	sh.parts = nil
}

// dropParts forgets the parts of a queue without flows.
func (q *queue) dropParts() {
	for _, p := range q.parts {
		p.shape.parts = slices.DeleteFunc(p.shape.parts, func(x *capacityPart) bool { return x == p })
	}
	q.parts = nil
}
