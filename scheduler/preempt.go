package scheduler

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// A Preemption names attempts that must end so that an urgent task starts on their worker.
type Preemption struct {
	Task   TaskRef
	Worker WorkerID
	Yields []Yield
}

// A Yield is a number of attempts of one class and priority.
type Yield struct {
	Class    ClassID
	Priority Priority
	N        int // > 0
}

// Yields adds n attempts of a class and priority to those on a worker that give their places to
// urgent tasks, or removes -n of them. The worker must hold them: remove each before its Release.
// An unknown worker is ignored: RemoveWorker removes what is left.
func (s *Scheduler) Yields(id WorkerID, c ClassID, p Priority, n int) {
	w := s.workers[id]
	if w == nil {
		return
	}
	p = p.orNormal()
	i := slices.IndexFunc(w.yields, func(y Yield) bool { return y.Class == c && y.Priority == p })
	if i < 0 {
		i = len(w.yields)
		w.yields = append(w.yields, Yield{Class: c, Priority: p})
	}
	if w.yields[i].N += n; w.yields[i].N == 0 {
		w.yields = slices.Delete(w.yields, i, i+1)
	}
	s.addYields(c, n)
}

// StartedByAge reports whether the last task that Next has started was the oldest of its queue at
// its turn by age. If its attempt ended for an urgent task, the turn would be lost.
func (s *Scheduler) StartedByAge() bool { return s.byAge }

// YieldsAlike reports whether the ends of attempts of two classes give the same to urgent tasks of the
// same queue.
func (s *Scheduler) YieldsAlike(a, b ClassID) bool {
	x, y := s.classes[a], s.classes[b]
	return x == y || x.flow.queue == y.flow.queue && slices.Equal(x.needs, y.needs)
}

// IsPreemptible reports whether tasks of a class are preemptible.
func (s *Scheduler) IsPreemptible(c ClassID) bool { return s.classes[c].yields }

func (s *Scheduler) addYields(c ClassID, n int) {
	s.classes[c].flow.queue.yields += n
	s.yields += n
}

// removeYields removes those of a worker.
func (s *Scheduler) removeYields(w *worker) {
	for _, y := range w.yields {
		s.addYields(y.Class, -y.N)
	}
	w.yields = nil
}

// MayPreempt reports whether urgent tasks wait, or did, while attempts would give them their places,
// or end for them.
func (s *Scheduler) MayPreempt() bool {
	return s.depth[Urgent] > 0 && (s.yields > 0 || slices.ContainsFunc(s.reservations, func(k *reservation) bool { return k.preempts }))
}

// Preempt chooses attempts that must end for urgent tasks of their queues that have waited for
// a second, and keeps their workers for these. Call it when Next finds nothing to start. For each
// task, the attempts are as few as possible on one worker, of priorities as low as possible.
// ending reports whether attempts end on a worker for an earlier Preemption: a queue has one at a
// time. Nothing ends for a task that uses named limits: they are not kept for it meanwhile.
//
// Preemption cannot continue in a circle: what it stops has a strictly lower priority than what it
// starts. valid is as in Next.
func (s *Scheduler) Preempt(valid func(TaskRef) bool, ending func(WorkerID) bool) []Preemption {
	return s.preempt(valid, ending, math.MaxInt)
}

// preempt is Preempt for a number of tasks at most.
func (s *Scheduler) preempt(valid func(TaskRef) bool, ending func(WorkerID) bool, most int) (found []Preemption) {
	if !s.MayPreempt() {
		return nil
	}
	s.unkeepPreempted(ending)
	list := s.preemptors(valid)
	if s.untried >= len(list) {
		s.untried = 0
	}
	looks := 0
	for _, r := range list[s.untried:] {
		if looks == maxPreemptors || len(found) == most {
			return found
		}
		s.untried++
		if q := r.class.flow.queue; q.preempting == nil {
			looks++
			if w, yields := s.yieldTo(r); w != nil {
				if w.kept != nil { // for this task, in its turn by age
					s.unkeep(w.kept)
				}
				k := s.keepWorker(r, w)
				q.preempting, k.preempts = k, true
				s.recheck(k) // only a quota may be short
				found = append(found, Preemption{r.front().task(), w.id, yields})
			}
		}
	}
	s.untried = 0
	return found
}

