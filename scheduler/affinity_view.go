package scheduler

import "slices"

// A keyedView is what a TaskView knows of tasks with keys. It is nil if neither the task nor
// one before it has a key.
type keyedView struct {
	// homes are the workers of the keys of classes of the view; 0: no usable worker could
	// run the class.
	homes map[*class]WorkerID
	// waiting is how many tasks wait by the worker of their key, or more. stale: the worker of
	// some is not known.
	waiting map[WorkerID]int
	stale   bool
	old     uint64 // what was pushed until this seq may start anywhere while workers are idle
	ends    int64  // see TaskView.KeyWaitEnds
	idle    bool   // a worker has a free slot
}

// viewKeys adds what decides about tasks with keys to a view that has all else.
func (s *Scheduler) viewKeys(v *TaskView, own ClassID) {
	keyed := v.class.affinity != nil
	for i := range v.ahead {
		keyed = keyed || v.ahead[i].class.affinity != nil
	}
	if !keyed {
		return
	}
	k := &keyedView{homes: make(map[*class]WorkerID), waiting: make(map[WorkerID]int), old: s.affinity.old, idle: s.someIdle()}
	v.keyed = k
	if v.class.affinity != nil {
		k.homes[v.class], k.ends = v.key.Worker, s.keyWaitEnds(v.seq)
	}
	for i := range v.ahead {
		x := &v.ahead[i]
		if r := &s.classes[x.class.id].queues[x.priority]; !s.affinity.spent && r.n > 0 {
			x.spills = r.wait.mayStart(s.affinity.round, r.front().seq)
		}
		if c := x.class; c.affinity != nil && c.id != own {
			if a := s.classes[c.id].affinity; a.epoch == s.affinity.epoch {
				k.homes[c] = a.worker.idOrZero()
			}
		}
	}
	for _, c := range s.classes {
		if c.affinity == nil {
			continue
		}
		n := c.queues[Low].n + c.queues[Normal].n + c.queues[High].n + c.queues[Urgent].n
		if a := c.affinity; a.epoch == s.affinity.epoch {
			k.waiting[a.worker.idOrZero()] += n
		} else if n > 0 {
			k.stale = true
		}
	}
}

func (w *worker) idOrZero() WorkerID {
	if w == nil {
		return 0
	}
	return w.id
}

// keyWaitEnds returns until when the task with a seq waits for the worker of its key while
// others are idle, by the clock of Advance; 0: no longer.
func (s *Scheduler) keyWaitEnds(seq uint64) int64 {
	a := &s.affinity
	if seq <= a.old {
		return 0
	}
	next := int64(0)
	for _, x := range a.samples {
		if next = x.at + affinityTick; seq <= x.last {
			return x.at + affinityWait
		}
	}
	return next + affinityWait
}

// KeyWaitEnds returns, for a task that waits for the worker of its key, until when it does
// while others are idle: a time of the clock of Advance, about as exact as its calls are
// frequent. It is 0 if the task may start anywhere now.
func (v *TaskView) KeyWaitEnds() int64 {
	if v.class.affinity == nil {
		return 0
	}
	return v.keyed.ends
}

// WaitsForKey reports whether nothing but the affinity of the task keeps it from starting:
// another worker than that of its key has a free slot for it.
func (v *TaskView) WaitsForKey() bool {
	home := v.homeOf(v.class)
	return home != 0 && !v.startsHome(home, v.class) && v.class.mayStart(v.priority) && v.placedAnywhere(v.class)
}

// homeOf returns the worker for which the task waits, as one of a class, or the tasks before
// it in its ready queue do; 0 if they wait for none: without a key, if no usable worker could
// run the class, or if the task avoids the worker of its key.
func (v *TaskView) homeOf(c *class) WorkerID {
	if c.affinity == nil {
		return 0
	}
	home, known := v.keyed.homes[c]
	if !known {
		home = v.chooseHome(c)
		v.keyed.homes[c] = home
	}
	if home == v.avoid && (c != v.class || !v.follows()) {
		return 0
	}
	return home
}

// follows reports whether tasks are before the task in its ready queue.
func (v *TaskView) follows() bool {
	for i := range v.ahead {
		if a := &v.ahead[i]; a.class == v.class && a.priority == v.priority {
			return true
		}
	}
	return false
}

// chooseHome is Scheduler.keyWorker for a class of the view.
func (v *TaskView) chooseHome(c *class) (home WorkerID) {
	v.group()
	best := uint64(0)
	v.scratch.v = v
	v.scratch.count(len(v.groups))
	for i := range v.groups {
		w := &v.groups[i].worker
		if !w.usable() || !w.eligible(c.shape) {
			continue
		}
		if x := score(c.affinity.hash, seedOf(w.id)); home == 0 || x > best {
			home, best = w.id, x
		}
	}
	return home
}

// startsHome reports whether the worker of a key has a free slot for a class.
func (v *TaskView) startsHome(home WorkerID, c *class) bool {
	return v.workerOf(home).startsNow(c.shape)
}

