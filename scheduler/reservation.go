package scheduler

import (
	"cmp"
	"slices"
)

// A reservation keeps a worker free for one task that fits no worker now, until it has
// capacity for it. Otherwise a steady flow of smaller tasks would take each slot that
// becomes free. A queue has at most one, and a worker is kept for at most one task.
// Nothing is stopped for it. For an urgent task for which attempts are stopped, a queue has another
// one: see preempt.go.
type reservation struct {
	ready  *readyQueue
	seq    uint64 // of the task, at the front of ready
	worker *worker
	queue  string // its name
	due    bool   // the worker has capacity for the task
	// preempts: attempts end for the task. Its start counts for the turn by age, like those that
	// overtake.
	preempts bool
}

// keepForOldest makes a reservation at the turn by age of a queue: for its oldest task that
// is blocked and older than the one that starts, whose seq is before.
func (s *Scheduler) keepForOldest(q *queue, before uint64, valid func(TaskRef) bool) {
	if q.kept != nil || q.wants || len(s.blocked) == 0 {
		return
	}
	if r := s.oldestBlocked(q, valid); r != nil && r.front().seq < before {
		s.want(q)
		s.keepWanted(valid)
	}
}

// want lets the next keepWanted make a reservation for a queue, or a later one as soon as a worker
// can be kept, after the queues that have waited for one.
func (s *Scheduler) want(q *queue) {
	q.wants, s.unkept = true, true
	s.wants = append(s.wants, q)
}

// keepWanted makes the reservations that are wanted, as far as workers can be kept. While a worker
// has capacity for the task, others may come first there: the next start tries again, and until
// then no later queue gets this worker.
func (s *Scheduler) keepWanted(valid func(TaskRef) bool) {
	all := s.unkept // else only those whose task fitted a worker
	s.unkept, s.fitting = false, false
	var taken []*worker
	still := s.wants[:0]
	for _, q := range s.wants {
		if fitted := q.wanted.worker != nil; all || fitted {
			switch r := s.wantedTask(q, valid); {
			case r == nil || q.kept != nil:
				q.wants = false
			case s.stillFits(&q.wanted, r.class.shape):
				s.fitting, taken, fitted = true, append(taken, q.wanted.worker), false
			default:
				q.wants = !s.keep(r, taken)
			}
			s.unkept = s.unkept || fitted // its worker may be kept for another one
		}
		if q.wants {
			still = append(still, q)
		} else {
			q.wanted = reservation{}
		}
	}
	clear(s.wants[len(still):])
	s.wants = still
}

// wantedTask returns the ready queue with the task for which a queue wants a worker: that of the
// last call while it waits, whether or not it is blocked, or an older one that is blocked. nil: no
// task waits that some worker could run.
func (s *Scheduler) wantedTask(q *queue, valid func(TaskRef) bool) *readyQueue {
	r, k := s.oldestBlocked(q, valid), &q.wanted
	if k.ready != nil && (r == nil || k.seq < r.front().seq) && s.waits(k.ready, k.seq, valid) && s.someUsable(k.ready.class.shape) {
		return k.ready
	}
	if r != nil {
		*k = reservation{ready: r, seq: r.front().seq}
	}
	return r
}

// stillFits sets the worker of a wanted reservation to one that has capacity for its shape now,
// mostly the same as at the last call, and reports whether there is one.
func (s *Scheduler) stillFits(k *reservation, sh *shape) bool {
	fits := func(w *worker) bool { return w.ranked() && w.fits(sh) }
	if w := k.worker; w != nil && s.workers[w.id] == w && fits(w) {
		return true
	}
	k.worker = nil
	if !sh.blocked {
		list := s.eligible(sh)
		if i := slices.IndexFunc(list, fits); i >= 0 {
			k.worker = list[i]
		}
	}
	return k.worker != nil
}

// someUsable reports whether a worker could run a shape if it were idle. Unlike couldRun, it does
// not read workers that could not.
func (s *Scheduler) someUsable(sh *shape) bool {
	return slices.ContainsFunc(s.eligible(sh), (*worker).usable)
}

// unwant ends the wait of a queue for a worker: the task starts elsewhere.
func (s *Scheduler) unwant(q *queue) {
	s.unkept = s.unkept || q.wanted.worker != nil
	q.wants, q.wanted = false, reservation{}
	s.wants = slices.DeleteFunc(s.wants, func(x *queue) bool { return x == q })
}

// oldestBlocked returns the ready queue with the oldest task of a queue that only lacks
// capacity, and that some worker could run if it were idle; nil without one.
func (s *Scheduler) oldestBlocked(q *queue, valid func(TaskRef) bool) (best *readyQueue) {
	for _, p := range q.parts {
		if !p.shape.blocked {
			continue
		}
		if r := s.oldestWait(p, (*readyQueue).mayStart, valid); r != nil && (best == nil || r.oldest < best.oldest) && s.someUsable(p.shape) {
			best = r
		}
	}
	return best
}

// keep makes a reservation for the first task of a ready queue, if a worker can be kept that is not
// taken.
func (s *Scheduler) keep(r *readyQueue, taken []*worker) bool {
	w := s.soonest(r.class.shape, taken)
	if w == nil {
		return false
	}
	r.class.flow.queue.kept = s.keepWorker(r, w)
	return true
}

// keepWorker makes a reservation for the first task of a ready queue on a worker that is not kept.
func (s *Scheduler) keepWorker(r *readyQueue, w *worker) *reservation {
	k := &reservation{ready: r, seq: r.front().seq, worker: w, queue: r.class.flow.queue.name}
	w.kept = k
	s.reservations = append(s.reservations, k)
	s.save(r.class.flow.queue, r)
	s.rank(w)
	return k
}

