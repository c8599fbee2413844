package scheduler

import (
	"errors"
	"fmt"
	"slices"
)

// SparePages returns the number of drained pages that are kept.
func (s *Scheduler) SparePages() int { return max(s.pages.large.n, s.pages.small.n) }

// Reserved reports whether a worker prefetches nothing until it has a free
// slot.
func (s *Scheduler) Reserved(id WorkerID) bool { return s.workers[id].reserved }

// Free returns the number of free slots of a worker; below 0 if attempts wait for one.
func (s *Scheduler) Free(id WorkerID) int { return int(s.workers[id].slots) - int(s.workers[id].used) }

// HasPackOrder reports whether the order of Pack exists.
func (s *Scheduler) HasPackOrder() bool { return s.pack != nil }

// Held returns the number of attempts of a class, or of its group if it has a limit.
func (s *Scheduler) Held(c ClassID) uint32 {
	if g := s.classes[c].group; g != nil {
		return g.held
	}
	return s.classes[c].held
}

// SetHeld sets how many attempts count towards the limit of a class, and of nothing else.
func (s *Scheduler) SetHeld(id ClassID, n uint32) { s.classes[id].group.held = n }

// SetLimit changes the limit of a class.
func (s *Scheduler) SetLimit(id ClassID, limit uint32) {
	c := s.classes[id]
	if c.group.limit = limit; !c.full() {
		s.unparkLimited(c)
	}
}

// A Kept is a worker that is kept free for the task with a seq.
type Kept struct {
	Worker WorkerID
	Queue  string
	Class  ClassID
	Seq    uint64
	Due    bool

	Priority Priority
	Preempts bool // attempts end for the task
}

// Wants returns how many queues want a worker to be kept free.
func (s *Scheduler) Wants() int { return len(s.wants) }

// Kept returns the reservations, the oldest first.
func (s *Scheduler) Kept() (list []Kept) {
	for _, k := range s.reservations {
		list = append(list, Kept{k.worker.id, k.queue, k.ready.class.id, k.seq, k.due, k.ready.priority, k.preempts})
	}
	return list
}

// A Saved is the task with a seq for which the quotas of a queue are saved.
type Saved struct {
	Queue string
	Class ClassID
	Seq   uint64

	Priority Priority
}

// Saved is Savings with the seqs of the tasks.
func (s *Scheduler) Saved() (list []Saved) {
	for _, q := range s.saving {
		list = append(list, Saved{q.name, q.saving.ready.class.id, q.saving.seq, q.saving.priority})
	}
	return list
}

// Flows returns the number of flows and classes that exist.
func (s *Scheduler) Flows() (flows, classes int) {
	for _, q := range s.queues {
		flows += len(q.flows)
	}
	return flows, len(s.classes) - len(s.unused)
}

// Shapes returns the number of shapes that are known, and of those that are blocked.
func (s *Scheduler) Shapes() (known, blocked int) { return len(s.shapes), len(s.blocked) }

// AwaitingCapacity returns how many ready queues with tasks are parked because of their shapes.
func (s *Scheduler) AwaitingCapacity() (n int) {
	for _, q := range s.queues {
		for _, p := range q.parts {
			n += len(p.byAge.items)
		}
	}
	return n
}

// Parked returns the length of the lists of what waits for limits, quotas and capacity.
func (s *Scheduler) Parked() int {
	n := len(s.blocked)
	for _, l := range s.limits {
		n += len(l.waiting) + len(l.parts) + s.InParts(l.name)
	}
	for _, q := range s.queues {
		n += s.OverQuota(q.name) + len(q.overParts)
	}
	return n
}

// InParts returns how many ready queues wait in the parts of a limit.
func (s *Scheduler) InParts(limit string) (n int) {
	for _, p := range s.limits[limit].parts {
		n += len(p.byAge.items)
	}
	return n
}

// SetWaits sets how many ready queues wait in plain lists, and how many open parts of a queue are
// compared.
func (s *Scheduler) SetWaits(listed, open int) { s.maxListed, s.maxOpen = listed, open }

