package scheduler_test

import (
	"slices"

	"github.com/dtask/dtask/scheduler"
)

// A model is the slow and obvious scheduler: a list of tasks and a list of
// workers, scanned from the start each time. It returns all legal choices.
type model struct {
	workers map[scheduler.WorkerID]*modelWorker
	demands []scheduler.Demand // by class
	ready   []modelTask        // as pushed
}

type modelWorker struct {
	capacity  scheduler.Capacity
	accepting bool
	ahead     int
	reserved  bool // as the scheduler decided
	held      []modelHeld
}

type modelHeld struct {
	class    scheduler.ClassID
	priority scheduler.Priority
}

type modelTask struct {
	ref      scheduler.TaskRef
	class    scheduler.ClassID
	priority scheduler.Priority
	avoid    scheduler.WorkerID
}

func amount(in []scheduler.Quantity, name string) (sum int64) {
	for _, q := range in {
		if q.Name == name {
			sum += q.Amount
		}
	}
	return sum
}

// overfull reports whether a worker that was just assigned a task of this class
// has more of anything that the class needs than its capacity.
func (m *model) overfull(w *modelWorker, c scheduler.ClassID, p scheduler.Priority) bool {
	if w.atLeast(p) > w.limit(m.demands[c]) {
		return true
	}
	return slices.ContainsFunc(m.demands[c].Resources, func(q scheduler.Quantity) bool {
		var taken int64
		for _, held := range w.held {
			taken += amount(m.demands[held.class].Resources, q.Name)
		}
		return taken > amount(w.capacity.Resources, q.Name)
	})
}

// limit returns the number of attempts that the worker may hold after the
// assignment of one with this demand.
func (w *modelWorker) limit(d scheduler.Demand) int {
	if d.NoPrefetch || len(d.Resources) > 0 {
		return w.capacity.Slots
	}
	return w.capacity.Slots + w.ahead
}

// atLeast returns how many attempts of this or a higher priority are held.
func (w *modelWorker) atLeast(p scheduler.Priority) (n int) {
	for _, held := range w.held {
		if held.priority >= p {
			n++
		}
	}
	return n
}

func (m *model) fits(w *modelWorker, c scheduler.ClassID) bool {
	if len(w.held) >= w.limit(m.demands[c]) || w.reserved && len(w.held) >= w.capacity.Slots {
		return false
	}
	return m.fitsWithSlot(w, c)
}

// mayOvertake reports whether a task may wait at the worker ahead of an attempt
// of a lower priority.
func (m *model) mayOvertake(w *modelWorker, c scheduler.ClassID, p scheduler.Priority) bool {
	n := w.atLeast(p)
	return len(w.held) > w.capacity.Slots && n < len(w.held) && n < w.limit(m.demands[c]) && m.fitsWithSlot(w, c)
}

func (m *model) fitsWithSlot(w *modelWorker, c scheduler.ClassID) bool {
	if !w.accepting || w.capacity.Slots == 0 {
		return false
	}
	if t := m.demands[c].Type; t != "" && len(w.capacity.Types) > 0 && !slices.Contains(w.capacity.Types, t) {
		return false
	}
	if served := w.capacity.Namespaces; len(served) > 0 && !slices.Contains(served, m.demands[c].Namespace) {
		return false
	}
	if limit := m.demands[c].Limit; limit > 0 && m.held(c) >= int(limit) {
		return false
	}
	for _, l := range m.demands[c].Labels {
		if !slices.Contains(w.capacity.Labels, l) {
			return false
		}
	}
	if slices.ContainsFunc(m.demands[c].Rules, func(r scheduler.LabelRule) bool { return !meets(w.capacity.Labels, r) }) {
		return false
	}
	for _, q := range m.demands[c].Resources {
		taken := q.Amount
		for _, held := range w.held {
			taken += amount(m.demands[held.class].Resources, q.Name)
		}
		if taken > amount(w.capacity.Resources, q.Name) {
			return false
		}
	}
	return true
}