// workerOf returns a worker of a view in which each is a group of its own.
func (v *TaskView) workerOf(id WorkerID) *worker {
	v.group()
	for i := range v.groups {
		if v.groups[i].worker.id == id {
			return &v.groups[i].worker
		}
	}
	return nil
}

// awaitsHome reports whether the task, as one of a class, waits for the worker of its key.
func (v *TaskView) awaitsHome(c *class) bool {
	home := v.homeOf(c)
	if home == 0 {
		return false
	}
	w := v.workerOf(home)
	return !w.startsNow(c.shape) && (!w.ranked() || !w.fits(c.shape) || !w.prefetchesKeyed(v.keyed.idle))
}

// maySpill reports whether the task, as one of a class with a seq, could start elsewhere
// while others are idle. It may be true although it could not.
func (v *TaskView) maySpill(c *class, seq uint64) bool {
	home := v.homeOf(c)
	if home == 0 {
		return false
	}
	w := v.workerOf(home)
	waiting := v.keyed.waiting[home] + int(max(w.used, w.slots)-w.slots) // more than the slots of the worker must, see excess
	if !v.queued || c != v.class {
		waiting += max(len(v.class.alternatives), 1) // the entries of the unchanged task are not dropped at once
	}
	return seq <= v.keyed.old || v.keyed.stale || waiting > int(w.slots)
}

// mayOverflow reports whether so many tasks could wait at a worker and for it that some may start
// elsewhere, if it becomes that of their keys: see excess.
func (v *TaskView) mayOverflow(w *worker) bool {
	waiting := int(max(w.used, w.slots) - w.slots)
	// unordered: only the sum counts
	for _, n := range v.keyed.waiting {
		waiting += n
	}
	return v.keyed.stale || waiting > int(max(w.slots, 1))
}

// maySpillAfterChange reports whether a change of any worker may let the task start elsewhere than
// at the worker of its key: more slots lower the mean of loads, the key may move to a worker where
// the task waits with too many others, and other keys may move to the same one.
func (v *TaskView) maySpillAfterChange() bool {
	home := v.homeOf(v.class)
	if home == 0 || !v.placedAnywhere(v.class) {
		return false
	}
	before := score(v.class.affinity.hash, seedOf(home))
	return v.maySpill(v.class, v.seq) || slices.ContainsFunc(v.groups, func(g workerGroup) bool {
		return score(v.class.affinity.hash, seedOf(g.worker.id)) >= before && v.mayOverflow(&g.worker)
	})
}

// hasCompany reports whether a change may let other tasks of the queue start: with their starts,
// the turn by age may come, at which the task starts elsewhere than at the worker of its key.
func (v *TaskView) hasCompany() bool {
	return slices.ContainsFunc(v.ahead, func(a aheadQueue) bool { return a.class.flow.queue == v.class.flow.queue })
}

// moves reports whether the worker of a trial is that of the key of a class after the change.
// The worker accepts tasks then.
func (t *trial) moves(c *class) bool {
	old, known := t.v.keyed.homes[c]
	if !known {
		old = t.v.chooseHome(c)
		t.v.keyed.homes[c] = old
	}
	switch eligible := t.w.slots > 0 && t.w.eligible(c.shape); {
	case t.from.id == 0: // a worker that joins: its id decides, and it is taken as that of the key
		// Otherwise its tasks may take another alternative there, which is larger.
		t.unknown = t.unknown || eligible && old != 0 && c.alternatives != nil
		t.guessed = t.guessed || eligible && old != 0
		return eligible
	case old == t.w.id && !eligible:
		t.v.undecided = true // the key moves to another worker, which may be idle
		return false
	case old == t.w.id || old == 0:
		return eligible
	default:
		return eligible && score(c.affinity.hash, seedOf(t.w.id)) > score(c.affinity.hash, seedOf(old))
	}
}

// competes reports whether the tasks of an aheadQueue may start at the worker of the trial
// before the task.
func (t *trial) competes(a *aheadQueue) bool {
	if t.v.keyed == nil || t.only != nil || a.class.affinity == nil {
		return true
	}
	if a.avoids() && t.w.fitsWithSlot(a.class.shape) {
		t.unknown = true // which of them do not wait is not known
	}
	moves := t.moves(a.class)
	if !moves && a.spills && t.w.fitsWithSlot(a.class.shape) {
		t.unknown = true // it may start anywhere, and those after it wait
	}
	return moves
}

// reaches reports whether the task may start at the worker of the trial. If it may start there
// only because it has waited too long, that is not decided.
func (t *trial) reaches() bool {
	v := t.v
	if v.keyed == nil || t.only != nil || v.class.affinity == nil {
		return true
	}
	switch home := v.homeOf(v.class); {
	case home != 0 && home == v.avoid:
		v.undecided = true // those before it wait for a worker for which it does not
		return false
	case home == 0:
		return true
	case t.moves(v.class):
		if t.from.id != v.avoid || v.avoid == 0 || !v.anyOther(t.from, v.class) {
			return true
		}
		v.undecided = true // it does not wait there, but goes to one of the others
		return false
	}
	v.undecided = v.undecided || v.maySpill(v.class, v.seq) || t.mayAge()
	return false
}