const (
	// maxPreemptors is for how many kinds of tasks each call of Preempt looks at the workers. The
	// next call continues with others.
	maxPreemptors = 8
	// maxYields is how many attempts end for a task at most.
	maxYields = 100
)

// preemptors returns the urgent ready queues whose first tasks may take the places of others,
// the oldest first. Of those in one queue that need the same of a worker, it is the oldest.
func (s *Scheduler) preemptors(valid func(TaskRef) bool) (list []*readyQueue) {
	for _, c := range s.classes {
		r := &c.queues[Urgent]
		if r.n == 0 || len(c.limits) > 0 || c.groupFull() || c.flow.queue.yields == 0 || c.flow.queue.paused {
			continue
		}
		for r.n > 0 && s.isStale(r.front(), valid) {
			s.drop(r)
		}
		if r.n > 0 && r.front().seq <= s.affinity.old && c.flow.queue.preempting == nil {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, func(a, b *readyQueue) int { return cmp.Compare(a.front().seq, b.front().seq) })
	type kind struct {
		queue *queue
		shape *shape
	}
	seen := make(map[kind]bool)
	return slices.DeleteFunc(list, func(r *readyQueue) bool {
		k := kind{r.class.flow.queue, r.class.shape}
		same := seen[k] && r.class.affinity == nil // with a key, only its worker is looked at
		seen[k] = seen[k] || r.class.affinity == nil
		return same
	})
}

// unkeepPreempted releases the workers where attempts have ended for tasks, and were not enough.
func (s *Scheduler) unkeepPreempted(ending func(WorkerID) bool) {
	for _, k := range slices.Backward(s.reservations) { // backwards: unkeep removes it
		if suffices := k.due && k.ready.mayStart(); k.preempts && !suffices && !ending(k.worker.id) {
			s.unkeep(k)
		}
	}
}

// yieldTo returns the worker where attempts must end for the first task of a ready queue, and which;
// nil: nowhere. It is nil, too, if the task needs no such end.
func (s *Scheduler) yieldTo(r *readyQueue) (best *worker, list []Yield) {
	c, least := r.class, Urgent
	quota, ok := c.flow.queue.lacks(c, r.priority)
	if !ok {
		return nil, nil
	}
	fits := func(w *worker) bool { return w.ranked() && w.fits(c.shape) }
	if quota.isZero() && !c.blocked && slices.ContainsFunc(s.eligible(c.shape), fits) {
		return nil, nil
	}
	home := s.keyWorker(c)
	for _, w := range s.eligible(c.shape) {
		if home != nil && w != home || !w.usable() || w.kept != nil && !w.kept.isFor(r) || w.waiting > 0 || len(w.yields) == 0 {
			continue
		}
		found, highest := s.cover(w, c, quota)
		n := attempts(found)
		if n > 0 && (best == nil || cmp.Or(cmp.Compare(highest, least), cmp.Compare(n, attempts(list))) < 0) {
			best, list, least = w, found, highest
		}
		if n == 1 && highest == Low {
			break // no other is better
		}
	}
	return best, list
}

func attempts(list []Yield) (n int) {
	for _, y := range list {
		n += y.N
	}
	return n
}

// A lack is what must become free for a task: slots, and an amount of each of its needs.
type lack struct {
	slots int64
	needs []need
}

func (l *lack) isZero() bool {
	return l.slots <= 0 && !slices.ContainsFunc(l.needs, func(n need) bool { return n.amount > 0 })
}

// of returns how much of a resource is lacking.
func (l *lack) of(r resourceID) int64 {
	for _, n := range l.needs {
		if n.resource == r {
			return n.amount
		}
	}
	return 0
}

// lacks returns what must become free of the quotas of a queue for the first task of a class and
// priority. ok is false if ends of attempts are not enough: something is saved for another task.
func (q *queue) lacks(c *class, p Priority) (l lack, ok bool) {
	if q.savedBeside(c, p) != nil && !q.allows(c, p) || !q.mayAllow(c.shape) {
		return l, false
	}
	if q.limit > 0 {
		l.slots = int64(q.held.slots) + 1 - int64(q.limit) //nolint:gosec // far below 2^63
	}
	for _, m := range q.max {
		for _, n := range c.needs {
			if n.resource != m.resource {
				continue
			}
			if short := int64(q.held.of(m.resource)) + n.amount - int64(m.amount); short > 0 { //nolint:gosec // at most 2^62
				l.needs = append(l.needs, need{n.resource, short})
			}
		}
	}
	return l, true
}

// lacks returns what must become free on a worker for a shape, and of quotas. needs has its needs.
func (w *worker) lacks(c *shape, quota lack, needs []need) lack {
	l := lack{max(quota.slots, int64(w.used)+1-int64(w.slots), 0), needs}
	for _, n := range c.needs {
		if short := max(n.amount-w.free(n.resource), quota.of(n.resource)); short > 0 {
			l.needs = append(l.needs, need{n.resource, short})
		}
	}
	return l
}

// cover returns attempts on a worker whose ends are enough for a class, and the highest of their
// priorities: the lowest that is enough. nil: there are not enough.
func (s *Scheduler) cover(w *worker, c *class, quota lack) (list []Yield, highest Priority) {
	offers := s.yieldsOf(w, c.flow.queue)
	for i, y := range offers {
		if i+1 < len(offers) && offers[i+1].Priority == y.Priority {
			continue
		}
		l := w.lacks(c.shape, quota, s.lacking[:0])
		s.lacking = l.needs
		if s.suffice(offers[:i+1], &l) {
			if list = s.few(offers[:i+1], w.lacks(c.shape, quota, s.lacking[:0])); list != nil {
				return list, y.Priority
			}
		}
	}
	return nil, Urgent
}

// yieldsOf returns what a worker has for urgent tasks of a queue, the lowest priority first, until the
// next call.
func (s *Scheduler) yieldsOf(w *worker, q *queue) []Yield {
	s.offered = s.offered[:0]
	for _, y := range w.yields {
		if y.Priority < Urgent && s.classes[y.Class].flow.queue == q {
			s.offered = append(s.offered, y)
		}
	}
	slices.SortFunc(s.offered, func(a, b Yield) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Class, b.Class))
	})
	return s.offered
}