// OverQuota returns how many ready queues the quotas of a queue hold back.
func (s *Scheduler) OverQuota(name string) int {
	q := s.queues[name]
	n := len(q.over)
	for _, p := range q.overParts {
		n += len(p.byAge.items)
	}
	return n
}

// Check recomputes what the Scheduler maintains, and returns the first
// difference.
func (s *Scheduler) Check() error {
	for p := Low; p <= Urgent; p++ {
		n := 0
		for _, c := range s.classes {
			q := &c.queues[p]
			if c.number == 0 {
				n += q.n
			}
			if err := s.checkAlternatives(q); err != nil {
				return err
			}
			if q.n == 0 && (q.head != nil || q.tail != nil) {
				return fmt.Errorf("queue %d/%v is empty and has a page", c.id, p)
			}
			if err := s.checkReadyQueue(q); err != nil {
				return fmt.Errorf("queue %d/%v: %w", c.id, p, err)
			}
		}
		if n != s.depth[p] {
			return fmt.Errorf("depth of %v is %d, the queues have %d", p, s.depth[p], n)
		}
	}
	if err := s.checkOrder(); err != nil {
		return err
	}
	for i, c := range s.byLoad.items {
		if c.key != c.load() || c.pos != i || i > 0 && c.before(s.byLoad.items[(i-1)/heapWidth].worker) {
			return fmt.Errorf("worker %d has the key %+v, position %d, at %d of %+v", c.id, c.key, c.pos, i, s.byLoad.items)
		}
	}
	if s.pack != nil {
		if err := checkHeap(&s.pack.workers, func(w packed) int { return w.packPos }); err != nil {
			return fmt.Errorf("order of Pack: %w", err)
		}
		if len(s.pack.workers.items) != len(s.byLoad.items) {
			return fmt.Errorf("%d workers in the order of Pack, want %d", len(s.pack.workers.items), len(s.byLoad.items))
		}
	}
	if err := s.checkLimits(); err != nil {
		return err
	}
	if err := s.checkAffinity(); err != nil {
		return err
	}
	return s.checkWorkers()
}

// checkAlternatives compares the tasks of a ready queue with those of the alternatives.
func (s *Scheduler) checkAlternatives(q *readyQueue) error {
	tasks := func(q *readyQueue) (list []TaskRef) {
		scan := scanner{s: s, left: 1 << 30}
		scan.runs(q, func(e *entry) bool {
			for k := range e.n {
				list = append(list, TaskRef{e.job, e.index + k})
			}
			return true
		})
		return list
	}
	var group uint32
	for i, a := range q.class.alternatives {
		if int(a.number) != i || a.group != q.class.group || s.classes[a.id] != a {
			return fmt.Errorf("alternative %d of class %d is class %d with number %d", i, q.class.id, a.id, a.number)
		}
		if group += a.held; !slices.Equal(tasks(q), tasks(&a.queues[q.priority])) {
			return fmt.Errorf("class %d has the tasks %v, alternative %d has %v", q.class.id, tasks(q), i, tasks(&a.queues[q.priority]))
		}
	}
	if g := q.class.group; g != nil && q.class.alternatives != nil && g.held != group {
		return fmt.Errorf("the group of class %d counts %d attempts, want %d", q.class.id, g.held, group)
	}
	return nil
}

// checkLimits compares the counters of named limits with those of the classes.
func (s *Scheduler) checkLimits() error {
	held, classes := make(map[string]uint32), make(map[string]int)
	for _, c := range s.classes {
		for _, l := range c.limits {
			if s.limits[l.name] != l {
				return fmt.Errorf("class %d uses limit %q, which is not known", c.id, l.name)
			}
			held[l.name] += c.held
			classes[l.name]++
		}
	}
	for name, l := range s.limits {
		if l.held != held[name] || l.classes != classes[name] {
			return fmt.Errorf("limit %q counts %d attempts and %d classes, want %d and %d", name, l.held, l.classes, held[name], classes[name])
		}
	}
	return nil
}

