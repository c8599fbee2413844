package scheduler

import "slices"

// A gate holds back ready queues of any number of classes for one reason: no worker has capacity
// for their shape, a limit is full, or a quota leaves too little for their shape. When it opens,
// they stay in its parts, and return to the order one by one, as soon as each would be the first
// or the oldest in it: what opens it costs what can start, not what waits.
type gate struct {
	blocked bool        // nothing that waits can start
	parts   []*waitPart // some are empty
}

// A waitPart has the ready queues of one queue and priority that wait at a gate.
//
// Invariant: it is in queue.open if it has any and its gate is open.
type waitPart struct {
	gate     *gate
	why      parking // of all of them
	queue    *queue
	priority Priority
	shape    *shape // of all of them; nil: they wait for a limit
	openAt   int32  // in queue.open; -1 if it is not there

	order turns[*flowWaits] // as in queue.ready
	byAge heap[waitAge]     // its ready queues, oldest first
}

// A flowWaits has those of one flow.
type flowWaits struct {
	part  *waitPart
	flow  *flow
	ready heap[*gateWait] // oldest first
	pos   int32           // in waitPart.order; -1 without ready queues
	at    int32           // in flow.waits
}

func (w *flowWaits) before(o *flowWaits) bool { return w.flow.before(o.flow) }

// A gateWait is a ready queue that has been parked at a gate.
type gateWait struct {
	ready  *readyQueue
	part   *waitPart  // nil: it is not parked at a gate
	of     *flowWaits // those that it waits with, or did last
	pos    int32      // in flowWaits.ready; -1 if it is not parked, or has no tasks
	agePos int32      // in waitPart.byAge
}

func (k *gateWait) before(o *gateWait) bool { return k.ready.oldest < o.ready.oldest }
func (k *gateWait) setPos(pos int)          { k.pos = int32(pos) } //nolint:gosec // G115: ready queues are far fewer

// A waitAge is a gateWait in the order of age.
type waitAge struct {
	age uint64 // that of the front
	*gateWait
}

func (k waitAge) before(o waitAge) bool { return k.age < o.age }
func (k waitAge) setPos(pos int)        { k.agePos = int32(pos) } //nolint:gosec // G115: ready queues are far fewer

// maxOpen is how many open parts of a queue are compared at each start. What waits in further ones
// returns at once.
const maxOpen = 16

// joinPart adds a ready queue that was parked to a part, whose gate is blocked.
func (s *Scheduler) joinPart(r *readyQueue, p *waitPart) {
	f, k := r.class.flow, r.gated
	if k == nil {
		k = &gateWait{ready: r, pos: -1, agePos: -1}
		r.gated = k
	}
	k.part, k.of = p, f.waitsIn(p, k.of)
	if k.of.pos < 0 {
		p.order.push(s.ownerKey(f), k.of, &k.of.pos)
		k.of.at = int32(len(f.waits)) //nolint:gosec // G115: parts are far fewer
		f.waits = append(f.waits, k.of)
	}
	r.oldest = r.front().seq
	k.of.ready.push(k)
	p.byAge.push(waitAge{r.oldest, k})
	if p.why == byShape {
		s.passOver(f.queue)
	}
}

// waitsIn returns what a flow has in a part. last is what one of its ready queues was in last.
func (f *flow) waitsIn(p *waitPart, last *flowWaits) *flowWaits {
	if last != nil && last.part == p && last.pos >= 0 {
		return last
	}
	for _, w := range f.waits {
		if w.part == p {
			return w
		}
	}
	if last == nil || last.pos >= 0 {
		last = &flowWaits{flow: f, pos: -1}
	}
	last.part = p
	return last
}

// leavePart removes a ready queue from its part.
func (s *Scheduler) leavePart(k *gateWait) {
	p, w, f := k.part, k.of, k.of.flow
	w.ready.remove(int(k.pos))
	p.byAge.remove(int(k.agePos))
	if len(w.ready.items) == 0 {
		p.order.remove(w.pos)
		last := len(f.waits) - 1
		f.waits[last].at = w.at
		f.waits[w.at] = f.waits[last]
		f.waits[last] = nil
		f.waits = f.waits[:last]
	}
	if len(p.byAge.items) == 0 {
		p.close()
	}
}

// close takes a part out of those that are open.
func (p *waitPart) close() {
	if p.openAt < 0 {
		return
	}
	q, last := p.queue, len(p.queue.open)-1
	q.open[last].openAt = p.openAt
	q.open[p.openAt] = q.open[last]
	q.open[last] = nil
	q.open = q.open[:last]
	p.openAt = -1
}

