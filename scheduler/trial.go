package scheduler

import "slices"

const (
	// maxSteps bounds the work of all trials of a TaskView: it takes some 10 ms.
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
	// alive are the numbers of the aheadQueues that may have a task that fits.
	alive []int
	next  []int // first task of each aheadQueue that was not assigned; of those that are alive
	// taken is what w.taken begins in, so that most trials allocate nothing.
	taken []int64
	// step is the least further amount of the resource watch with which a task would fit
	// that did not; 0: none.
	watch    resourceID
	watching bool
	step     int64
	guessed  bool     // it is taken as the worker of a key, which depends on its id
	equal    int      // workers for which from stands; 0: none that is known
	reserved []*queue // those for which another worker was reserved
	// contested: the first of those could have got the worker of the trial instead.
	contested bool
	// unknown: what takes the free slots depends on the worker in ways that a trial does not
	// know. Then nothing follows from it.
	unknown bool
}

// try begins a trial, and ends the one before. The caller changes t.w.
func (v *TaskView) try(w *worker) *trial {
	v.scratch.v, v.scratch.from, v.scratch.w, v.scratch.watching, v.scratch.only = v, w, *w, false, nil
	v.scratch.equal = 0
	return &v.scratch
}

// reset forgets what was assigned, and finds the queues whose tasks fit.
func (t *trial) reset() {
	t.taken = append(t.taken[:0], t.from.taken...)
	t.w.taken, t.w.used, t.step = t.taken, t.from.used, 0
	if t.next == nil {
		t.next = make([]int, len(t.v.ahead))
	}
	t.alive, t.unknown, t.guessed = t.alive[:0], false, false
	t.count(len(t.v.ahead))
	for k := range t.v.ahead {
		c := t.v.ahead[k].class
		t.next[k] = 0
		switch {
		case t.only != nil && c != t.only:
		case !t.competes(&t.v.ahead[k]):
		case t.w.fitsWithSlot(c.shape):
			if c.mayStart(t.v.ahead[k].priority) {
				t.alive = append(t.alive, k)
			}
		case t.watching && t.w.suits(c.shape):
			t.missed(c)
		}
	}
}

// count counts steps.
func (t *trial) count(n int) {
	if t.v.steps += n; t.v.steps > maxSteps {
		t.v.cut = true
	}
}

// starts reports whether the task gets a free slot.
func (t *trial) starts() bool {
	if !t.reaches() {
		return false
	}
	if t.gets() {
		return true
	}
	t.v.undecided = t.v.undecided || t.guessed
	return false
}

// gets is starts for a task that need not wait for another worker.
func (t *trial) gets() bool {
	if t.reset(); t.unknown {
		t.v.undecided = true
		return false
	}
	before := t.changeFleet()
	defer func() { t.v.capacity = before; t.undo() }()
	for t.w.used < t.w.slots && !t.v.cut {
		at := t.first()
		switch {
		case at < 0:
			return false
		case t.agedKeyed(at):
			t.v.undecided = true
			return false
		case at == len(t.alive):
			t.missed(t.v.class)
			return t.w.fitsWithSlot(t.v.class.shape)
		case t.v.isTask(t.alive[at], t.next[t.alive[at]]) && t.w.fitsWithSlot(t.v.ahead[t.alive[at]].class.shape):
			return true // it takes another alternative
		case !t.give(at):
			return false
		}
	}
	return false
}

// give assigns the next task of the ready queue at a position of alive if it fits, and
// reports whether the order of the next ones is known.
func (t *trial) give(at int) bool {
	k := t.alive[at]
	a := &t.v.ahead[k]
	switch {
	case !t.w.fitsWithSlot(a.class.shape):
		t.missed(a.class)
		t.drop(at) // what is free only shrinks
	case t.next[k] >= len(a.seqs):
		t.v.undecided = true
		return false
	case t.freesKept(k) || t.endsSaving(k):
		t.v.undecided = true
		return false
	case !t.start(k):
		return false
	case len(a.others) > 0:
		t.dropEnded()
	case t.next[k] == len(a.seqs) && !a.more:
		t.drop(at)
	}
	return true
}

