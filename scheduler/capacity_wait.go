package scheduler

import "slices"

// What waits for a worker with capacity for a shape: the shape is the gate, and a queue knows its
// parts.

// capacityPart returns the part of a ready queue.
func (s *Scheduler) capacityPart(r *readyQueue) *waitPart {
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
	p := &waitPart{gate: &sh.gate, why: byShape, queue: q, priority: r.priority, shape: sh, openAt: -1}
	q.parts, sh.parts = append(q.parts, p), append(sh.parts, p)
	return p
}

// awaitsCapacity reports whether any of its ready queues waits for capacity.
func (q *queue) awaitsCapacity() bool {
	return slices.ContainsFunc(q.parts, func(p *waitPart) bool { return len(p.byAge.items) > 0 })
}

// dropParts forgets the parts of a shape that no class has any more.
func (sh *shape) dropParts() {
	for _, p := range sh.parts {
		p.queue.parts = slices.DeleteFunc(p.queue.parts, func(x *waitPart) bool { return x == p })
	}
	sh.parts = nil
}

// dropParts forgets the parts of a queue without flows.
func (q *queue) dropParts() {
	for _, p := range q.parts {
		p.shape.parts = slices.DeleteFunc(p.shape.parts, func(x *waitPart) bool { return x == p })
	}
	q.parts = nil
}
