package scheduler

import "slices"

// A saving keeps what one task of a queue takes of its quotas until the task starts: others of the
// queue start only beside that. Otherwise a steady flow of smaller tasks would take whatever ends
// leave of a quota before it is enough for a large one, or the last running task of the quota
// while a worker is kept free for the large one. A queue has at most one. Its own tasks wait for
// it, and those of other queues do not: they get the workers meanwhile.
type saving struct {
	ready *readyQueue
	seq   uint64  // of the task, at the front of ready
	first ClassID // that stands for the class of the task and its alternatives
	needs []need

	priority Priority // with first: the ready queues that do not wait, of which the task is first
	task     TaskRef
}

// isFor reports whether quota is saved for the first task of a ready queue.
func (x *saving) isFor(r *readyQueue) bool {
	return x.priority == r.priority && x.first == r.class.first().id && x.ready.n > 0 && x.ready.front().seq == x.seq
}

// of returns how much of a resource is saved. x may be nil.
func (x *saving) of(r resourceID) uint64 {
	if x != nil {
		for _, n := range x.needs {
			if n.resource == r {
				return uint64(n.amount) //nolint:gosec // positive
			}
		}
	}
	return 0
}

// savedBeside returns what is saved for others than the first task of a class and priority; nil:
// nothing.
func (q *queue) savedBeside(c *class, p Priority) *saving {
	if q.saving == nil || q.saving.first == c.first().id && q.saving.priority == p {
		return nil
	}
	return q.saving
}

// hasQuotas reports whether a queue has any quota.
func (q *queue) hasQuotas() bool { return q.limit > 0 || len(q.max) > 0 }

// save saves the quotas of a queue for the first task of a ready queue, unless it has none, or
// saves them for another one.
func (s *Scheduler) save(q *queue, r *readyQueue) {
	if q.saving != nil || !q.hasQuotas() {
		return
	}
	q.saving = &saving{ready: r, seq: r.front().seq, first: r.class.first().id, needs: r.class.needs, priority: r.priority, task: r.front().task()}
	s.saving = append(s.saving, q)
}

// unsave ends the saving of a queue.
func (s *Scheduler) unsave(q *queue) {
	q.saving = nil
	s.saving = slices.DeleteFunc(s.saving, func(x *queue) bool { return x == q })
	s.unparkOver(q)
}

// saveForOldest saves quota at the turn by age of a queue: for its oldest task that its quotas hold
// back, if it is older than the one that starts, whose seq is before.
func (s *Scheduler) saveForOldest(q *queue, before uint64, valid func(TaskRef) bool) {
	if q.saving != nil || len(q.max) == 0 {
		return
	}
	if r := s.oldestShort(q, valid); r != nil && r.front().seq < before {
		s.save(q, r)
	}
}

// oldestShort returns the ready queue with the oldest task of a queue that its quotas hold back,
// although they are enough for it alone; nil without one. It may lack capacity, too: some worker
// could run it if it were idle.
func (s *Scheduler) oldestShort(q *queue, valid func(TaskRef) bool) (best *readyQueue) {
	short := func(r *readyQueue) bool { return !r.class.full() && q.isShort(r.class) }
	look := func(r *readyQueue) {
		if r != nil && (best == nil || r.front().seq < best.front().seq) && s.someUsable(r.class.shape) {
			best = r
		}
	}
	for _, r := range q.over {
		for r.n > 0 && s.isStale(r.front(), valid) {
			s.drop(r)
		}
		if r.n > 0 && short(r) {
			look(r)
		}
	}
	for _, parts := range [][]*waitPart{q.overParts, q.parts} {
		for _, p := range parts {
			if !q.leaves(p.shape, nil) {
				look(s.oldestWait(p, short, valid))
			}
		}
	}
	return best
}

// isShort reports whether the quotas of a queue, of which nothing is saved, hold back a class although
// they are enough for one task of it. Those with keys get nothing saved: while one waits for the
// worker of its key, the queue would stand still.
func (q *queue) isShort(c *class) bool {
	return c.affinity == nil && !q.leaves(c.shape, nil) && q.mayAllow(c.shape)
}

// mayAllow reports whether the quotas of a queue are enough for a task of a shape, if it is alone.
func (q *queue) mayAllow(c *shape) bool {
	for _, m := range q.max {
		for _, n := range c.needs {
			if n.resource == m.resource && uint64(n.amount) > m.amount { //nolint:gosec // positive
				return false
			}
		}
	}
	return true
}

// endSavings ends those whose task does not wait any more, is held back by anything else, or could
// run on no worker.
func (s *Scheduler) endSavings(valid func(TaskRef) bool) {
	for _, q := range slices.Backward(s.saving) { // backwards: unsave removes it
		if x := q.saving; !s.waits(x.ready, x.seq, valid) || !s.someUsable(x.ready.class.shape) {
			s.unsave(q)
		}
	}
}

// waits reports whether the first task of a ready queue has a seq and still waits, and nothing but
// capacity and quotas holds it back.
func (s *Scheduler) waits(r *readyQueue, seq uint64, valid func(TaskRef) bool) bool {
	return r.n > 0 && r.front().seq == seq && !r.class.flow.queue.paused && !r.class.full() && !s.isStale(r.front(), valid)
}

// A Saving is the task for which the quotas of a queue are saved.
type Saving struct {
	Queue string
	Task  TaskRef
}

// Savings returns for which tasks quotas are saved, the oldest saving first. Tasks that were
// cancelled since the last Next may be among them.
func (s *Scheduler) Savings() []Saving {
	list := make([]Saving, len(s.saving))
	for i, q := range s.saving {
		list[i] = Saving{q.name, q.saving.task}
	}
	return list
}