// dropEnded removes the ready queues all of whose tasks have started from alive.
func (t *trial) dropEnded() {
	for at, k := range slices.Backward(t.alive) {
		if a := &t.v.ahead[k]; t.next[k] >= len(a.seqs) && !a.more {
			t.drop(at)
		}
	}
}

// drop removes a ready queue from alive.
func (t *trial) drop(at int) {
	last := len(t.alive) - 1
	t.alive[at] = t.alive[last]
	t.alive = t.alive[:last]
}

// all assigns all tasks that are before the task and fit, whatever their order; ok is
// false if they don't fit together with the task, or not all of them are known to be before.
func (t *trial) all() (ok bool) {
	if q := t.v.class.flow.queue; t.v.keyed != nil || len(t.v.flows) > 1 || q.limit > 0 || len(q.max) > 0 || !t.v.class.mayStart(t.v.priority) {
		return false
	}
	t.reset()
	if t.mayReserve() {
		return false
	}
	for _, k := range t.alive {
		a := &t.v.ahead[k]
		if a.more || a.class.group != nil || a.class.alternatives != nil || len(a.class.limits) > 0 || a.priority < t.v.priority || a.seqs[len(a.seqs)-1] > t.v.seq {
			return false
		}
		n := int64(len(a.seqs))
		for _, need := range a.class.needs {
			if need.amount > max(t.w.free(need.resource), 0)/n {
				return false
			}
			for int(need.resource) >= len(t.w.taken) {
				t.w.taken = append(t.w.taken, 0)
			}
			t.w.taken[need.resource] += need.amount * n
		}
		t.w.used += uint32(n) //nolint:gosec // at most maxListed
	}
	return t.w.used < t.w.slots && t.w.fitsWithSlot(t.v.class.shape)
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
		if lack := n.amount - t.w.free(n.resource); t.watching && n.resource == t.watch && lack > 0 && (t.step == 0 || lack < t.step) {
			t.step = lack
		}
	}
}

// leastSlots returns how many more slots the worker needs to start the task.
func (t *trial) leastSlots() (n int64, ok bool) {
	if t.v.mixed() {
		return t.leastSlotsMixed()
	}
	t.w.slots = MaxSlots
	if !t.all() && !t.starts() {
		return 0, false
	}
	return int64(t.w.used) + 1 - int64(t.from.slots), true
}

// leastSlotsMixed is leastSlots if the number of slots decides about the order, too: each number
// is tried up to which a task before may lack a slot, and of the larger ones those at which the
// order may change.
func (t *trial) leastSlotsMixed() (n int64, ok bool) {
	t.w.slots = MaxSlots
	t.reset()
	enough := int64(1) // to start all that is before
	for _, k := range t.alive {
		a := &t.v.ahead[k]
		if enough += int64(len(a.seqs)); a.more {
			enough = MaxSlots
		}
	}
	first := int64(t.from.used) - int64(t.from.slots)
	enough += first
	n = max(first, 0) + 1
	for range maxAmounts {
		if t.w.slots = uint32(min(int64(t.from.slots)+n, MaxSlots+1)); t.w.slots > MaxSlots || t.v.cut { //nolint:gosec // positive
			return 0, false
		}
		t.v.order = slotOrder{watched: true}
		starts := t.starts()
		next := int64(t.v.order.next) //nolint:gosec // G115: at most MaxSlots
		t.v.order = slotOrder{}
		switch {
		case starts:
			return n, true
		case n < enough:
			n++
		case next == 0:
			return 0, false
		default:
			n += next
		}
	}
	t.v.undecided = true
	return 0, false
}

// leastResource returns how much more of a resource the worker needs to start the task.
// More of it may start a task before this one instead, which takes the slot, and still
// more may start one that leaves the slot. Only the amounts at which a task begins to fit
// make a difference.
func (t *trial) leastResource(c *class, o Obstacle) (least int64, ok bool) {
	i := slices.IndexFunc(c.demand.Resources, func(q Quantity) bool { return q.Name == o.Name })
	t.watch, t.watching = c.needs[i].resource, true
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
		if t.v.mixed() {
			break // any larger amount changes how shares compare
		}
		if t.step == 0 {
			return 0, false
		}
		least += t.step
	}
	t.v.undecided = true
	return 0, false
}
