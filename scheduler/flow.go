package scheduler

// agedStart is how often a queue starts its oldest task: at every 16th start. A task with
// a older ones in its queue, which fits somewhere and which nothing else holds back,
// starts within 16·(a+1) starts of the queue. It is a count, not a time, so that it needs
// no time per task, and a new leader delays no task by more than 16 starts.
const agedStart = 16

// Why a ready queue is not listed, although it has tasks. It was at the front, and
// returns there as soon as the reason may have ended.
type parking uint8

const (
	listable     parking = iota
	byShape              // no worker has capacity for it: in shape.parked
	byLimit              // its class is full
	byNamedLimit         // a named limit of its class is full: in namedLimit.waiting
	byQuota              // its queue holds too much of a resource: in queue.over
	byAffinity           // it waits for the worker of its key: in an affinityPart
)

// firstQueue returns the queue whose turn it is, or nil if no task may start.
func (s *Scheduler) firstQueue() *queue {
	h := &s.byShare
	for len(h.items) > 1 {
		q := h.items[0]
		now := s.queueKey(q)
		if now == q.order {
			return q
		}
		q.order = now
		h.down(0)
	}
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

// firstReady returns the ready queue whose turn it is within a queue, or nil.
func (s *Scheduler) firstReady(q *queue) *readyQueue {
	for p := Urgent; p >= Low; p-- {
		h := &q.ready[p]
		for len(h.items) > 1 {
			l := h.items[0]
			now := s.ownerKey(l.flow)
			if now == l.order {
				break
			}
			l.order = now
			h.down(0)
		}
		if len(h.items) > 0 {
			return h.items[0].ready.items[0]
		}
	}
	return nil
}

// oldestReady returns the listed ready queue with the oldest task of a queue, or nil. The
// age of a flow in the heap is that of a task which may have started since: it is brought
// up to date when the flow is at the front.
func (s *Scheduler) oldestReady(q *queue) *readyQueue {
	for len(q.byAge.items) > 0 {
		f := q.byAge.items[0]
		r := f.oldest()
		switch {
		case r == nil:
			q.byAge.remove(0)
		case len(q.byAge.items) > 1 && r.oldest != f.age:
			f.age = r.oldest
			q.byAge.down(0)
		default:
			return r
		}
	}
	return nil
}

// oldest returns the listed ready queue with the oldest task of a flow, or nil.
func (f *flow) oldest() (best *readyQueue) {
	for p := Low; p <= Urgent; p++ {
		if h := &f.levels[p].ready; len(h.items) > 0 && (best == nil || h.items[0].oldest < best.oldest) {
			best = h.items[0]
		}
	}
	return best
}

func (s *Scheduler) queueKey(q *queue) orderKey {
	return orderKey{share: s.fleet.dominant(&q.held), weight: q.weight, served: q.served}
}

func (s *Scheduler) ownerKey(f *flow) orderKey {
	return orderKey{share: s.fleet.dominant(&f.held), weight: 1, served: f.served}
}

// lowered moves a queue and an owner forward after the end of an attempt. With one queue
// and one owner there is nothing to order.
func (s *Scheduler) lowered(f *flow) {
	q := f.queue
	if len(s.byShare.items) < 2 && len(q.byAge.items) < 2 {
		return
	}
	if q.pos >= 0 && len(s.byShare.items) > 1 {
		if now := s.queueKey(q); now.before(&q.order) {
			q.order = now
			s.byShare.up(q.pos)
		}
	}
	if len(q.byAge.items) < 2 {
		return
	}
	now := s.ownerKey(f)
	for p := Low; p <= Urgent; p++ {
		if l := &f.levels[p]; l.pos >= 0 && now.before(&l.order) {
			l.order = now
			q.ready[p].up(l.pos)
		}
	}
}

// rekey brings all keys up to date after a change of the fleet or of a weight.
func (s *Scheduler) rekey() {
	s.reshare = false
	// unordered: each queue is independent of the others
	for _, q := range s.queues {
		q.order = s.queueKey(q)
		for p := Low; p <= Urgent; p++ {
			for _, l := range q.ready[p].items {
				l.order = s.ownerKey(l.flow)
			}
			q.ready[p].init()
		}
	}
	s.byShare.init()
}

// relist moves a ready queue to its position after a change of its front or of what holds
// it back, or in or out of the order.
func (s *Scheduler) relist(r *readyQueue) {
	if k := r.wait; k != nil && k.part != nil {
		s.recount(k)
	}
	l := &r.class.flow.levels[r.priority]
	switch listed := r.n > 0 && r.parked == listable; {
	case listed && r.pos >= 0:
		if r.oldest = r.front().seq; len(l.ready.items) > 1 {
			l.ready.fix(r.pos)
		}
	case listed:
		r.oldest = r.front().seq
		l.ready.push(r)
		if sh := r.class.shape; sh.list(1) {
			s.open++
		}
		s.listed(l, r)
	case r.pos >= 0:
		l.ready.remove(r.pos)
		if sh := r.class.shape; sh.list(-1) {
			s.open--
		}
		if len(l.ready.items) == 0 {
			s.unlisted(l, r.priority)
		}
		if r.class.affinity != nil {
			s.wakeNext(r)
		}
	}
}

// listed puts a level into the order after a ready queue was listed there.
func (s *Scheduler) listed(l *level, r *readyQueue) {
	f, q := l.flow, l.flow.queue
	switch {
	case f.agePos < 0:
		f.age = r.oldest
		q.byAge.push(f)
	case r.oldest < f.age:
		f.age = r.oldest
		q.byAge.up(f.agePos)
	}
	if l.pos >= 0 {
		return
	}
	h := &q.ready[r.priority]
	switch len(h.items) {
	case 0: // there is nothing to compare with
	case 1: // nothing was compared with it
		h.items[0].order = s.ownerKey(h.items[0].flow)
		fallthrough
	default:
		l.order = s.ownerKey(f)
	}
	h.push(l)
	s.relistQueue(q)
}

func (s *Scheduler) unlisted(l *level, p Priority) {
	q := l.flow.queue
	q.ready[p].remove(l.pos)
	s.relistQueue(q)
}

// relistQueue puts a queue into the order if tasks of it may start, or out of it.
func (s *Scheduler) relistQueue(q *queue) {
	some := len(q.ready[Low].items)+len(q.ready[Normal].items)+len(q.ready[High].items)+len(q.ready[Urgent].items) > 0
	switch listed := some && !q.paused && !q.full(); {
	case listed && q.pos < 0:
		switch len(s.byShare.items) {
		case 0: // there is nothing to compare with
		case 1: // nothing was compared with it
			s.byShare.items[0].order = s.queueKey(s.byShare.items[0])
			fallthrough
		default:
			q.order = s.queueKey(q)
		}
		s.byShare.push(q)
	case !listed && q.pos >= 0:
		s.byShare.remove(q.pos)
		s.passOver(q)
	}
}

// park takes a ready queue out of the order, for a reason that holds for its first task.
func (s *Scheduler) park(r *readyQueue, why parking) {
	r.parked = why
	s.relist(r)
	q := r.class.flow.queue
	switch why {
	case byShape:
		r.class.shape.parked = append(r.class.shape.parked, r)
		if !r.inBlocked {
			r.inBlocked = true
			q.blocked = append(q.blocked, r)
		}
	case byQuota:
		q.over = append(q.over, r)
	case byNamedLimit:
		l := r.class.fullLimit()
		l.waiting = append(l.waiting, r)
	case byAffinity:
		s.await(r)
	case byLimit, listable:
	}
}

// list counts a ready queue that was listed or unlisted, and reports whether the shape now
// has the first one, or no longer any, while it is not blocked.
func (sh *shape) list(by int) bool {
	before := sh.listed
	sh.listed += by
	return !sh.blocked && (before == 0 || sh.listed == 0)
}

// unpark returns a ready queue to the order, if it is still held back for this reason.
func (s *Scheduler) unpark(r *readyQueue, why parking) {
	if r.parked == why {
		r.parked = listable
		s.relist(r)
	}
}

// unparkOver returns to the order what the quotas of a queue held back.
func (s *Scheduler) unparkOver(q *queue) {
	for i, r := range q.over {
		s.unpark(r, byQuota)
		q.over[i] = nil
	}
	q.over = q.over[:0]
}