// waitsForLimit reports whether a ready queue is in the list of a limit that is full.
func (s *Scheduler) waitsForLimit(q *readyQueue) bool {
	return slices.ContainsFunc(q.class.limits, func(l *namedLimit) bool { return l.full() && slices.Contains(l.waiting, q) })
}

// waitsIn returns the part in which a ready queue waits, or nil.
func (r *readyQueue) waitsIn() *waitPart {
	if r.gated == nil || r.gated.pos < 0 {
		return nil
	}
	return r.gated.part
}

func (s *Scheduler) checkReadyQueue(q *readyQueue) error {
	c := q.class
	switch {
	case c.flow == nil:
		if q.n > 0 {
			return errors.New("an unused class has tasks")
		}
		return nil
	case (q.pos >= 0) != (q.n > 0 && q.parked == listable):
		return fmt.Errorf("has %d tasks, parked %d, is listed: %v", q.n, q.parked, q.pos >= 0)
	case q.pos >= 0 && (q.oldest != q.front().seq || c.flow.levels[q.priority].ready.items[q.pos] != readyAge{q.oldest, q}):
		return fmt.Errorf("key %d, front %d", q.oldest, q.front().seq)
	case q.waitsIn() != nil && q.parked != q.waitsIn().why:
		return fmt.Errorf("is parked for reason %d, and waits in a part for reason %d", q.parked, q.waitsIn().why)
	case q.parked == byShape && q.n > 0 && q.waitsIn() == nil:
		return errors.New("waits for capacity, and in no part")
	case q.parked == byLimit && q.n > 0 && !c.groupFull():
		return errors.New("is parked although its class is not full")
	case q.parked == byNamedLimit && q.n > 0 && q.waitsIn() == nil && !s.waitsForLimit(q):
		return errors.New("waits for no limit that is full")
	case (q.parked == byAffinity) != (q.wait != nil && q.wait.part != nil):
		return errors.New("waits for the worker of its key, and in no part, or the other way round")
	case q.parked == byQuota && q.n > 0 && q.waitsIn() == nil && !slices.Contains(c.flow.queue.over, q):
		return errors.New("is over a quota, and in no list")
	}
	return nil
}

// checkParts checks the ready queues that wait in parts, and counts those of shapes that are not
// blocked.
func (s *Scheduler) checkParts(listed map[*shape]int) error {
	open := make(map[*queue]int)
	check := func(g *gate, parts []*waitPart) error {
		for _, p := range parts {
			if err := s.checkPart(p); err != nil {
				return fmt.Errorf("queue %q, what is parked for reason %d: %w", p.queue.name, p.why, err)
			}
			if len(p.byAge.items) > 0 && (p.gate != g || !slices.Contains(g.parts, p)) {
				return fmt.Errorf("queue %q has a part that its gate does not have", p.queue.name)
			}
			if len(p.byAge.items) > 0 && !g.blocked {
				open[p.queue]++
			}
		}
		return nil
	}
	for _, l := range s.limits {
		if err := check(&l.gate, l.parts); err != nil {
			return err
		}
		if l.blocked && !l.full() {
			return fmt.Errorf("what waits for limit %q is held back although it is not full", l.name)
		}
	}
	for name, q := range s.queues {
		waits := false
		for _, p := range q.parts {
			if err := check(&p.shape.gate, []*waitPart{p}); err != nil {
				return err
			}
			if waits = waits || p.gate.blocked && len(p.byAge.items) > 0; !p.gate.blocked {
				listed[p.shape] += len(p.byAge.items)
			}
		}
		for _, p := range q.overParts {
			if err := check(p.gate, []*waitPart{p}); err != nil {
				return err
			}
			if p.gate.blocked && q.leaves(p.shape, q.saving) {
				return fmt.Errorf("queue %q holds back what its quotas allow", name)
			}
		}
		if waits && q.pos < 0 && !q.passes {
			return fmt.Errorf("queue %q waits for capacity, and is not known to be passed over", name)
		}
	}
	for name, q := range s.queues {
		if len(q.open) != open[q] || len(q.open) > s.maxOpen {
			return fmt.Errorf("queue %q: %d parts are open, listed %d", name, open[q], len(q.open))
		}
		for at, p := range q.open {
			if int(p.openAt) != at || p.queue != q || p.gate.blocked || len(p.byAge.items) == 0 {
				return fmt.Errorf("queue %q: an open part is at a wrong position, or closed, or empty", name)
			}
		}
	}
	return nil
}

