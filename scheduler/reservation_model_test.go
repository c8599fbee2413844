package scheduler_test

import (
	"fmt"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler"
)

// The model knows when a worker that is kept free is released. Which ones are kept depends on
// what the scheduler has tried since the last change: of that, the model knows what is allowed,
// and at a turn by age also what must be.

// couldRun reports whether a worker could run a class if it were idle.
func (m *model) couldRun(w *modelWorker, c scheduler.ClassID) bool {
	return w.accepting && w.capacity.Slots > 0 && m.suits(w, c) && m.hasResources(w, c, nil)
}

// settle follows a change: it releases the workers that are gone or could no longer run what
// they are kept for. Those with a free slot may prefetch again.
func (m *model) settle() {
	m.kept = slices.DeleteFunc(m.kept, func(k scheduler.Kept) bool {
		w := m.workers[k.Worker]
		return w == nil || !m.couldRun(w, k.Class)
	})
	for i, k := range m.kept {
		w := m.workers[k.Worker]
		m.kept[i].Due = len(w.held) < w.capacity.Slots && m.hasResources(w, k.Class, w.held)
	}
	for _, w := range m.workers {
		w.reserved = w.reserved && len(w.held) >= w.capacity.Slots
	}
}

// release releases the worker that is kept for a task, or for one of a queue.
func (m *model) release(which func(scheduler.Kept) bool) { m.kept = slices.DeleteFunc(m.kept, which) }

func (m *model) isKeptFor(k scheduler.Kept, ref scheduler.TaskRef) bool {
	i := slices.IndexFunc(m.ready, func(t modelTask) bool { return t.seq == k.Seq })
	return i >= 0 && m.ready[i].ref == ref
}

// lacksCapacity reports whether a task starts as soon as a worker has capacity, of those that
// are not kept, and that some worker could run it.
func (m *model) lacksCapacity(t modelTask) bool {
	return m.mayStart(t.class, t.priority) && m.waitsForRoom(t)
}

// waitsForRoom is lacksCapacity for a task that quotas may hold back, too.
func (m *model) waitsForRoom(t modelTask) bool {
	some := false
	for _, w := range m.workers {
		if m.hasRoom(w, t.class) {
			return false
		}
		some = some || m.couldRun(w, t.class)
	}
	return some && !m.limitFull(t.class)
}

// oldestWaiting returns the oldest task of a queue that lacks capacity.
func (m *model) oldestWaiting(queue string) (best modelTask, ok bool) {
	for _, t := range m.ready {
		if m.demands[t.class].Queue == queue && (!ok || t.seq < best.seq) && m.lacksCapacity(t) {
			best, ok = t, true
		}
	}
	return best, ok
}

// keepable returns the workers that may be kept for a class.
func (m *model) keepable(c scheduler.ClassID) (best []scheduler.WorkerID) {
	var least *big.Rat
	for id, w := range m.workers {
		if m.isKept(w) || !m.couldRun(w, c) {
			continue
		}
		part := m.mustEnd(w, c)
		if least == nil || part.Cmp(least) < 0 {
			best, least = nil, part
		}
		if part.Cmp(least) == 0 {
			best = append(best, id)
		}
	}
	return best
}

// mustEnd returns which part of its attempts, or of one resource that they take, must end
// before a worker has capacity for a class.
func (m *model) mustEnd(w *modelWorker, c scheduler.ClassID) *big.Rat {
	part := new(big.Rat)
	if n := int64(len(w.held)) + 1 - int64(w.capacity.Slots); n > 0 {
		part = big.NewRat(n, int64(len(w.held)))
	}
	for _, q := range m.demands[c].Resources {
		taken := int64(0)
		for _, h := range w.held {
			taken += amount(m.demands[h.class].Resources, q.Name)
		}
		if lack := q.Amount + taken - amount(w.capacity.Resources, q.Name); lack > 0 {
			if p := big.NewRat(lack, max(taken, 1)); p.Cmp(part) > 0 {
				part = p
			}
		}
	}
	return part
}

