package scheduler

import (
	"math"
	"slices"
)

// keepableWorkers are what trials of a TaskView know of the workers that may be reserved, and of
// those that are.
type keepableWorkers struct {
	soonest map[*class]*soonestGroups
	kept    []keptFor // whose end lets a task start at its worker
	known   bool      // kept has been found
}

// soonestGroups has the two soonest groups of workers for a class among those that were looked
// at: see Scheduler.soonest.
type soonestGroups struct {
	looked int
	best   [2]soonestGroup
}

// A soonestGroup is one of them. group is its number from 1; 0: none.
type soonestGroup struct {
	group int
	part  share
}

// otherReservation is the reservation of a worker other than that of the trial. The queue with
// possibleReservation has such a one, or none.
var otherReservation, possibleReservation = &reservation{}, &reservation{}

// start assigns the next task of a ready queue, and reports whether the worker may get further
// ones then: it may not if it is reserved for another task, or if that is not known.
func (t *trial) start(k int) bool {
	c, seq := t.v.ahead[k].class, t.seq(k)
	q := c.flow.queue
	ok := t.only != nil || q.turn != agedStart-1 || !t.maySave(q, seq) && t.reserve(q, seq, k)
	t.next[k]++
	for _, other := range t.v.ahead[k].others {
		t.next[other]++
	}
	if t.assign(c); !ok || t.only != nil {
		return ok
	}
	if t.mayBeWanted() { // one of the queues may get this worker, or another one
		t.v.undecided = true
		return false
	}
	starts := t.v.starts + uint64(len(t.log))
	// unordered: a second reservation in one trial is not decided
	for _, q := range t.v.queues {
		// Whether a task of it is listed is not known.
		if t.v.mayBePassed(q, starts) && !t.reserve(q, math.MaxUint64, -1) {
			return false
		}
	}
	return true
}

// mayBeWanted reports whether a queue that waits for a worker to be reserved may get that of the
// trial: it has a task that could run there. Of the queue of the task, not all are listed.
func (t *trial) mayBeWanted() bool {
	if !t.v.wanted {
		return false
	}
	t.count(len(t.v.ahead) + len(t.v.limited))
	wants := func(a aheadQueue) bool { return a.class.flow.queue.wants && t.w.eligible(a.class.shape) }
	return t.v.class.flow.queue.wants || slices.ContainsFunc(t.v.ahead, wants) || slices.ContainsFunc(t.v.limited, wants)
}

// mayBePassed reports whether a queue may get a reservation after so many starts of the term because
// the others were before it. One that is not passed over yet may be from now on, if what it has
// waits for a shape that was blocked before; the queue of the task has that in the order.
func (v *TaskView) mayBePassed(q *queue, starts uint64) bool {
	passed := q.passed
	if !q.passes {
		passed = v.starts
	}
	return (q.passes || q != v.class.flow.queue) && passed+agedStart <= starts
}

// reserve makes a reservation for the oldest task of a queue that only lacks capacity and is
// before a seq, if there is one, and reports whether the worker of the trial is still free then.
// starting is the ready queue of ahead whose next task starts at a turn by age: then the queue
// gets a reservation if it has such a task. Negative: that is not known.
func (t *trial) reserve(q *queue, before uint64, starting int) bool {
	if possible := q.kept == possibleReservation; q.kept != nil && (!possible || starting < 0) || q.wants {
		return true
	}
	c, at := t.oldestBlocked(q, before)
	if c == nil || starting >= 0 && slices.Contains(t.v.ahead[starting].others, at) {
		return true // the reservation is for the task that starts, and ends with that
	}
	kept, known := t.isSoonest(c)
	eligible := t.w.eligible(c.shape)
	known = known && (!eligible || !t.v.wanted) // the soonest may be reserved for a queue that wants one
	if len(t.reserved) > 0 {
		known = known && !eligible && !t.contested // the soonest may be reserved already
	} else {
		t.contested = eligible
	}
	if kept && known && starting >= 0 && q.kept == nil {
		return false
	}
	if kept || !known {
		t.v.undecided = true
		return false
	}
	if q.hasQuotas() && q.saving == nil { // they are saved for it, too
		t.v.undecided = true
		return false
	}
	if q.kept == nil {
		t.reserved = append(t.reserved, q)
	}
	if q.kept = otherReservation; starting < 0 {
		q.kept = possibleReservation
	}
	return true
}

// oldestBlocked is Scheduler.oldestBlocked for tasks before a seq. It returns the class, and the
// position of its ready queue in ahead; the one after the last: that of the task itself.
func (t *trial) oldestBlocked(q *queue, before uint64) (oldest *class, at int) {
	look := func(c *class, p Priority, seq uint64, k int) {
		if seq < before && c.flow.queue == q && c.mayStart(p) && t.isBlocked(c) {
			oldest, before, at = c, seq, k
		}
	}
	t.count(len(t.v.ahead))
	for k := range t.v.ahead {
		if a := &t.v.ahead[k]; t.next[k] < len(a.seqs) || a.more {
			look(a.class, a.priority, t.seq(k), k)
		}
	}
	look(t.v.class, t.v.priority, t.v.seq, len(t.v.ahead))
	return oldest, at
}

