package scheduler

import "slices"

const (
	// maxSteps bounds the work of all trials of a TaskView, which takes less than 0.1 s.
	maxSteps = 2_000_000
	// maxAmounts is how many amounts of a resource are tried on one worker.
	maxAmounts = 64
)

// A trial is what Next does after a change of one worker, if it had nothing to do before:
// the free slots of the worker go to the tasks that fit there, in order. Those that wait
// there for a slot, and those of lower priorities, take none of them before.
type trial struct {
	v    *TaskView
	from *worker // the worker before the change
	w    worker  // with the change, and what was assigned to it
	only *class  // nothing of other classes starts; nil: of all
	log  []trialStart
	next []int // first task of each aheadQueue that was not assigned; below 0: none fits any more
	// taken is what w.taken begins in, so that most trials allocate nothing.
	taken []int64
	// step is the least further amount of the resource watch with which a task would fit
	// that did not; 0: none.
	watch resourceID
	step  int64
}

// try begins a trial, and ends the one before. The caller changes t.w.
func (v *TaskView) try(w *worker) *trial {
	v.scratch.v, v.scratch.from, v.scratch.w, v.scratch.watch, v.scratch.only = v, w, *w, 0, nil
	return &v.scratch
}

// starts reports whether the task gets a free slot.
func (t *trial) starts() bool {
	t.taken = append(t.taken[:0], t.from.taken...)
	t.w.taken, t.w.used, t.step = t.taken, t.from.used, 0
	if t.next == nil {
		t.next = make([]int, len(t.v.ahead))
	}
	clear(t.next)
	before := t.changeFleet()
	defer func() { t.v.fleet = before; t.undo() }()
	for t.w.used < t.w.slots {
		k := t.first()
		switch {
		case t.v.cut || k < 0:
			return false
		case k == len(t.next):
			t.missed(t.v.class)
			return t.w.fitsWithSlot(t.v.class.shape)
		case !t.give(k):
			return false
		}
	}
	return false
}

// give assigns the next task of a ready queue if it fits, and reports whether the order of
// the next ones is known.
func (t *trial) give(k int) bool {
	a := &t.v.ahead[k]
	switch {
	case !t.w.fitsWithSlot(a.class.shape):
		t.missed(a.class)
		t.next[k] = -1 // what is free only shrinks
	case t.next[k] == len(a.seqs):
		t.v.undecided = true
		return false
	default:
		t.assign(a.class)
		if t.next[k]++; t.next[k] == len(a.seqs) && !a.more {
			t.next[k] = -1
		}
	}
	return true
}

// seq returns the seq of the next task of a ready queue, or a lower bound of it.
func (t *trial) seq(k int) uint64 {
	seqs := t.v.ahead[k].seqs
	switch n := t.next[k]; {
	case n < len(seqs):
		return seqs[n]
	case len(seqs) > 0:
		return seqs[len(seqs)-1] + 1
	}
	return 0
}

// missed records how much more of the watched resource a class needs.
func (t *trial) missed(c *class) {
	for _, n := range c.needs {
		if lack := n.amount - t.w.free(n.resource); n.resource == t.watch && lack > 0 && (t.step == 0 || lack < t.step) {
			t.step = lack
		}
	}
}

// leastSlots returns how many more slots the worker needs to start the task.
func (t *trial) leastSlots() (n int64, ok bool) {
	t.w.slots = MaxSlots
	if !t.starts() {
		return 0, false
	}
	n = int64(t.w.used) + 1 - int64(t.from.slots)
	if !t.v.mixed() {
		return n, true
	}
	t.w.slots = t.from.slots + uint32(n) //nolint:gosec // at most MaxSlots
	if ok = t.starts(); !ok {
		t.v.undecided = true // with fewer slots than above, shares of resources compare otherwise
	}
	return n, ok
}

// leastResource returns how much more of a resource the worker needs to start the task.
// More of it may start a task before this one instead, which takes the slot, and still
// more may start one that leaves the slot. Only the amounts at which a task begins to fit
// make a difference.
func (t *trial) leastResource(c *class, o Obstacle) (least int64, ok bool) {
	i := slices.IndexFunc(c.demand.Resources, func(q Quantity) bool { return q.Name == o.Name })
	t.watch = c.needs[i].resource
	least = o.Want - o.Free
	for range maxAmounts {
		total := slices.Clone(t.from.total)
		for int(t.watch) >= len(total) {
			total = append(total, 0)
		}
		if total[t.watch] > MaxAmount-least {
			return 0, false // a worker can't have as much
		}
		total[t.watch] += least
		t.w.total = total
		if t.starts() {
			return least, true
		}
		if t.step == 0 {
			return 0, false
		}
		least += t.step
	}
	t.v.undecided = true
	return 0, false
}
