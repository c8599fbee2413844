package scheduler

import "slices"

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
	byShape              // no worker had capacity for it: in a waitPart if it has tasks
	byLimit              // its class is full
	byNamedLimit         // a named limit of its class is full: in its list, or a waitPart
	byQuota              // its queue holds too much of a resource: in its list, or a waitPart
	byAffinity           // it waits for the worker of its key: in an affinityPart
)

// firstQueue returns the queue whose turn it is, or nil if no task may start.
func (s *Scheduler) firstQueue() *queue {
	h := &s.byShare
	for len(h.items) > 1 {
		now := s.queueKey(h.items[0].of)
		if now == h.items[0].key {
			break
		}
		h.raise(now)
	}
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0].of
}

// firstReady returns the ready queue whose turn it is within a queue, or nil.
func (s *Scheduler) firstReady(q *queue) *readyQueue {
	for p := Urgent; p >= Low; p-- {
		h := &q.ready[p]
		for len(h.items) > 1 {
			now := s.ownerKey(h.items[0].of)
			if now == h.items[0].key {
				break
			}
			h.raise(now)
		}
		if len(q.open) > 0 {
			s.resumeFirst(q, p)
		}
		if len(h.items) > 0 {
			return h.items[0].of.levels[p].ready.items[0].readyQueue
		}
	}
	return nil
}

// oldestReady returns the listed ready queue with the oldest task of a queue, or nil. The
// age of a flow in the heap is that of a task which may have started since: it is brought
// up to date when the flow is at the front.
func (s *Scheduler) oldestReady(q *queue) *readyQueue {
	if len(q.open) > 0 {
		s.resumeOldest(q)
	}
	for len(q.byAge.items) > 0 {
		f := &q.byAge.items[0]
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
		if h := &f.levels[p].ready; len(h.items) > 0 && (best == nil || h.items[0].age < best.oldest) {
			best = h.items[0].readyQueue
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
	if len(f.waits) > 0 {
		s.lowerWaits(f)
	}
	if len(s.byShare.items) < 2 && len(q.byAge.items) < 2 {
		return
	}
	if q.pos >= 0 && len(s.byShare.items) > 1 {
		now := s.queueKey(q)
		s.byShare.lower(q.pos, &now)
	}
	if len(q.byAge.items) < 2 {
		return
	}
	now := s.ownerKey(f)
	for p := Low; p <= Urgent; p++ {
		if pos := f.pos[p]; pos >= 0 {
			q.ready[p].lower(pos, &now)
		}
	}
}

// rekey brings all keys up to date after a change of the fleet or of a weight.
func (s *Scheduler) rekey() {
	s.reshare = false
	// unordered: each queue is independent of the others
	for _, q := range s.queues {
		for p := Low; p <= Urgent; p++ {
			h := &q.ready[p]
			for i := range h.items {
				h.items[i].key = s.ownerKey(h.items[i].of)
			}
			h.init()
		}
		for _, parts := range [][]*waitPart{q.parts, q.overParts} {
			for _, part := range parts {
				part.rekey(s)
			}
		}
	}
	// unordered: each part is independent of the others
	for _, l := range s.limits {
		for _, part := range l.parts {
			part.rekey(s)
		}
	}
	for i := range s.byShare.items {
		s.byShare.items[i].key = s.queueKey(s.byShare.items[i].of)
	}
	s.byShare.init()
}

// relist moves a ready queue to its position after a change of its front or of what holds
// it back, or in or out of the order.
func (s *Scheduler) relist(r *readyQueue) {
	if k := r.wait; k != nil && k.part != nil {
		s.recount(k)
	}
	if r.gated != nil && r.gated.part != nil {
		s.recheckWait(r)
	}
	l := &r.class.flow.levels[r.priority]
	switch listed := r.n > 0 && r.parked == listable; {
	case listed && r.pos >= 0:
		r.oldest = r.front().seq
		if l.ready.items[r.pos].age = r.oldest; len(l.ready.items) > 1 {
			l.ready.fix(int(r.pos))
		}
		if r.class.affinity != nil {
			s.wakeNext(r)
		}
	case listed:
		r.oldest = r.front().seq
		l.ready.push(readyAge{r.oldest, r})
		s.listed(l, r)
	case r.pos >= 0:
		l.ready.remove(int(r.pos))
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
	f, q, p := l.flow, l.flow.queue, r.priority
	switch {
	case f.agePos < 0:
		q.byAge.push(flowAge{r.oldest, f})
	case r.oldest < q.byAge.items[f.agePos].age:
		q.byAge.items[f.agePos].age = r.oldest
		q.byAge.up(int(f.agePos))
	}
	if f.pos[p] >= 0 {
		return
	}
	h := &q.ready[p]
	if len(h.items) == 1 { // nothing was compared with it
		h.items[0].key = s.ownerKey(h.items[0].of)
	}
	h.push(s.ownerKey(f), f, &f.pos[p])
	s.relistQueue(q)
}

func (s *Scheduler) unlisted(l *level, p Priority) {
	l.flow.queue.ready[p].remove(l.flow.pos[p])
	s.relistQueue(l.flow.queue)
}

// relistQueue puts a queue into the order if tasks of it may start, or out of it.
func (s *Scheduler) relistQueue(q *queue) {
	some := len(q.ready[Low].items)+len(q.ready[Normal].items)+len(q.ready[High].items)+len(q.ready[Urgent].items)+len(q.open) > 0
	switch listed := some && !q.paused && !q.full(); {
	case listed && q.pos < 0:
		h := &s.byShare
		if len(h.items) == 1 { // nothing was compared with it
			h.items[0].key = s.queueKey(h.items[0].of)
		}
		h.push(s.queueKey(q), q, &q.pos)
	case !listed && q.pos >= 0:
		s.byShare.remove(q.pos)
		s.passOver(q)
	}
}

// park takes a ready queue out of the order, for a reason that holds for its first task.
func (s *Scheduler) park(r *readyQueue, why parking) {
	r.parked = why
	s.relist(r)
	switch why {
	case byShape:
		s.joinPart(r, s.capacityPart(r))
	case byQuota:
		s.awaitQuota(r)
	case byNamedLimit:
		s.awaitLimit(r, r.class.fullLimit())
	case byAffinity:
		s.await(r)
	case byLimit, listable:
	}
}

// compact drops what belongs to recycled classes from a list that would grow: what makes it empty
// may not happen for long, while jobs come and go. A list that it leaves nearly full grows, so that
// it is not read again for each of the next elements.
func compact[T any](list []T, recycled func(T) bool) []T {
	if list = slices.DeleteFunc(list, recycled); len(list) > cap(list)*3/4 {
		list = slices.Grow(list, len(list)+1)
	}
	return list
}

// unpark returns a ready queue to the order, if it is still held back for this reason.
func (s *Scheduler) unpark(r *readyQueue, why parking) {
	if r.parked == why {
		r.parked = listable
		s.relist(r)
	}
}