// isBlocked reports whether tasks of a class fit no worker now, and could run on one if it were
// idle.
func (t *trial) isBlocked(c *class) bool {
	if t.w.fitsWithSlot(c.shape) {
		return false
	}
	if c.affinity != nil && t.v.anyWorker(func(w *worker) bool { return w.ranked() && w.fits(c.shape) }) {
		return false // it waits for the worker of its key
	}
	return t.w.eligible(c.shape) || t.v.soonest(c, t.from, share{0, 1}).group > 0
}

// isSoonest reports whether a reservation for a class keeps the worker of the trial, which has
// free slots. It is not known if workers that are equal to it differ in that.
func (t *trial) isSoonest(c *class) (kept, known bool) {
	if !t.w.eligible(c.shape) {
		return false, true
	}
	part := t.w.mustEnd(c.shape)
	other := t.v.soonest(c, t.from, part)
	if other.group > 0 {
		switch order := compareShares(part, 1, other.part, 1); {
		case order > 0:
			return false, true
		case order == 0 && t.equal != 1: // their ids decide
			return false, false
		case order == 0:
			return t.from.id < t.v.groups[other.group-1].ids[0], true
		}
	}
	if t.equal > 1 && t.from.isKeepable(c.shape) {
		return true, compareShares(part, 1, t.from.mustEnd(c.shape), 1) < 0
	}
	return true, true
}

// isKeepable reports whether a worker could be reserved for a task of a shape.
func (w *worker) isKeepable(c *shape) bool { return w.usable() && w.kept == nil && w.eligible(c) }

// soonest returns the soonest group for a class, that of a worker excepted, or any that is sooner
// than a part.
func (v *TaskView) soonest(c *class, except *worker, than share) (found soonestGroup) {
	s := v.keepable.soonest[c]
	if s == nil {
		if v.keepable.soonest == nil {
			v.keepable.soonest = make(map[*class]*soonestGroups)
		}
		s = new(soonestGroups)
		v.keepable.soonest[c] = s
	}
	v.group()
	for {
		found = s.best[0]
		if found.group > 0 && v.groups[found.group-1].worker.id == except.id {
			found = s.best[1]
		}
		if s.looked == len(v.groups) || found.group > 0 && compareShares(found.part, 1, than, 1) < 0 {
			return found
		}
		w := &v.groups[s.looked].worker
		s.looked++
		if !w.isKeepable(c.shape) {
			continue
		}
		x := soonestGroup{s.looked, w.mustEnd(c.shape)}
		for i := range s.best {
			if s.best[i].group == 0 || compareShares(x.part, 1, s.best[i].part, 1) < 0 {
				x, s.best[i] = s.best[i], x
			}
		}
	}
}

// mayReserve reports whether a start of a task before the task may reserve the worker, or end a
// reservation. A view for which it is asked has one queue, and its worker has all slots: the part
// of it that must end before a task fits only grows with what it gets.
func (t *trial) mayReserve() bool {
	q, n := t.v.class.flow.queue, 0
	if t.v.wanted {
		return true
	}
	for _, k := range t.alive {
		if n += len(t.v.ahead[k].seqs); t.freesKept(k) {
			return true
		}
	}
	if aged := int(q.turn)+n >= agedStart; q.kept != nil || q.wants || !aged && !q.passes {
		return false
	}
	return slices.ContainsFunc(t.v.ahead, func(a aheadQueue) bool {
		if !t.w.eligible(a.class.shape) || t.w.fitsWithSlot(a.class.shape) {
			return false
		}
		kept, known := t.isSoonest(a.class)
		return kept || !known
	})
}

// freesKept reports whether the next task of a ready queue is one that a worker is kept free for
// which another task could take then.
func (t *trial) freesKept(k int) bool {
	v := t.v
	if !v.keepable.known {
		v.keepable.known = true
		v.group()
		for i := range v.fleet.loads {
			kept := v.fleet.loads[i].kept
			if w := &v.groups[v.groupOf[i]].worker; kept != nil && (w.fits(v.class.shape) || slices.ContainsFunc(v.ahead, func(a aheadQueue) bool { return w.fits(a.class.shape) })) {
				v.keepable.kept = append(v.keepable.kept, *kept)
			}
		}
	}
	a := &v.ahead[k]
	return t.only == nil && t.next[k] == 0 && slices.ContainsFunc(v.keepable.kept, func(x keptFor) bool {
		return a.priority == x.priority && a.class.first().id == x.first
	})
}

// endsSaving reports whether the next task of a ready queue is one for which quota is saved: others
// of its queue may start then, in an order that is not known.
func (t *trial) endsSaving(k int) bool {
	a := &t.v.ahead[k]
	x := a.class.flow.queue.saving
	return t.only == nil && x != nil && a.priority == x.priority && a.class.first().id == x.first && t.seq(k) == x.seq
}

// maySave reports whether a turn by age of a queue may save quota for a task before a seq, which
// would hold back others.
func (t *trial) maySave(q *queue, before uint64) bool {
	if q.saving != nil || len(q.max) == 0 {
		return false
	}
	short := func(c *class) bool { return c.flow.queue == q && !c.full() && q.isShort(c) }
	some := slices.ContainsFunc(t.v.limited, func(a aheadQueue) bool { return short(a.class) })
	for k := range t.v.ahead {
		some = some || short(t.v.ahead[k].class) && t.seq(k) < before
	}
	t.v.undecided = t.v.undecided || some
	return some
}
