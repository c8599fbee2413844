package scheduler_test

import (
	"slices"

	"github.com/dtask/dtask/scheduler"
)

// A twin is the slow and obvious scheduler: a list of tasks and a list of
// workers, read from the beginning each time. It says which choices are legal.
type twin struct {
	workers map[scheduler.WorkerID]*twinWorker
	demands []scheduler.Demand // by class
	ready   []twinTask         // as pushed
}

type twinWorker struct {
	capacity  scheduler.Capacity
	accepting bool
	ahead     int
	held      []scheduler.ClassID
}

type twinTask struct {
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

// overfull reports whether a worker that was just given a task of this class
// holds more of anything that the class needs than there is.
func (tw *twin) overfull(w *twinWorker, c scheduler.ClassID) bool {
	if len(w.held) > w.room(tw.demands[c]) {
		return true
	}
	return slices.ContainsFunc(tw.demands[c].Resources, func(q scheduler.Quantity) bool {
		var taken int64
		for _, held := range w.held {
			taken += amount(tw.demands[held].Resources, q.Name)
		}
		return taken > amount(w.capacity.Resources, q.Name)
	})
}

// room is how many attempts the worker may hold after it was given one more with
// this demand.
func (w *twinWorker) room(d scheduler.Demand) int {
	if d.NoPrefetch || len(d.Resources) > 0 {
		return w.capacity.Slots
	}
	return w.capacity.Slots + w.ahead
}

func (tw *twin) fits(w *twinWorker, c scheduler.ClassID) bool {
	if !w.accepting || w.capacity.Slots == 0 || len(w.held) >= w.room(tw.demands[c]) {
		return false
	}
	if limit := tw.demands[c].Limit; limit > 0 && tw.held(c) >= int(limit) {
		return false
	}
	for _, l := range tw.demands[c].Labels {
		if !slices.Contains(w.capacity.Labels, l) {
			return false
		}
	}
	for _, q := range tw.demands[c].Resources {
		taken := q.Amount
		for _, held := range w.held {
			taken += amount(tw.demands[held].Resources, q.Name)
		}
		if taken > amount(w.capacity.Resources, q.Name) {
			return false
		}
	}
	return true
}

// held is how many attempts of a class all workers hold.
func (tw *twin) held(c scheduler.ClassID) (n int) {
	for _, w := range tw.workers {
		for _, held := range w.held {
			if held == c {
				n++
			}
		}
	}
	return n
}

// choices returns the workers that the task may be given to: of those that fit
// and are not to be avoided the least loaded, or the one to avoid if only it fits.
func (tw *twin) choices(t twinTask) []scheduler.WorkerID {
	var fit []scheduler.WorkerID
	for id, w := range tw.workers {
		if tw.fits(w, t.class) {
			fit = append(fit, id)
		}
	}
	if len(fit) > 1 {
		fit = slices.DeleteFunc(fit, func(id scheduler.WorkerID) bool { return id == t.avoid })
	}
	return slices.DeleteFunc(slices.Clone(fit), func(id scheduler.WorkerID) bool {
		return slices.ContainsFunc(fit, func(other scheduler.WorkerID) bool {
			a, b := tw.workers[id], tw.workers[other]
			return len(b.held)*a.capacity.Slots < len(a.held)*b.capacity.Slots
		})
	})
}

// next returns the place in ready of the task that must be assigned now, and
// the workers that it may be given to; -1 if there is none.
func (tw *twin) next() (int, []scheduler.WorkerID) {
	for p := scheduler.Urgent; p >= scheduler.Low; p-- {
		for i, t := range tw.ready {
			if t.priority != p {
				continue
			}
			if workers := tw.choices(t); len(workers) > 0 {
				return i, workers
			}
		}
	}
	return -1, nil
}