// meets reports whether a worker with these labels fulfills a rule.
func meets(labels []scheduler.Label, r scheduler.LabelRule) bool {
	found := slices.ContainsFunc(labels, func(l scheduler.Label) bool {
		return l.Name == r.Name && (len(r.Values) == 0 || slices.Contains(r.Values, l.Value))
	})
	return found != r.Not
}

// held returns the number of attempts of a class on all workers.
func (m *model) held(c scheduler.ClassID) (n int) {
	for _, w := range m.workers {
		for _, held := range w.held {
			if held.class == c {
				n++
			}
		}
	}
	return n
}

// choices returns the workers that the task may be assigned to: those that fit and are not to
// be avoided, or the one to avoid if only it fits. Of these, it is those with a free slot if
// there are any, then those that the task prefers if there are any, and then those that its
// strategy may choose.
func (m *model) choices(t modelTask) []scheduler.WorkerID {
	d := m.demands[t.class]
	var fit []scheduler.WorkerID
	for id, w := range m.workers {
		if m.fits(w, t.class) {
			fit = append(fit, id)
		}
	}
	fit = someOf(fit, func(id scheduler.WorkerID) bool { return id != t.avoid })
	free := func(id scheduler.WorkerID) bool { return len(m.workers[id].held) < m.workers[id].capacity.Slots }
	fit = someOf(fit, free)
	fit = someOf(fit, func(id scheduler.WorkerID) bool {
		return !slices.ContainsFunc(d.Prefer, func(r scheduler.LabelRule) bool { return !meets(m.workers[id].capacity.Labels, r) })
	})
	better := func(a, b *modelWorker) bool { return len(a.held)*b.capacity.Slots < len(b.held)*a.capacity.Slots }
	if len(fit) > 0 && free(fit[0]) {
		switch d.Place {
		case scheduler.Random:
			return fit
		case scheduler.Pack:
			better = func(a, b *modelWorker) bool { return m.share(a) > m.share(b) }
		case scheduler.Spread:
		}
	}
	return slices.DeleteFunc(slices.Clone(fit), func(id scheduler.WorkerID) bool {
		return slices.ContainsFunc(fit, func(other scheduler.WorkerID) bool { return better(m.workers[other], m.workers[id]) })
	})
}

// someOf returns those for which a condition holds, or all if it holds for none.
func someOf(list []scheduler.WorkerID, holds func(scheduler.WorkerID) bool) []scheduler.WorkerID {
	if some := slices.DeleteFunc(slices.Clone(list), func(id scheduler.WorkerID) bool { return !holds(id) }); len(some) > 0 {
		return some
	}
	return list
}

// share is how full a worker is: the largest share that is taken of its slots and resources.
func (m *model) share(w *modelWorker) int64 {
	most := int64(len(w.held)) << 32 / int64(max(w.capacity.Slots, 1))
	for _, name := range []string{"cpu", "gpu", "memory"} {
		taken, total := int64(0), amount(w.capacity.Resources, name)
		for _, held := range w.held {
			taken += amount(m.demands[held.class].Resources, name)
		}
		switch {
		case taken == 0:
		case taken >= total:
			most = max(most, 1<<32)
		default:
			most = max(most, taken<<32/total)
		}
	}
	return most
}

// next returns the position in ready of the task that must be assigned now, and
// the workers that it may be assigned to; -1 if no task fits.
func (m *model) next() (int, []scheduler.WorkerID) {
	for p := scheduler.Urgent; p >= scheduler.Low; p-- {
		for i, t := range m.ready {
			if t.priority != p {
				continue
			}
			if workers := m.choices(t); len(workers) > 0 {
				return i, workers
			}
		}
	}
	return m.overtaking()
}

// overtaking is next for the tasks that fit nowhere, but may overtake others.
func (m *model) overtaking() (int, []scheduler.WorkerID) {
	for p := scheduler.Urgent; p >= scheduler.Low; p-- {
		for i, t := range m.ready {
			if t.priority != p {
				continue
			}
			var workers []scheduler.WorkerID
			for id, w := range m.workers {
				if m.mayOvertake(w, t.class, p) {
					workers = append(workers, id)
				}
			}
			if len(workers) > 0 {
				return i, workers
			}
		}
	}
	return -1, nil
}