func (s *Scheduler) checkPart(p *waitPart) error {
	if err := checkTurns(&p.order, func(w *flowWaits) *int32 { return &w.pos }); err != nil {
		return fmt.Errorf("owners: %w", err)
	}
	if err := checkHeap(&p.byAge, func(k waitAge) int { return int(k.agePos) }); err != nil {
		return fmt.Errorf("ages: %w", err)
	}
	n := 0
	for _, x := range p.order.items {
		w, now := x.of, s.ownerKey(x.of.flow)
		switch {
		case !s.reshare && now.before(&x.key):
			return errors.New("the key of a waiting owner is above the present one")
		case w.part != p || len(w.ready.items) == 0 || w.flow.waits[w.at] != w:
			return errors.New("ready queues wait, and their owner does not know")
		}
		if err := checkHeap(&w.ready, func(k *gateWait) int { return int(k.pos) }); err != nil {
			return fmt.Errorf("ready queues: %w", err)
		}
		for _, k := range w.ready.items {
			r := k.ready
			if k.part != p || k.of != w || r.class.flow != w.flow || p.shape != nil && r.class.shape != p.shape || r.priority != p.priority || r.front().seq != r.oldest || p.byAge.items[k.agePos].age != r.oldest {
				return errors.New("a ready queue waits in a wrong part, or with a wrong age")
			}
			n++
		}
	}
	if n != len(p.byAge.items) {
		return fmt.Errorf("%d ready queues wait in order, %d by age", n, len(p.byAge.items))
	}
	return nil
}

// checkOrder checks the heaps of queues, owners and ready queues.
func (s *Scheduler) checkOrder() error {
	listed := make(map[*shape]int)
	if err := s.checkParts(listed); err != nil {
		return err
	}
	if err := s.checkYields(); err != nil {
		return err
	}
	for name, q := range s.queues {
		some := false
		for p := Low; p <= Urgent; p++ {
			h := &q.ready[p]
			if err := checkTurns(h, func(f *flow) *int32 { return &f.pos[p] }); err != nil {
				return fmt.Errorf("owners of queue %q: %w", name, err)
			}
			some = some || len(h.items) > 0
			for i := range h.items {
				now := s.ownerKey(h.items[i].of)
				if len(h.items) > 1 && !s.reshare && now.before(&h.items[i].key) {
					return fmt.Errorf("queue %q: the key of an owner is above the present one", name)
				}
			}
		}
		some = some || len(q.open) > 0
		// A queue stays listed when its last shape is blocked, until it is at the front.
		may := some || slices.ContainsFunc(q.parts, func(p *waitPart) bool { return len(p.byAge.items) > 0 })
		if q.pos < 0 && some && !q.paused && !q.full() || q.pos >= 0 && (!may || q.paused || q.full()) {
			return fmt.Errorf("queue %q is listed: %v", name, q.pos >= 0)
		}
		now := s.queueKey(q)
		if q.pos >= 0 && len(s.byShare.items) > 1 && !s.reshare && now.before(&s.byShare.items[q.pos].key) {
			return fmt.Errorf("queue %q: its key is above the present one", name)
		}
		if err := checkHeap(&q.byAge, func(f flowAge) int { return int(f.agePos) }); err != nil {
			return fmt.Errorf("ages of queue %q: %w", name, err)
		}
		for _, f := range q.flows {
			for p := Low; p <= Urgent; p++ {
				l := &f.levels[p]
				if (f.pos[p] >= 0) != (len(l.ready.items) > 0) {
					return fmt.Errorf("queue %q: an owner is listed: %v, with %d ready queues", name, f.pos[p] >= 0, len(l.ready.items))
				}
				if err := checkHeap(&l.ready, func(r readyAge) int { return int(r.pos) }); err != nil {
					return fmt.Errorf("ready queues of queue %q: %w", name, err)
				}
			}
			if r := f.oldest(); r != nil && (f.agePos < 0 || q.byAge.items[f.agePos].age > r.oldest) {
				return fmt.Errorf("queue %q: the age of an owner is above that of its oldest task, %d", name, r.oldest)
			}
		}
		for i, k := range []*reservation{q.kept, q.preempting} {
			if k != nil && (k.worker.kept != k || k.preempts != (i == 1) || !slices.Contains(s.reservations, k)) {
				return fmt.Errorf("queue %q has a reservation that its worker does not have", name)
			}
		}
	}
	return checkTurns(&s.byShare, func(q *queue) *int32 { return &q.pos })
}

