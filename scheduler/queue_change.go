package scheduler

import (
	"math"
	"slices"
)

// changeQueue returns the changes of the settings of the task's queue, the only obstacle,
// after which the task starts. Other tasks of the queue may start on any worker before it.
func (v *TaskView) changeQueue(o Obstacle) (list []Change) {
	switch o.Kind { //nolint:exhaustive // only those of queues
	case QueuePaused:
		if _, ok := v.forked(func(q *queue) { q.paused = false }); ok {
			list = append(list, Change{Kind: ResumeQueue, Name: o.Name})
		}
	case QueueFull:
		// Up to the start of the task, all goes as with a quota that is not reached. There must be
		// one: it is saved for a task for which a turn by age keeps a worker free.
		c := Change{Kind: RaiseMaxRunning, Name: o.Name}
		if v.decides(&c, func() (ok bool) {
			if c.Amount, ok = v.forked(func(q *queue) { q.limit = math.MaxUint32 }); ok && v.isSavedForFirst() {
				c.Amount, ok = v.leastRunning(c.Amount)
			}
			return ok
		}) {
			list = append(list, c)
		}
	case QueueShort:
		c := Change{Kind: RaiseMax, Name: o.Resource}
		if v.decides(&c, func() (ok bool) {
			c.Amount, ok = v.leastMax(o)
			return ok
		}) {
			list = append(list, c)
		}
		if v.isSavedForFirst() {
			v.undecided = true
			return list
		}
		for i := range v.class.needs {
			if v.class.demand.Resources[i].Name != o.Resource {
				continue
			}
			if most, ok := v.mostOf(i); ok {
				list = append(list, Change{Kind: LowerDemand, Name: o.Resource, Amount: most})
			}
		}
	}
	return list
}

// leastRunning returns the least quota on running tasks with which the task starts, while one is
// saved for the first task of its ready queue, so that others may have to wait. enough is how many
// there are if nobody waits.
func (v *TaskView) leastRunning(enough int64) (least int64, ok bool) {
	least = int64(v.class.flow.queue.held.slots) + 1 //nolint:gosec // small
	if least < enough {
		_, ok = v.forked(func(q *queue) { q.limit = uint32(least) }) //nolint:gosec // below enough
		v.undecided = v.undecided || !ok
		return least, ok
	}
	return enough, true
}

// isSavedForFirst reports whether quotas are saved for the first task of the ready queue of the task,
// which may be the task itself. They are not there for the task when it is ready with another demand.
func (v *TaskView) isSavedForFirst() bool {
	x := v.class.flow.queue.saving
	return x != nil && x.first == v.class.first().id && x.priority == v.priority
}

// isKept reports whether a worker is kept free for the task, or for an alternative of it.
func (v *TaskView) isKept() bool {
	return slices.ContainsFunc(v.fleet.loads, func(l workerLoad) bool { return l.kept != nil && l.kept.task == v.task })
}

// leastMax returns the least quota on a resource with which the task starts. A larger one
// may let a task before it take what it needs: only the amounts at which a task begins to
// fit make a difference.
func (v *TaskView) leastMax(o Obstacle) (least int64, ok bool) {
	i := 0
	for v.class.demand.Resources[i].Name != o.Resource {
		i++
	}
	r := v.class.needs[i].resource
	least = o.Total - o.Free + o.Want
	for range maxAmounts {
		step := int64(0)
		_, ok := v.forked(func(q *queue) {
			for k := range q.max {
				if q.max[k].resource == r {
					q.max[k].amount = uint64(least) //nolint:gosec // positive
				}
			}
			q.watched = func(first *readyQueue) {
				saved := q.savedBeside(first.class, first.priority).of(r)
				for _, n := range first.class.needs {
					lack := int64(q.held.of(r)+saved) + n.amount - least //nolint:gosec // far below 2^63
					if n.resource == r && lack > 0 && (step == 0 || lack < step) {
						step = lack
					}
				}
			}
		})
		if ok {
			return least, true
		}
		if step == 0 {
			return 0, false
		}
		least += step
	}
	v.undecided = true
	return 0, false
}