// recheckWait brings a ready queue that was parked at a gate up to date after a change of its
// tasks. Without tasks it doesn't wait, and if it gets some, it does only if its gate is still
// blocked.
func (s *Scheduler) recheckWait(r *readyQueue) {
	k, p := r.gated, r.gated.part
	switch {
	case k.pos >= 0 && r.n == 0:
		s.leavePart(k)
		if q := p.queue; !p.gate.blocked || !q.awaitsCapacity() {
			s.relistQueue(q)
		}
	case k.pos >= 0 && r.front().seq != r.oldest:
		r.oldest = r.front().seq
		p.byAge.items[k.agePos].age = r.oldest
		p.byAge.fix(int(k.agePos))
		k.of.ready.fix(int(k.pos))
	case k.pos < 0 && r.n > 0 && !p.gate.blocked:
		r.parked, k.part = listable, nil
	case k.pos < 0 && r.n > 0:
		s.joinPart(r, p)
	}
}

// resumeWait returns a ready queue whose gate is open to the order.
func (s *Scheduler) resumeWait(k *gateWait) {
	s.leavePart(k)
	why := k.part.why
	k.part = nil
	s.unpark(k.ready, why)
}

// resumeFirst returns those ready queues of a queue and priority to the order that would be the
// first in it. Its first owner must have its present key.
func (s *Scheduler) resumeFirst(q *queue, p Priority) {
	for _, part := range slices.Backward(q.open) { // backwards: resumeWait may remove it
		if part.priority != p {
			continue
		}
		h := &part.order
		for {
			key := s.ownerKey(h.items[0].of.flow)
			if key == h.items[0].key {
				break
			}
			h.raise(key)
		}
		k := h.items[0].of.ready.items[0]
		if l := &q.ready[p]; len(l.items) == 0 || s.ordered(k.ready, l.items[0].of.levels[p].ready.items[0].readyQueue) {
			s.resumeWait(k)
		}
	}
}

// resumeOldest returns those ready queues of a queue to the order that may be the oldest in it.
func (s *Scheduler) resumeOldest(q *queue) {
	for _, part := range slices.Backward(q.open) {
		s.resumeWait(part.byAge.items[0].gateWait)
	}
}

// setBlocked blocks or unblocks a gate.
func (s *Scheduler) setBlocked(g *gate, blocked bool) {
	if g.blocked == blocked {
		return
	}
	g.blocked = blocked
	for _, p := range g.parts {
		switch {
		case len(p.byAge.items) == 0:
		case !blocked:
			s.open(p)
		default: // the queue leaves the order when it is at the front, unless it is paused or full
			if p.close(); p.why == byShape {
				s.passOver(p.queue)
			}
		}
	}
}

// open lets what waits in a part return to the order.
func (s *Scheduler) open(p *waitPart) {
	q := p.queue
	if len(q.open) >= s.maxOpen {
		for len(p.byAge.items) > 0 {
			s.resumeWait(p.byAge.items[0].gateWait)
		}
		return
	}
	p.openAt = int32(len(q.open)) //nolint:gosec // G115: at most maxOpen
	q.open = append(q.open, p)
	s.relistQueue(q)
}

// lowerWaits moves what waits of an owner forward after the end of an attempt.
func (s *Scheduler) lowerWaits(f *flow) {
	now := s.ownerKey(f)
	for _, w := range f.waits {
		w.part.order.lower(w.pos, &now)
	}
}

// in reports whether a ready queue waits in a part for a reason.
func (r *readyQueue) in(why parking) bool {
	return r.gated != nil && r.gated.pos >= 0 && r.gated.part.why == why
}

// rekey brings the keys of owners up to date after a change of the fleet.
func (p *waitPart) rekey(s *Scheduler) {
	h := &p.order
	for i := range h.items {
		h.items[i].key = s.ownerKey(h.items[i].of.flow)
	}
	h.init()
}

// oldestWait returns the ready queue with the oldest valid task of a part of those for which a
// condition holds; nil without one.
func (s *Scheduler) oldestWait(p *waitPart, holds func(*readyQueue) bool, valid func(TaskRef) bool) *readyQueue {
	for {
		r := p.oldestFrom(0, nil, holds)
		if r == nil || !s.isStale(r.front(), valid) {
			return r
		}
		s.drop(r)
	}
}

// oldestFrom returns best, or the ready queue with an older task from a position of byAge on.
func (p *waitPart) oldestFrom(pos int, best *readyQueue, holds func(*readyQueue) bool) *readyQueue {
	if pos >= len(p.byAge.items) || best != nil && p.byAge.items[pos].age > best.oldest {
		return best
	}
	if r := p.byAge.items[pos].ready; holds(r) {
		return r
	}
	return p.oldestFrom(2*pos+2, p.oldestFrom(2*pos+1, best, holds), holds)
}
