package scheduler_test

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/dtask/dtask/scheduler"
)

// A model is the slow and obvious scheduler: a list of tasks and a list of
// workers, scanned from the start each time. It returns all legal choices.
type model struct {
	workers map[scheduler.WorkerID]*modelWorker
	demands []scheduler.Demand  // by class; those of alternatives have their resources
	first   []scheduler.ClassID // by class: the one of which it is an alternative, or itself
	limits  map[string]int      // named ones; 0 = unlimited
	tokens  map[string]int      // of limits with a rate
	ready   []modelTask         // as pushed
	seq     uint64              // of the last push
	queues  map[string]scheduler.Queue
	turns   map[string]int // starts of a queue since the last one by age
	served  map[any]int    // the last start of a queue, by name, and of an owner, by modelOwner
	starts  int
	kept    []scheduler.Kept  // see reservation_model_test.go
	saved   []scheduler.Saved // see saving_model_test.go
	aged    bool              // the last start was one by age
}

// modelOwner is an owner within a queue.
type modelOwner struct{ queue, namespace, name string }

func ownerOf(d scheduler.Demand) modelOwner { return modelOwner{d.Queue, d.Namespace, d.Owner} }

type modelWorker struct {
	capacity  scheduler.Capacity
	accepting bool
	ahead     int
	reserved  bool // see scheduler.Reserved
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
	seq      uint64
}

// push adds ready tasks with consecutive indexes: first all of them for the first alternative,
// then for the next one. What starts, ends or is cancelled goes with all its entries.
func (m *model) push(t modelTask, n uint32) {
	for c := range m.demands {
		if m.first[c] != t.class {
			continue
		}
		for k := range n {
			x := t
			m.seq++
			x.class, x.seq, x.ref.Index = scheduler.ClassID(c), m.seq, t.ref.Index+k
			m.ready = append(m.ready, x)
		}
	}
}

// remove removes all entries of a task.
func (m *model) remove(ref scheduler.TaskRef) {
	m.ready = slices.DeleteFunc(m.ready, func(t modelTask) bool { return t.ref == ref })
}