// forked returns whether the task starts after a change of its queue, and how many attempts the
// queue has then, with one for which its quotas are saved: it builds a Scheduler from the view and
// lets it assign what fits.
func (v *TaskView) forked(change func(*queue)) (running int64, started bool) {
	if v.cut {
		return 0, false
	}
	for i := range v.ahead {
		a := &v.ahead[i]
		if a.more && a.class.alternatives != nil {
			v.undecided = true // what follows is not copied
			return 0, false
		}
	}
	// A fork draws other numbers, and reserves no worker for a queue that wants one. The change ends
	// the reservation of its queue.
	if v.isDrawn() || v.retried || v.wanted && v.class.flow.queue.kept != nil {
		v.undecided = true
		return 0, false
	}
	s, self, ok := v.fork(change)
	if !ok {
		v.undecided = true
		return 0, false
	}
	starts, kept, wants := v.starts, slices.Clone(s.reservations), slices.Clone(s.wants)
	taken := make(map[TaskRef]bool) // of those that have several alternatives
	for {
		if v.steps += len(s.sorted)/8 + 1; v.steps > maxSteps {
			v.cut = true
			return 0, false
		}
		saved := self.flow.queue.savedBeside(self, v.priority) != nil // before its own start, which may be one by age
		a, ok := s.nextInOrder(func(t TaskRef) bool { return !taken[t] })
		if a.Task.Job >= firstFamily {
			taken[a.Task] = true
			endReservations(s, taken)
		}
		if v.wanted && slices.ContainsFunc(kept, func(k *reservation) bool { return k.worker.kept != k }) {
			v.undecided = true // one of the queues that want a worker may get this one
			return 0, false
		}
		switch {
		case !ok:
			v.undecided = v.undecided || v.homeOf(v.class) != 0 // it could start elsewhere, after all others
			return 0, false
		case a.Task.Job == 1:
			if w := s.workers[a.Worker]; w.used > w.slots { // it waits there, unless it is among too many
				v.undecided = v.undecided || v.maySpill(v.class, v.seq)
				return 0, false
			}
			running = int64(self.flow.queue.held.slots) //nolint:gosec // small
			if saved && v.class.alternatives != nil {
				v.undecided = true // it may be saved for another alternative of the task itself
				return 0, false
			}
			if saved {
				running++
			}
			return running, true
		case slices.Contains(wants, s.classes[a.Class].flow.queue): // it may have wanted one for this task
			v.undecided = true
			return 0, false
		case a.Task.Job == 2: // there are further tasks behind it, and their order is not known
			v.undecided = true
			return 0, false
		}
		if starts++; v.passesOver(starts) {
			v.undecided = true
			return 0, false
		}
	}
}

// endReservations ends those in a fork for tasks that have started by another alternative, and
// those that are wanted for them, and what is saved for them.
func endReservations(s *Scheduler, started map[TaskRef]bool) {
	isStarted := func(r *readyQueue) bool { return r != nil && r.n > 0 && started[r.front().task()] }
	for _, k := range slices.Clone(s.reservations) {
		if isStarted(k.ready) {
			s.unkeep(k)
		}
	}
	for _, q := range slices.Clone(s.saving) {
		if isStarted(q.saving.ready) {
			s.unsave(q)
		}
	}
	for _, q := range slices.Clone(s.wants) {
		if isStarted(q.wanted.ready) {
			s.unwant(q)
		}
	}
}

// passesOver reports whether a queue may get a reservation after so many starts of the term because
// the others were before it.
func (v *TaskView) passesOver(starts uint64) bool {
	// unordered: any of them will do
	for _, q := range v.queues {
		if q.passes && q.passed+agedStart <= starts && q.kept == nil && !q.wants {
			return true
		}
	}
	return false
}

// isDrawn reports whether random choices of workers may decide whether the task starts: those of a
// fork are others. As many tasks of one class start wherever they do.
func (v *TaskView) isDrawn() bool {
	random, others := false, v.avoid != 0
	for i := range v.ahead {
		a := &v.ahead[i]
		random = random || a.class.place == Random
		others = others || a.class != v.class || a.avoids()
	}
	return random && others
}