// anyOther reports whether a worker other than one has capacity for a class.
func (v *TaskView) anyOther(than *worker, c *class) bool {
	return v.anyWorker(func(w *worker) bool { return w.id != than.id && w.ranked() && w.fits(c.shape) })
}

// mayAge reports whether so many tasks of its queue may start before the task at the worker of the
// trial that one of them may be at a turn by age: then the task, which waits for another worker,
// may start there.
func (t *trial) mayAge() bool {
	q, w, n := t.v.class.flow.queue, t.w, int64(1)
	w.used, w.taken = t.from.used, t.from.taken // without what an earlier attempt of the trial assigned
	room := int64(w.slots) - int64(w.used)
	for i := range t.v.ahead {
		a := &t.v.ahead[i]
		if c := a.class; c.flow.queue != q || !c.mayStart(a.priority) || !w.fitsWithSlot(c.shape) {
			continue
		}
		if n += int64(len(a.seqs)); a.more {
			n = room
		}
	}
	return w.fitsWithSlot(t.v.class.shape) && t.v.agedKeyed(q, min(n, room))
}

// agedKeyed reports whether a task that waits for the worker of its key may start anywhere
// before the task, at a turn by age, if n tasks of a queue start.
func (v *TaskView) agedKeyed(q *queue, n int64) bool {
	if v.keyed == nil || int64(q.turn)+n < agedStart {
		return false
	}
	for i := range v.ahead {
		if c := v.ahead[i].class; c.affinity != nil && c.flow.queue == q {
			return true
		}
	}
	return v.class.affinity != nil && v.class.flow.queue == q
}

// agedKeyed is TaskView.agedKeyed for the next start in order, which may be that of another queue
// all of whose tasks wait for the workers of their keys.
func (t *trial) agedKeyed(at int) bool {
	if t.v.keyed == nil || t.only != nil {
		return false
	}
	q := t.v.class.flow.queue
	if at < len(t.alive) {
		q = t.v.ahead[t.alive[at]].class.flow.queue
	}
	if t.v.agedKeyed(q, 1) {
		return true
	}
	next := t.v.queueKey(q)
	t.count(len(t.v.ahead))
	return slices.ContainsFunc(t.v.ahead, func(a aheadQueue) bool {
		other := a.class.flow.queue
		if a.class.affinity == nil || other == q || other.turn != agedStart-1 || !a.class.mayStart(a.priority) || !t.w.fitsWithSlot(a.class.shape) {
			return false
		}
		k := t.v.queueKey(other)
		return !next.before(&k)
	})
}

// keyedFree returns how many tasks of the task's class, which has a key, get a free slot at
// once if nothing but capacity holds them back; ok is false if that is not known.
func (v *TaskView) keyedFree(before int64) (free int64, ok bool) {
	for _, a := range v.ahead {
		if a.class == v.class && a.avoids() {
			return 0, false
		}
	}
	home := v.homeOf(v.class)
	if home != 0 && home == v.avoid {
		return 0, false
	}
	if home == 0 {
		return 0, v.avoid == 0 // it starts anywhere but at the worker of its key, as those before it do not
	}
	w := v.workerOf(home)
	if w.ranked() {
		free = w.freeSlotsFor(v.class)
	}
	return free, free > before || !v.maySpill(v.class, v.seq)
}

// mostOfKeyed is mostOf for a task with a key. With a smaller need more workers could run
// it, so that its key may have another one: only what is free on a worker can be the most.
func (v *TaskView) mostOfKeyed(i int) (most int64, ok bool) {
	limit := v.class.needs[i].amount - 1
	for _, o := range v.class.flow.queue.obstacles(v.class, v.priority) {
		if o.Kind == QueueShort && o.Resource == v.class.demand.Resources[i].Name {
			limit = max(min(limit, o.Free), 0)
		}
	}
	v.group()
	for k := range v.groups {
		amount := min(max(v.groups[k].worker.free(v.class.needs[i].resource), 0), limit)
		if ok && amount <= most {
			continue
		}
		if v.placed(v.needing(i, amount)) {
			most, ok = amount, true
		}
	}
	return most, ok && !v.undecided // else a larger one may suffice
}

// dropAffinity returns the change after which the task has no key.
func (v *TaskView) dropAffinity() []Change {
	c := v.class.copyDemand()
	if c.affinity = nil; v.class.affinity == nil || !v.placed(c) {
		return nil
	}
	if v.agedKeyed(v.class.flow.queue, 1) {
		v.undecided = true // an older one may start there
		return nil
	}
	return []Change{{Kind: DropAffinity}}
}