// addClass adds a class and its alternatives.
func (m *model) addClass(s *scheduler.Scheduler, c scheduler.ClassID, d scheduler.Demand) {
	for i, resources := range append([][]scheduler.Quantity{d.Resources}, d.Alternatives...) {
		x := d
		x.Resources = resources
		if s.Alternative(c, uint8(i)) != scheduler.ClassID(len(m.demands)) {
			panic("classes are not numbered as they are made")
		}
		m.demands, m.first = append(m.demands, x), append(m.first, c)
	}
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
	if d.NoPrefetch || len(d.Resources)+len(d.Alternatives)+len(d.Uses) > 0 {
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

func (m *model) fits(w *modelWorker, c scheduler.ClassID, p scheduler.Priority) bool {
	return m.mayStart(c, p) && m.hasRoom(w, c)
}

// hasRoom reports whether a worker could take a task that its queue lets start.
func (m *model) hasRoom(w *modelWorker, c scheduler.ClassID) bool {
	if m.isKept(w) {
		return false
	}
	if len(w.held) >= w.limit(m.demands[c]) || w.reserved && len(w.held) >= w.capacity.Slots {
		return false
	}
	return m.fitsWithSlot(w, c)
}

// mayOvertake reports whether a task may wait at the worker ahead of an attempt
// of a lower priority.
func (m *model) mayOvertake(w *modelWorker, c scheduler.ClassID, p scheduler.Priority) bool {
	n := w.atLeast(p)
	return !m.isKept(w) && m.mayStart(c, p) && m.mayOvertakeOthers(m.demands[c].Queue) && len(w.held) > w.capacity.Slots && n < len(w.held) && n < w.limit(m.demands[c]) && m.fitsWithSlot(w, c)
}

func (m *model) fitsWithSlot(w *modelWorker, c scheduler.ClassID) bool {
	return w.accepting && w.capacity.Slots > 0 && !m.limitFull(c) && m.suits(w, c) && m.hasResources(w, c, w.held)
}

// suits reports whether a worker may run attempts of a class, whatever these need.
func (m *model) suits(w *modelWorker, c scheduler.ClassID) bool {
	if t := m.demands[c].Type; t != "" && len(w.capacity.Types) > 0 && !slices.Contains(w.capacity.Types, t) {
		return false
	}
	if served := w.capacity.Namespaces; len(served) > 0 && !slices.Contains(served, m.demands[c].Namespace) {
		return false
	}
	for _, l := range m.demands[c].Labels {
		if !slices.Contains(w.capacity.Labels, l) {
			return false
		}
	}
	return !slices.ContainsFunc(m.demands[c].Rules, func(r scheduler.LabelRule) bool { return !meets(w.capacity.Labels, r) })
}

// hasResources reports whether a worker has what an attempt of a class needs beside others.
func (m *model) hasResources(w *modelWorker, c scheduler.ClassID, beside []modelHeld) bool {
	for _, q := range m.demands[c].Resources {
		taken := q.Amount
		for _, held := range beside {
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

// held returns the number of attempts of a class and its alternatives on all workers.
func (m *model) held(c scheduler.ClassID) (n int) {
	for _, w := range m.workers {
		for _, held := range w.held {
			if m.first[held.class] == m.first[c] {
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

// choices returns the workers that the task may be assigned to: those that fit and are not to
// be avoided, or the one to avoid if only it fits. Of these, it is those with a free slot if
// there are any, then those that the task prefers if there are any, and then those that its
// strategy may choose.
func (m *model) choices(t modelTask) []scheduler.WorkerID {
	d := m.demands[t.class]
	var fit []scheduler.WorkerID
	for id, w := range m.workers {
		if m.fits(w, t.class, t.priority) {
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
			better = func(a, b *modelWorker) bool { return m.fullness(a) > m.fullness(b) }
		case scheduler.Spread:
		}
	}
	return slices.DeleteFunc(slices.Clone(fit), func(id scheduler.WorkerID) bool {
		return slices.ContainsFunc(fit, func(other scheduler.WorkerID) bool { return better(m.workers[other], m.workers[id]) })
	})
}

// isKept reports whether a worker is kept free for a task.
func (m *model) isKept(w *modelWorker) bool {
	return slices.ContainsFunc(m.kept, func(k scheduler.Kept) bool { return m.workers[k.Worker] == w })
}

// mayStart reports whether the queue of a class lets a task of it start.
func (m *model) mayStart(c scheduler.ClassID, p scheduler.Priority) bool {
	d := m.demands[c]
	q, running, taken := m.queues[d.Queue], 0, map[string]int64{}
	for _, w := range m.workers {
		for _, h := range w.held {
			if other := m.demands[h.class]; other.Queue == d.Queue {
				running++
				for _, r := range other.Resources {
					taken[r.Name] += r.Amount
				}
			}
		}
	}
	for _, k := range m.saved {
		if k.Queue == d.Queue && (m.first[k.Class] != m.first[c] || k.Priority != p) {
			running++
			for _, r := range m.demands[k.Class].Resources {
				taken[r.Name] += r.Amount
			}
		}
	}
	if q.Paused || q.MaxRunning > 0 && running >= int(q.MaxRunning) {
		return false
	}
	for _, most := range q.Max {
		if n := amount(d.Resources, most.Name); n > 0 && taken[most.Name]+n > most.Amount {
			return false
		}
	}
	return true
}

// share returns the largest share of the cluster that some attempts have.
func (m *model) share(of func(scheduler.Demand) bool) *big.Rat {
	held, total := map[string]int64{}, map[string]int64{"": 0}
	for _, w := range m.workers {
		total[""] += int64(w.capacity.Slots)
		for _, q := range w.capacity.Resources {
			total[q.Name] += q.Amount
		}
		for _, h := range w.held {
			if d := m.demands[h.class]; of(d) {
				held[""]++
				for _, q := range d.Resources {
					held[q.Name] += q.Amount
				}
			}
		}
	}
	best := new(big.Rat)
	for name, n := range held {
		if s := big.NewRat(n, max(total[name], 1)); s.Cmp(best) > 0 {
			best = s
		}
	}
	return best
}

func (m *model) queueShare(name string) *big.Rat {
	s := m.share(func(d scheduler.Demand) bool { return d.Queue == name })
	return s.Quo(s, big.NewRat(int64(max(m.queues[name].Weight, 1)), 1))
}

// mayOvertakeOthers reports whether another queue that holds anything has at least the
// share of a queue, or none holds anything.
func (m *model) mayOvertakeOthers(name string) bool {
	others := map[string]bool{}
	for _, w := range m.workers {
		for _, h := range w.held {
			if q := m.demands[h.class].Queue; q != name {
				others[q] = true
			}
		}
	}
	for q := range others {
		if m.queueShare(q).Cmp(m.queueShare(name)) >= 0 {
			return true
		}
	}
	return len(others) == 0
}

// compare orders two tasks as their queues and owners do. aged: the oldest task of the
// queue is first.
func (m *model) compare(a, b modelTask, aged bool) int {
	d, e := m.demands[a.class], m.demands[b.class]
	if d.Queue != e.Queue {
		return cmp.Or(m.queueShare(d.Queue).Cmp(m.queueShare(e.Queue)), cmp.Compare(m.served[d.Queue], m.served[e.Queue]), cmp.Compare(d.Queue, e.Queue))
	}
	if aged {
		return cmp.Compare(a.seq, b.seq)
	}
	if a.priority != b.priority {
		return cmp.Compare(b.priority, a.priority)
	}
	if x, y := ownerOf(d), ownerOf(e); x != y {
		s := m.share(func(d scheduler.Demand) bool { return ownerOf(d) == x })
		t := m.share(func(d scheduler.Demand) bool { return ownerOf(d) == y })
		return cmp.Or(s.Cmp(t), cmp.Compare(m.served[x], m.served[y]), cmp.Compare(x.namespace, y.namespace), cmp.Compare(x.name, y.name))
	}
	return cmp.Compare(a.seq, b.seq)
}

// someOf returns those for which a condition holds, or all if it holds for none.
func someOf(list []scheduler.WorkerID, holds func(scheduler.WorkerID) bool) []scheduler.WorkerID {
	if some := slices.DeleteFunc(slices.Clone(list), func(id scheduler.WorkerID) bool { return !holds(id) }); len(some) > 0 {
		return some
	}
	return list
}

// fullness is how full a worker is: the largest share that is taken of its slots and resources.
func (m *model) fullness(w *modelWorker) int64 {
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
	m.aged = false
	m.saved = slices.DeleteFunc(m.saved, func(k scheduler.Saved) bool { return !m.savesFor(k) })
	for _, k := range slices.Clone(m.kept) {
		switch i := m.waitsFor(k); {
		case !k.Due:
		case i >= 0 && !m.mayStart(k.Class, m.ready[i].priority):
		case i < 0:
			m.kept = slices.DeleteFunc(m.kept, func(x scheduler.Kept) bool { return x == k })
		default:
			m.started(m.ready[i], false)
			return i, []scheduler.WorkerID{k.Worker}
		}
	}
	at, workers := m.nextInOrder()
	if at >= 0 {
		m.aged = m.turns[m.demands[m.ready[at].class].Queue] == 15
		m.started(m.ready[at], true)
		return at, workers
	}
	before := len(m.kept)
	m.kept = slices.DeleteFunc(m.kept, func(k scheduler.Kept) bool { return m.waitsFor(k) < 0 })
	if len(m.kept) < before {
		return m.next()
	}
	return m.overtaking()
}

// waitsFor returns the position in ready of the task that a worker is kept for; -1 if it
// no longer waits, or something else holds it back.
func (m *model) waitsFor(k scheduler.Kept) int {
	saved := slices.Contains(m.saved, scheduler.Saved{Queue: k.Queue, Class: k.Class, Seq: k.Seq, Priority: k.Priority})
	return slices.IndexFunc(m.ready, func(t modelTask) bool {
		return t.seq == k.Seq && !m.limitFull(t.class) && (m.mayStart(t.class, t.priority) || saved && !m.queues[k.Queue].Paused)
	})
}

func (m *model) limitFull(c scheduler.ClassID) bool {
	limit := m.demands[c].Limit
	return limit > 0 && m.held(c) >= int(limit) || m.namedLimitFull(c)
}

func (m *model) namedLimitFull(c scheduler.ClassID) bool {
	return slices.ContainsFunc(m.demands[c].Uses, func(name string) bool {
		tokens, rated := m.tokens[name]
		return m.limits[name] > 0 && m.uses(name) >= m.limits[name] || rated && tokens == 0
	})
}

// started records a start in the order of the queues.
func (m *model) started(t modelTask, inOrder bool) {
	d := m.demands[t.class]
	m.starts++
	m.served[d.Queue], m.served[ownerOf(d)] = m.starts, m.starts
	if inOrder {
		m.turns[d.Queue] = (m.turns[d.Queue] + 1) % 16
	}
}

func (m *model) nextInOrder() (best int, workers []scheduler.WorkerID) {
	best = -1
	for i, t := range m.ready {
		if best >= 0 && m.compare(t, m.ready[best], m.turns[m.demands[t.class].Queue] == 15) >= 0 {
			continue
		}
		if list := m.choices(t); len(list) > 0 {
			best, workers = i, list
		}
	}
	return best, workers
}

// overtaking is next for the tasks that fit nowhere, but may overtake others.
func (m *model) overtaking() (best int, workers []scheduler.WorkerID) {
	for p := scheduler.Urgent; p > scheduler.Low; p-- {
		best = -1
		for i, t := range m.ready {
			if t.priority != p || best >= 0 && m.compare(t, m.ready[best], false) >= 0 {
				continue
			}
			var list []scheduler.WorkerID
			for id, w := range m.workers {
				if m.mayOvertake(w, t.class, p) {
					list = append(list, id)
				}
			}
			if len(list) > 0 {
				best, workers = i, list
			}
		}
		if best >= 0 {
			queue := m.demands[m.ready[best].class].Queue
			m.started(m.ready[best], false)
			m.turns[queue] = min(m.turns[queue]+1, 15)
			return best, workers
		}
	}
	return -1, nil
}
