package scheduler

import (
	"cmp"
	"slices"
)

// A simKept is the next task of a queue, for which a worker is kept free. The class may be a
// further alternative of that of the queue.
type simKept struct {
	queue  int // in simulation.queues
	class  *class
	number int // of the class
}

// matters reports whether one of the queued tasks may start at the worker, or when an attempt
// ends there.
func matters(w *worker, attempts []RunningAttempt, queued []*class, frees map[ClassID]bool) bool {
	return w.usable() && slices.ContainsFunc(queued, func(c *class) bool { return w.eligible(c.shape) }) ||
		slices.ContainsFunc(attempts, func(a RunningAttempt) bool { return frees[a.Class] })
}

// freeing returns the classes of what runs whose attempts count towards the same limits and
// quotas as the tasks of some classes: an end lets one start at any worker.
func (v *TaskView) freeing(queued []*class) map[ClassID]bool {
	groups, limits, quotas := make(map[*group]bool), make(map[*namedLimit]bool), make(map[*queue]bool)
	for _, c := range queued {
		groups[c.group] = c.group != nil
		for _, l := range c.limits {
			limits[l] = true
		}
		q := c.flow.queue
		quotas[q] = q.limit > 0 || len(q.max) > 0
	}
	frees := make(map[ClassID]bool)
	// unordered: each class is independent of the others
	for id, c := range v.running.classes {
		frees[id] = groups[c.group] || quotas[c.flow.queue] || slices.ContainsFunc(c.limits, func(l *namedLimit) bool { return limits[l] })
	}
	return frees
}

// addLeased adds the attempts that no worker holds and whose ends let others start, and returns
// those of workers.
func (x *simulation) addLeased(attempts []RunningAttempt, frees map[ClassID]bool) []RunningAttempt {
	n := slices.IndexFunc(attempts, func(a RunningAttempt) bool { return a.Worker != 0 })
	if n < 0 {
		n = len(attempts)
	}
	for _, a := range slices.SortedFunc(slices.Values(attempts[:n]), compareLeases) {
		if frees[a.Class] {
			x.leased = append(x.leased, simEnd{at: max(a.EndsMS, 0), worker: -1, class: x.number(x.v.running.classes[a.Class])})
		}
	}
	return attempts[n:]
}

// compareLeases orders attempts by the ends of their leases, whatever the order of the caller.
func compareLeases(a, b RunningAttempt) int {
	return cmp.Or(cmp.Compare(a.EndsMS, b.EndsMS), cmp.Compare(a.Task.Job, b.Task.Job), cmp.Compare(a.Task.Index, b.Task.Index))
}

// keptFor returns what a worker is kept free for; nil: it does not wait any more. It is the first
// task of its ready queue.
func (x *simulation) keptFor(kept *keptFor) *simKept {
	if kept == nil {
		return nil
	}
	own := len(x.queues) - 1
	if c := x.v.class; c.id == kept.class && x.v.priority == kept.priority && x.v.seq == kept.seq {
		return &simKept{own, c, x.number(c)}
	}
	for _, list := range [][]aheadQueue{x.v.ahead, x.v.limited} {
		at := slices.IndexFunc(list, func(a aheadQueue) bool {
			return a.class.id == kept.class && a.priority == kept.priority && len(a.runs) > 0 && a.runs[0].seq == kept.seq
		})
		if at < 0 {
			continue
		}
		c := list[at].class
		queue := slices.IndexFunc(x.queues[:own], func(q simQueue) bool { return q.priority == kept.priority && q.class.first() == c.first() })
		if queue >= 0 {
			return &simKept{queue, c, x.number(c)}
		}
	}
	return nil
}
