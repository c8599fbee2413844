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
	limits  map[string]int     // named ones; 0 = unlimited
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
	if d.NoPrefetch || len(d.Resources) > 0 || len(d.Uses) > 0 {
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
	for _, name := range m.demands[c].Uses {
		if limit := m.limits[name]; limit > 0 && m.uses(name) >= limit {
			return false
		}
	}
	for _, l := range m.demands[c].Labels {
		if !slices.Contains(w.capacity.Labels, l) {
			return false
		}
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

// uses returns the number of attempts on all workers that count towards a named limit.
func (m *model) uses(name string) (n int) {
	for _, w := range m.workers {
		for _, held := range w.held {
			if slices.Contains(m.demands[held.class].Uses, name) {
				n++
			}
		}
	}
	return n
}

// choices returns the workers that the task may be assigned to: the least
// loaded of those that fit and are not to be avoided, or the one to avoid if
// only it fits.
func (m *model) choices(t modelTask) []scheduler.WorkerID {
	var fit []scheduler.WorkerID
	for id, w := range m.workers {
		if m.fits(w, t.class) {
			fit = append(fit, id)
		}
	}
	if len(fit) > 1 {
		fit = slices.DeleteFunc(fit, func(id scheduler.WorkerID) bool { return id == t.avoid })
	}
	return slices.DeleteFunc(slices.Clone(fit), func(id scheduler.WorkerID) bool {
		return slices.ContainsFunc(fit, func(other scheduler.WorkerID) bool {
			a, b := m.workers[id], m.workers[other]
			return len(b.held)*a.capacity.Slots < len(a.held)*b.capacity.Slots
		})
	})
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
