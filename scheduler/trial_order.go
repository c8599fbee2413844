package scheduler

import "slices"

// A trialStart is what a trial has assigned, to be undone.
type trialStart struct {
	class               *class
	flowServed, qServed uint64
	turn                uint32
}

// copyFlow returns a copy of what decides about the order of a flow.
func (v *TaskView) copyFlow(f *flow) *flow {
	if x := v.flows[f]; x != nil {
		return x
	}
	if v.flows == nil {
		v.flows, v.queues = make(map[*flow]*flow), make(map[*queue]*queue)
	}
	q := v.queues[f.queue]
	if q == nil {
		o := f.queue
		q = &queue{
			name: o.name, weight: o.weight, limit: o.limit, max: slices.Clone(o.max), paused: o.paused,
			held: o.held.clone(), turn: o.turn, served: o.served, pos: -1, passed: o.passed, passes: o.passes, wants: o.wants, kept: o.kept, saving: o.saving,
		}
		v.queues[o] = q
	}
	x := &flow{queue: q, owner: f.owner, held: f.held.clone(), served: f.served, agePos: -1}
	v.flows[f] = x
	return x
}

func (u *usage) clone() usage { return usage{u.slots, slices.Clone(u.taken)} }

// mixed reports whether shares of different resources are compared, so that the size of
// the fleet decides about the order.
func (v *TaskView) mixed() bool {
	if len(v.flows) < 2 {
		return false
	}
	return v.class.sharesResources() || slices.ContainsFunc(v.ahead, func(a aheadQueue) bool { return a.class.sharesResources() })
}

// sharesResources reports whether the shares of the owner and the queue of a class may be those
// of a resource.
func (c *class) sharesResources() bool {
	return len(c.needs) > 0 || len(c.flow.held.taken) > 0 || len(c.flow.queue.held.taken) > 0
}

// changeFleet makes the fleet of the view that with the changed worker, and returns the
// one before.
func (t *trial) changeFleet() (before fleet) {
	before = t.v.capacity
	if len(t.v.flows) > 1 && t.only == nil {
		f := fleet{before.slots, slices.Clone(before.total)}
		f.remove(t.from)
		f.add(&t.w)
		t.v.capacity = f
	}
	return before
}

// first returns the position in alive of the ready queue whose next task is the first in
// order that nothing but capacity holds back; the one after the last: the task itself is;
// negative: none.
func (t *trial) first() int {
	best, first := -1, len(t.next)
	if t.v.class.mayStart(t.v.priority) {
		best = len(t.alive)
	}
	t.count(len(t.alive))
	for at, k := range t.alive {
		if t.v.ahead[k].class.mayStart(t.v.ahead[k].priority) && (best < 0 || t.before(k, first)) {
			best, first = at, k
		}
	}
	return best
}

// A contender is the next task of a ready queue, or the task of the view.
type contender struct {
	flow     *flow
	priority Priority
	seq      uint64
}

func (t *trial) contender(k int) contender {
	if k == len(t.next) {
		return contender{t.v.class.flow, t.v.priority, t.v.seq}
	}
	a := &t.v.ahead[k]
	return contender{a.class.flow, a.priority, t.seq(k)}
}

func (t *trial) before(k, other int) bool {
	a, b := t.contender(k), t.contender(other)
	return t.v.before(&a, &b)
}

// before is the order of Scheduler.Next.
func (v *TaskView) before(a, b *contender) bool {
	f, p := a.flow, b.flow
	if f.queue != p.queue {
		v.watchSlots(&f.queue.held, f.queue.weight, &p.queue.held, p.queue.weight)
		x, y := v.queueKey(f.queue), v.queueKey(p.queue)
		return x.before(&y) || !y.before(&x) && f.queue.name < p.queue.name
	}
	switch {
	case f.queue.turn == agedStart-1:
		return a.seq < b.seq
	case a.priority != b.priority:
		return a.priority > b.priority
	case f != p:
		v.watchSlots(&f.held, 1, &p.held, 1)
		x, y := v.ownerKey(f), v.ownerKey(p)
		return x.before(&y) || !y.before(&x) && f.owner.before(p.owner)
	}
	return a.seq < b.seq
}

func (v *TaskView) queueKey(q *queue) orderKey {
	return orderKey{v.capacity.dominant(&q.held), q.weight, q.served}
}

func (v *TaskView) ownerKey(f *flow) orderKey {
	return orderKey{v.capacity.dominant(&f.held), 1, f.served}
}

// assign takes what a task of a class needs.
func (t *trial) assign(c *class) {
	f := c.flow
	q := f.queue
	t.log = append(t.log, trialStart{c, f.served, q.served, q.turn})
	t.w.used++
	for _, n := range c.needs {
		for int(n.resource) >= len(t.w.taken) {
			t.w.taken = append(t.w.taken, 0)
		}
		t.w.taken[n.resource] += n.amount
	}
	if c.group != nil {
		c.group.held++
	}
	for _, l := range c.limits {
		l.held++
		l.tokens-- // unused without a rate
	}
	f.started(c, uint64(len(t.log)))
}

// undo releases what the trial has assigned.
func (t *trial) undo() {
	for _, x := range slices.Backward(t.log) {
		f := x.class.flow
		if x.class.group != nil {
			x.class.group.held--
		}
		for _, l := range x.class.limits {
			l.held--
			l.tokens++
		}
		f.held.remove(x.class)
		f.queue.held.remove(x.class)
		f.served, f.queue.served, f.queue.turn = x.flowServed, x.qServed, x.turn
	}
	t.log = t.log[:0]
	for _, q := range t.reserved {
		q.kept = nil
	}
	t.reserved = t.reserved[:0]
}

// A slotOrder finds how many more slots of the fleet change the order of a trial: see
// leastSlotsMixed.
type slotOrder struct {
	watched bool
	next    uint64 // at least so many more; 0: none are known
}

// watchSlots records after how many more slots the shares of two usages may compare otherwise:
// where the share of slots of one crosses the share of a resource of one.
func (v *TaskView) watchSlots(a *usage, x uint32, b *usage, y uint32) {
	if v.order.watched {
		v.watchCrossing(a, x, a, x)
		v.watchCrossing(b, y, b, y)
		v.watchCrossing(a, x, b, y)
		v.watchCrossing(b, y, a, x)
	}
}

// watchCrossing records after how many more slots the share of slots of a compares otherwise with
// that of a resource of b. It only shrinks.
func (v *TaskView) watchCrossing(a *usage, x uint32, b *usage, y uint32) {
	for r, taken := range b.taken {
		of := share{taken, v.capacity.of(r)}
		compare := func(more uint64) int { return compareShares(share{a.slots, max(v.capacity.slots+more, 1)}, x, of, y) }
		low, high := uint64(0), uint64(MaxSlots)
		if v.order.next > 0 {
			high = v.order.next
		}
		before := compare(low)
		if taken == 0 || compare(high) == before {
			continue
		}
		for high-low > 1 { // the order at low is as before
			if middle := low + (high-low)/2; compare(middle) == before {
				low = middle
			} else {
				high = middle
			}
		}
		v.order.next = high
	}
}