// suffice reports whether the ends of all offers give what is lacking, and takes them off that.
func (s *Scheduler) suffice(offers []Yield, l *lack) bool {
	for _, y := range offers {
		l.change(s.classes[y.Class].shape, -int64(y.N))
	}
	return l.isZero()
}

// few returns attempts among offers whose ends give all that is lacking; the ends of all offers do.
// It takes those first that give most of it, which are the fewest if one thing is lacking: the greedy
// algorithm for set covers (V. Chvátal, 1979). Then it leaves out what is not needed any more. nil:
// these are more than maxYields.
func (s *Scheduler) few(offers []Yield, l lack) (list []Yield) {
	left := slices.Clone(offers)
	var order []int // positions in offers
	for !l.isZero() {
		if len(order) == maxYields {
			return nil
		}
		best, most := -1, uint64(0)
		for i, y := range left {
			if gain := l.gain(s.classes[y.Class].shape); y.N > 0 && gain > most {
				best, most = i, gain
			}
		}
		left[best].N--
		l.change(s.classes[left[best].Class].shape, -1)
		order = append(order, best)
	}
	for _, i := range order {
		sh := s.classes[left[i].Class].shape
		if l.change(sh, 1); l.isZero() {
			left[i].N++
		} else {
			l.change(sh, -1)
		}
	}
	for i, y := range offers {
		if y.N -= left[i].N; y.N > 0 {
			list = append(list, y)
		}
	}
	return list
}

// gain returns how much of what is lacking the end of an attempt gives, in millionths of each thing.
func (l *lack) gain(sh *shape) (sum uint64) {
	part := func(amount, lacking int64) uint64 {
		if amount == 0 || lacking <= 0 {
			return 0
		}
		hi, lo := bits.Mul64(uint64(min(amount, lacking)), 1_000_000) //nolint:gosec // positive
		q, _ := bits.Div64(hi, lo, uint64(lacking))                   // at most a million
		return max(q, 1)
	}
	sum = part(1, l.slots)
	for _, n := range l.needs {
		sum += part(needOf(sh, n.resource), n.amount)
	}
	return sum
}

// change adds n times what an attempt holds to what is lacking.
func (l *lack) change(sh *shape, n int64) {
	l.slots += n
	for i := range l.needs {
		l.needs[i].amount += n * needOf(sh, l.needs[i].resource)
	}
}

// needOf returns how much of a resource an attempt holds.
func needOf(sh *shape, r resourceID) int64 {
	for _, n := range sh.needs {
		if n.resource == r {
			return n.amount
		}
	}
	return 0
}