func (s *Scheduler) checkWorkers() error {
	if len(s.sorted) != len(s.workers) {
		return fmt.Errorf("%d workers in order, %d by id", len(s.sorted), len(s.workers))
	}
	held := make(map[ClassID]uint32)
	usages := make(map[any]*usage) // of queues and flows
	var byPriority [Urgent + 1]int
	for _, w := range s.sorted {
		if w.reserved && w.used < w.slots {
			return fmt.Errorf("worker %d is reserved and has a free slot", w.id)
		}
		n := uint32(0)
		for p := range w.byPriority {
			n += w.byPriority[p]
			byPriority[p] += int(w.byPriority[p])
		}
		if n != w.used {
			return fmt.Errorf("worker %d holds %d attempts of all priorities, and %d", w.id, n, w.used)
		}
		for _, h := range w.held {
			held[h.class] += h.n
			c := s.classes[h.class]
			for _, x := range []any{c.flow, c.flow.queue} {
				if usages[x] == nil {
					usages[x] = new(usage)
				}
				for range h.n {
					usages[x].add(c)
				}
			}
		}
		if k := w.kept; k != nil && (k.worker != w || !w.usable() || w.ranked()) {
			return fmt.Errorf("worker %d is kept, and usable: %v, ranked: %v", w.id, w.usable(), w.ranked())
		}
	}
	for _, q := range s.queues {
		if err := q.held.equals(usages[q]); err != nil {
			return fmt.Errorf("queue %q: %w", q.name, err)
		}
		for _, f := range q.flows {
			if err := f.held.equals(usages[f]); err != nil {
				return fmt.Errorf("queue %q, an owner: %w", q.name, err)
			}
		}
	}
	for _, c := range s.classes {
		if c.held != held[c.id] { // nothing is reserved in these tests
			return fmt.Errorf("class %d counts %d attempts, workers hold %d", c.id, c.held, held[c.id])
		}
	}
	if byPriority != s.held {
		return fmt.Errorf("workers hold %v attempts by priority, counted %v", byPriority, s.held)
	}
	for i, w := range s.sorted {
		if i > 0 && s.sorted[i-1].id >= w.id {
			return fmt.Errorf("worker %d is out of order", w.id)
		}
		if w.ranked() != (w.usable() && w.kept == nil) {
			return fmt.Errorf("worker %d is in the heap: %v", w.id, w.ranked())
		}
		var used uint32
		taken := make([]int64, len(w.taken))
		for _, h := range w.held {
			used += h.n
			for _, n := range s.classes[h.class].needs {
				taken[n.resource] += n.amount * int64(h.n)
			}
		}
		if used != w.used {
			return fmt.Errorf("worker %d has %d slots taken and holds %d attempts", w.id, w.used, used)
		}
		for r := range taken {
			if taken[r] != w.taken[r] {
				return fmt.Errorf("worker %d: %d of resource %d is taken, its attempts take %d", w.id, w.taken[r], r, taken[r])
			}
		}
		for _, sh := range s.blocked {
			if w.ranked() && w.fits(sh) {
				return fmt.Errorf("a shape is blocked and fits worker %d", w.id)
			}
		}
	}
	return nil
}