// mayBeReserved reports whether a worker may prefetch nothing from now on: a task that is never
// prefetched waits for a slot, and fits it otherwise.
func (m *model) mayBeReserved(w *modelWorker) bool {
	return w.ahead > 0 && len(w.held) >= w.capacity.Slots && slices.ContainsFunc(m.ready, func(t modelTask) bool {
		return w.limit(m.demands[t.class]) == w.capacity.Slots && m.mayStart(t.class, t.priority) && m.fitsWithSlot(w, t.class)
	})
}

// keep adopts workers that are kept from now on, up to the first one that must not be.
func (m *model) keep(list []scheduler.Kept) (rest []scheduler.Kept, err error) {
	for i, k := range list {
		at := slices.IndexFunc(m.ready, func(t modelTask) bool { return t.seq == k.Seq })
		switch {
		case slices.ContainsFunc(m.kept, func(o scheduler.Kept) bool { return o.Queue == k.Queue }):
			err = fmt.Errorf("%+v: the queue has one already", k)
		case at < 0 || m.ready[at].class != k.Class || m.demands[k.Class].Queue != k.Queue || m.queues[k.Queue].Paused || !m.waitsForRoom(m.ready[at]):
			err = fmt.Errorf("%+v: no such task of the queue lacks capacity", k)
		case !slices.Contains(m.keepable(k.Class), k.Worker):
			err = fmt.Errorf("%+v: the worker must be one of %v", k, m.keepable(k.Class))
		}
		if err != nil {
			return list[i:], err
		}
		m.kept = append(m.kept, k)
	}
	return nil, nil
}

// Large tasks among small ones: workers are kept again and again.
func TestWorkersAreKeptAsTheReferenceModelAllows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var demands []scheduler.Demand
		for _, queue := range []string{"", "etl"} {
			for range 3 { // small, and two that are mostly large
				demands = append(demands, scheduler.Demand{Queue: queue, Resources: []scheduler.Quantity{{Name: "cpu", Amount: 1}}})
				demands[len(demands)-1].Resources[0].Amount += int64(len(demands)-1) % 3 * rapid.Int64Range(0, 4).Draw(t, "more")
			}
		}
		p := newPairOf(t, demands)
		for id := range scheduler.WorkerID(4) {
			p.addNew(id+1, scheduler.Capacity{
				Slots:     rapid.IntRange(2, 8).Draw(t, "slots"),
				Resources: []scheduler.Quantity{{Name: "cpu", Amount: rapid.Int64Range(2, 10).Draw(t, "cpu")}},
			})
		}
		t.Repeat(map[string]func(*rapid.T){
			"push":      p.push,
			"flow":      p.flow,
			"more flow": p.flow,
			"start":     p.fill,
			"cancel":    p.cancel,
			"supersede": p.supersede,
			"set queue": p.setQueue,
			"accepting": p.setAccepting,
			"":          p.check,
		})
	})
}

// fill starts what can start.
func (p *pair) fill(t *rapid.T) {
	for p.next(t) {
		p.check(t)
	}
}

// flow pushes a task for each attempt that ends.
func (p *pair) flow(t *rapid.T) {
	class := p.classOfTask(t)
	for range rapid.IntRange(1, 24).Draw(t, "ends") {
		p.pushed++
		task := modelTask{ref: scheduler.TaskRef{Index: p.pushed}, class: class, priority: scheduler.Normal}
		p.s.Push(task.ref, class, task.priority, 0)
		p.model.push(task, 1)
		id := scheduler.WorkerID(rapid.IntRange(1, 4).Draw(t, "worker")) //nolint:gosec // small
		if w := p.model.workers[id]; len(w.held) > 0 {
			h := w.held[0]
			w.held = w.held[1:]
			p.s.Release(id, h.class, h.priority)
		}
		p.fill(t)
	}
}
