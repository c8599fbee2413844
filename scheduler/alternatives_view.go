package scheduler

import "slices"

// groupCopies are the copies of groups that the copies of classes share, by original.
type groupCopies map[*group]*group

func (m groupCopies) of(g *group) *group {
	if g != nil && m[g] == nil {
		m[g] = &group{g.limit, g.held}
	}
	return m[g]
}

// linkAlternatives finds the ready queues of ahead that have the same tasks. What one of them
// lists is the beginning of what the other one does, or the same. The leader waits for it, and
// each key of an affinity has a class of its own: it reads no pair of classes.
func (v *TaskView) linkAlternatives() {
	type family struct {
		first    *class
		priority Priority
	}
	positions := make(map[family][]int)
	for i := range v.ahead {
		if a := &v.ahead[i]; a.class.alternatives != nil {
			f := family{a.class.first(), a.priority}
			positions[f] = append(positions[f], i)
		}
	}
	// unordered: each has its own ready queues
	for _, list := range positions {
		for _, i := range list {
			for _, k := range list {
				if k != i {
					v.ahead[i].others = append(v.ahead[i].others, k)
				}
			}
		}
	}
}

// isOther reports whether a ready queue has the task of the view for another alternative.
func (v *TaskView) isOther(a *aheadQueue) bool {
	return v.queued && v.class.alternatives != nil && a.class != v.class && a.class.first() == v.class.first() && a.priority == v.priority
}

// listedBefore returns how many tasks of the ready queue of the task are before it; known is false
// if there are more.
func (v *TaskView) listedBefore() (n int, known bool) {
	at := slices.IndexFunc(v.ahead, func(a aheadQueue) bool { return a.class == v.class && a.priority == v.priority })
	if at < 0 {
		return 0, true
	}
	return len(v.ahead[at].seqs), !v.ahead[at].more
}

// isTask reports whether the entry at a position of a ready queue of ahead is one of the task
// of the view, for another alternative.
func (v *TaskView) isTask(queue, position int) bool {
	if !v.isOther(&v.ahead[queue]) {
		return false
	}
	n, known := v.listedBefore()
	return known && n == position
}

// isNext reports whether a ready queue has the task of the view for another alternative, and
// no task before it.
func (v *TaskView) isNext(a *aheadQueue) bool {
	n, known := v.listedBefore()
	return v.isOther(a) && known && n == 0
}

// takes reports whether an estimate assumes that tasks take the alternative of a class: the
// first one that a worker could run. The task itself takes that of the view.
func (v *TaskView) takes(c *class) bool {
	switch {
	case c.alternatives == nil || c == v.class:
		return true
	case c.first() == v.class.first():
		return false
	}
	couldRun := func(a *class) bool {
		return slices.ContainsFunc(v.workerKinds(), func(w worker) bool { return w.usable() && w.eligible(a.shape) })
	}
	if !couldRun(c) {
		return false
	}
	return !slices.ContainsFunc(c.alternatives[:c.number], couldRun)
}

// workerKinds returns workers of which one could run a task, if it were idle, if any of the fleet
// could: also one of limited, for which the workers of a group may differ.
func (v *TaskView) workerKinds() []worker {
	if v.kinds != nil {
		return v.kinds
	}
	relevant := v.relevant()
	for i := range v.limited {
		relevant.add(v.limited[i].class)
	}
	relevant.sort()
	known := make(map[string]bool)
	var key []byte
	for i := range v.fleet.loads {
		if key = relevant.append(key[:0], &v.fleet, i); !known[string(key)] {
			known[string(key)] = true
			v.kinds = append(v.kinds, v.fleet.worker(i))
		}
	}
	return v.kinds
}