// equals compares a usage with one that was counted; nil: nothing is held.
func (u *usage) equals(want *usage) error {
	if want == nil {
		want = new(usage)
	}
	for r := range max(len(u.taken), len(want.taken)) {
		if id := resourceID(r); u.of(id) != want.of(id) { //nolint:gosec // small
			return fmt.Errorf("%d of resource %d is held, counted %d", want.of(id), r, u.of(id))
		}
	}
	if u.slots != want.slots {
		return fmt.Errorf("%d slots are held, counted %d", want.slots, u.slots)
	}
	return nil
}

func checkTurns[T ordered[T]](h *turns[T], at func(T) *int32) error {
	for i := range h.items {
		t := &h.items[i]
		if t.pos != at(t.of) || *t.pos != int32(i) { //nolint:gosec // small
			return fmt.Errorf("the element at %d has position %d", i, *t.pos)
		}
		if i > 0 && t.before(&h.items[(i-1)/heapWidth]) {
			return fmt.Errorf("the element at %d is ordered before its parent", i)
		}
	}
	return nil
}

func checkHeap[T positioned[T]](h *heap[T], at func(T) int) error {
	for i, x := range h.items {
		if at(x) != i {
			return fmt.Errorf("the element at %d has position %d", i, at(x))
		}
		if i > 0 && x.before(h.items[(i-1)/2]) {
			return fmt.Errorf("the element at %d is ordered before its parent", i)
		}
	}
	return nil
}

// Score is the order of the workers of a key.
func Score(key string, w WorkerID) uint64 {
	return score(newAffinity(&Demand{Affinity: key}).hash, seedOf(w))
}

// Awaited returns how many tasks wait for a worker because of their keys.
func (s *Scheduler) Awaited(id WorkerID) int { return s.workers[id].awaited }

// checkAffinity checks what waits for the workers of keys.
func (s *Scheduler) checkAffinity() error {
	tasks, awaited := 0, make(map[*worker]int)
	for i, p := range s.affinity.parts {
		if p.pos != i || len(p.ready.items) == 0 || !slices.Contains(p.worker.parts, p) {
			return fmt.Errorf("part %d has position %d and %d ready queues", i, p.pos, len(p.ready.items))
		}
		if err := checkHeap(&p.ready, func(k *keyWait) int { return k.pos }); err != nil {
			return fmt.Errorf("part %d: %w", i, err)
		}
		for _, k := range p.ready.items {
			if k.part != p || k.counted != k.ready.n || k.oldest != k.ready.front().seq {
				return fmt.Errorf("part %d counts %d tasks from %d on, want %d from %d on", i, k.counted, k.oldest, k.ready.n, k.ready.front().seq)
			}
			tasks, awaited[p.worker] = tasks+k.counted, awaited[p.worker]+k.counted
		}
		if !s.affinity.stale && !p.worker.bound && s.takes(p.worker, p.shape) && !s.someListed(p) {
			return fmt.Errorf("worker %d has capacity for what waits for it", p.worker.id)
		}
	}
	if tasks != s.affinity.tasks {
		return fmt.Errorf("%d tasks wait for workers, counted %d", tasks, s.affinity.tasks)
	}
	for _, w := range s.sorted {
		if w.awaited != awaited[w] {
			return fmt.Errorf("%d tasks wait for worker %d, counted %d", awaited[w], w.id, w.awaited)
		}
	}
	for name, q := range s.queues {
		if err := checkHeap(&q.keyed, func(k keyAge) int { return k.agePos }); err != nil {
			return fmt.Errorf("queue %q, by key: %w", name, err)
		}
	}
	return nil
}

// someListed reports whether the order has an older ready queue for which the ones of a part wait.
func (s *Scheduler) someListed(p *affinityPart) bool {
	return slices.ContainsFunc(p.level.ready.items, func(r readyAge) bool {
		return r.class.shape == p.shape && r.class.affinity != nil && s.keyWorker(r.class) == p.worker && r.oldest < p.ready.items[0].oldest
	})
}

// CompareShares compares the share a of x with b of y, divided by the weights v and w.
func CompareShares(a, x uint64, v uint32, b, y uint64, w uint32) int {
	return compareShares(share{a, x}, v, share{b, y}, w)
}