// fork builds a Scheduler from the view, with a changed queue, and returns it with the
// class of the task. The job of the task is 1, and that of the last listed one of a ready
// queue that has more is 2. From firstFamily on, tasks with alternatives have one name in
// the ready queues of all of these. ok is false if a task is not known for which quota is saved.
func (v *TaskView) fork(change func(*queue)) (s *Scheduler, self *class, ok bool) {
	s = New(0)
	s.random, s.choices, s.starts, s.version, s.affinity.epoch = v.random, v.choices, v.starts, 1, 1
	s.fleet = fleet{v.capacity.slots, slices.Clone(v.capacity.total)}
	for i := range v.fleet.loads {
		w := v.fleet.whole(i)
		s.updateWaiting(&w) // prefetches for keys depend on it
		s.workers[w.id] = &w
		s.sorted = append(s.sorted, &w)
		kept := v.fleet.loads[i].kept // a change of its queue ends a reservation
		if v.fleet.loads[i].ranked || kept != nil && kept.queue == v.class.flow.queue.name && w.usable() {
			s.byLoad.push(&w)
		}
	}
	f := forker{s: s, classes: make(map[*class]*class), queues: make(map[*queue]bool), groups: make(groupCopies), limits: make(limitCopies)}
	self = f.class(v.class)
	change(self.flow.queue)
	for i := range v.ahead {
		a := &v.ahead[i]
		r := &f.class(a.class).queues[a.priority]
		for k, seq := range a.seqs {
			e := entry{job: 3, seq: seq, index: uint32(k), n: 1} //nolint:gosec // few
			switch {
			case v.isTask(i, k):
				e.job, e.index = 1, 0
			case a.more && k == len(a.seqs)-1:
				e.job = 2
			case a.class.alternatives != nil:
				e.job = firstFamily + uint64(a.class.first().id)*8 + uint64(a.priority)
			}
			if a.avoids() {
				e.avoid = a.avoid[k]
			}
			r.push(&s.pages, e)
		}
	}
	self.queues[v.priority].push(&s.pages, entry{job: 1, seq: v.seq, n: 1, avoid: v.avoid})
	v.keepOthers(&f)
	ok = v.copySavings(&f)
	for _, c := range s.classes {
		for p := Low; p <= Urgent; p++ {
			s.depth[p] += c.queues[p].n
			s.relist(&c.queues[p])
		}
	}
	return s, self, ok
}

// copySavings copies what quotas are saved for into a fork, and reports whether all of that is
// known. The ready queues of all alternatives of a task could end a saving.
func (v *TaskView) copySavings(f *forker) bool {
	known := 0
	look := func(c *class, p Priority, seq uint64) {
		if x := c.flow.queue.saving; x != nil && c.alternatives == nil && c.id == x.first && p == x.priority && seq == x.seq {
			to := f.class(c)
			to.flow.queue.saving = &saving{&to.queues[p], seq, to.id, x.needs, p, x.task}
			f.s.saving = append(f.s.saving, to.flow.queue)
			known++
		}
	}
	for i := range v.ahead {
		if a := &v.ahead[i]; len(a.seqs) > 0 {
			look(a.class, a.priority, a.seqs[0])
		}
	}
	look(v.class, v.priority, v.seq)
	// unordered: they are only counted
	for _, q := range v.queues {
		if q.saving != nil {
			known--
		}
	}
	return known == 0
}

// keepOthers makes the reservations for tasks of other queues in a fork.
func (v *TaskView) keepOthers(f *forker) {
	for i, w := range f.s.sorted {
		kept := v.fleet.loads[i].kept
		if kept == nil || kept.queue == v.class.flow.queue.name {
			continue
		}
		at := slices.IndexFunc(v.ahead, func(a aheadQueue) bool {
			return a.class.id == kept.class && a.priority == kept.priority && len(a.seqs) > 0 && a.seqs[0] == kept.seq
		})
		if at < 0 { // the task can't start now
			w.kept = &reservation{worker: w, queue: kept.queue}
			continue
		}
		r := &f.class(v.ahead[at].class).queues[kept.priority]
		w.kept = &reservation{ready: r, seq: kept.seq, worker: w, queue: kept.queue}
		r.class.flow.queue.kept = w.kept
		f.s.reservations = append(f.s.reservations, w.kept)
	}
}

// firstFamily is the lowest number of a job in a fork whose tasks have alternatives.
const firstFamily = 8

// A forker copies classes into a fork, with their flows and queues.
type forker struct {
	s       *Scheduler
	classes map[*class]*class
	queues  map[*queue]bool // those that were copied
	groups  groupCopies
	limits  limitCopies
}

func (x *forker) class(c *class) *class {
	if known := x.classes[c]; known != nil {
		return known
	}
	from := c.flow.queue
	if !x.queues[from] {
		x.queues[from] = true
		q := x.s.queue(from.name)
		q.weight, q.limit, q.max, q.paused = from.weight, from.limit, slices.Clone(from.max), from.paused
		q.held, q.turn, q.served = from.held.clone(), from.turn, from.served
		if from.wants {
			q.wants, x.s.wants = true, append(x.s.wants, q)
		}
	}
	f := x.s.flow(&Demand{Queue: from.name, Namespace: c.flow.owner.namespace, Owner: c.flow.owner.name})
	f.held, f.served = c.flow.held.clone(), c.flow.served
	to := x.s.newClass()
	to.shape, to.flow, to.demand, to.uses = c.copyDemand().shape, f, c.demand, 1
	to.shape.classes = 1 // it is in use: see compact and unblock
	to.group, to.limits = x.groups.of(c.group), x.limits.of(c.limits)
	if c.affinity != nil {
		to.affinity = &affinity{hash: c.affinity.hash}
	}
	f.classes++
	x.classes[c] = to
	return to
}