// soonest returns the worker that will have capacity for a shape soonest, as far as that
// can be known without the durations of tasks: the one of which the smallest part of what
// it holds must end.
func (s *Scheduler) soonest(sh *shape, taken []*worker) (best *worker) {
	var least share
	for _, w := range s.eligible(sh) {
		if !w.usable() || w.kept != nil || slices.Contains(taken, w) {
			continue
		}
		if part := w.mustEnd(sh); best == nil || compareShares(part, 1, least, 1) < 0 {
			best, least = w, part
		}
	}
	return best
}

// mustEnd returns which part of what a worker holds must end before a shape fits: the
// largest of its slots and of each resource.
func (w *worker) mustEnd(c *shape) share {
	part := share{0, 1}
	if w.used >= w.slots {
		part = share{uint64(w.used-w.slots) + 1, max(uint64(w.used), 1)}
	}
	for _, n := range c.needs {
		if lack := n.amount - w.free(n.resource); lack > 0 {
			p := share{uint64(lack), uint64(max(amount(w.taken, n.resource), 1))} //nolint:gosec // positive
			if compareShares(p, 1, part, 1) > 0 {
				part = p
			}
		}
	}
	return part
}

// unkeep ends a reservation.
func (s *Scheduler) unkeep(k *reservation) {
	w, q := k.worker, k.ready.class.flow.queue
	if w.kept, s.unkept = nil, true; k.preempts {
		q.preempting = nil
	} else {
		q.kept = nil
	}
	s.reservations = slices.DeleteFunc(s.reservations, func(x *reservation) bool { return x == k })
	if s.workers[w.id] == w {
		s.rank(w)
		s.unblock(w)
		if !s.affinity.stale {
			s.wakeKeyed(w)
		}
	}
}

// recheck updates a reservation after a change of its worker.
func (s *Scheduler) recheck(k *reservation) {
	w := k.worker
	if k.due = w.usable() && w.used < w.slots && w.fitsWithSlot(k.ready.class.shape); !w.usable() || !w.eligible(k.ready.class.shape) {
		s.unkeep(k)
	}
}

// isFor reports whether a worker is kept for the first task of a ready queue, or of that of
// another alternative: it is the same one. In a fork, the task for which a queue wants a worker is
// not known.
func (k *reservation) isFor(r *readyQueue) bool {
	return k.ready != nil && k.ready.priority == r.priority && k.ready.class.first() == r.class.first() && k.ready.n > 0 && k.ready.front().seq == k.seq
}

// holds reports whether the task of a reservation still waits, and lacks only capacity, or some of
// the quotas that are saved for it.
func (s *Scheduler) holds(k *reservation, valid func(TaskRef) bool) bool {
	r := k.ready
	x := r.class.flow.queue.saving
	return s.waits(r, k.seq, valid) && (r.mayStart() || x != nil && x.isFor(r))
}

// startKept starts the first task for which the worker that was kept for it has capacity.
func (s *Scheduler) startKept(valid func(TaskRef) bool) (Assignment, bool) {
	for i := 0; i < len(s.reservations); i++ {
		k := s.reservations[i]
		switch {
		case !k.due:
			continue
		case !s.holds(k, valid):
			s.unkeep(k)
			i--
		case !k.ready.mayStart(): // until attempts of its queue end
			continue
		default:
			if k.preempts {
				k.ready.class.flow.queue.countsForAge()
			}
			return s.startInTurn(k.ready, k.worker, valid), true
		}
	}
	return Assignment{}, false
}

// dropReservations drops those whose task no longer waits, and reports whether there were
// any: their workers may get other tasks.
func (s *Scheduler) dropReservations(valid func(TaskRef) bool) bool {
	before := len(s.reservations)
	for _, k := range slices.Clone(s.reservations) {
		if !s.holds(k, valid) {
			s.unkeep(k)
		}
	}
	return len(s.reservations) < before
}

// passOver remembers a queue of which nothing is listed, and some waits for capacity. It may
// be first in order, but does not start anything, so that no turn by age of its own would
// make a reservation.
func (s *Scheduler) passOver(q *queue) {
	if q.pos < 0 && !q.passes && len(s.blocked) > 0 && q.awaitsCapacity() {
		q.passes, q.passed = true, s.starts
		s.passed = append(s.passed, q)
	}
}

// keepForPassed wants a reservation for each queue that was passed over by as many starts of
// others as there are between two turns by age. All of them are wanted before the first is made,
// which reads all that are wanted: mostly, many queues were passed over by the same starts.
func (s *Scheduler) keepForPassed() {
	for n := len(s.passed); n > 0 && s.passed[0].passed+agedStart <= s.starts; n-- {
		q := s.passed[0]
		s.passed = slices.Delete(s.passed, 0, 1)
		if q.passes = false; q.pos < 0 && q.kept == nil && !q.wants {
			s.want(q)
		}
		s.passOver(q)
	}
}

// A Reservation is a worker that is kept free for a task.
type Reservation struct {
	Queue  string
	Worker WorkerID
	Task   TaskRef
}

// Reservations returns the workers that are kept free, by worker. Tasks that were
// cancelled since the last Next may be among them.
func (s *Scheduler) Reservations() []Reservation {
	list := make([]Reservation, 0, len(s.reservations))
	for _, k := range s.reservations {
		if r := k.ready; r.n > 0 && r.front().seq == k.seq {
			list = append(list, Reservation{k.queue, k.worker.id, r.front().task()})
		}
	}
	slices.SortFunc(list, func(a, b Reservation) int { return cmp.Compare(a.Worker, b.Worker) })
	return list
}
