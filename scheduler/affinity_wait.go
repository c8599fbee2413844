package scheduler

import "slices"

const (
	// affinityWait is how long a task waits for the worker of its key while others are idle,
	// in milliseconds.
	affinityWait = 1000
	// affinityTick is how exact this is.
	affinityTick = 100
)

// affinityWaits has the tasks that wait for the workers of their keys. A cluster where no
// task has a key has none, and pays nothing.
type affinityWaits struct {
	// epoch numbers the fleets: sets of workers that accept tasks. stale: it has changed, and
	// no task waits for the right worker.
	epoch uint64
	stale bool
	parts []*affinityPart
	tasks int       // entries in parts
	round uint64    // numbers the decisions for which tasks may spill
	spent bool      // the round ends with the next call of Next
	freed bool      // a ready queue does not wait any more, because its first task is another one
	bound []*worker // for which tasks may wait only because another is idle: see Scheduler.takes

	samples []pushSample // ascending; at least affinityTick apart, and affinityWait long
	old     uint64       // what was pushed until this seq has waited for affinityWait
}

// A pushSample is the last seq at a time.
type pushSample struct {
	at   int64 // ms
	last uint64
}

// An affinityPart has the ready queues of one level and shape that wait for one worker: if it
// has capacity for the shape, the oldest of them is listed. Others would not start before it.
//
// Invariant: if the worker takes tasks of the shape, a ready queue of the level and shape whose
// key has this worker is listed, and the oldest of them is older than what waits: wakeNext replaces
// one that leaves the order or loses its first task. After the last idle worker has got a task,
// that is so from the next call of Next on.
type affinityPart struct {
	worker *worker
	level  *level
	shape  *shape
	ready  heap[*keyWait] // oldest first
	pos    int            // in affinityWaits.parts
}

// A keyWait is a ready queue that waits for the worker of its key.
type keyWait struct {
	ready   *readyQueue
	part    *affinityPart // nil: it doesn't wait
	pos     int           // in affinityPart.ready
	agePos  int           // in queue.keyed
	counted int           // tasks of it that worker.awaited has
	oldest  uint64        // the key in the heaps
	// The task with seq spill may start anywhere during a round.
	spill, round uint64
}

func (k *keyWait) before(o *keyWait) bool { return k.oldest < o.oldest }
func (k *keyWait) setPos(pos int)         { k.pos = pos }

// mayStart reports whether the task with a seq may start on any worker. k may be nil.
func (k *keyWait) mayStart(round, seq uint64) bool {
	return k != nil && k.round == round && k.spill == seq
}

// keyAge is a keyWait in the order of its queue.
type keyAge struct{ *keyWait }

func (k keyAge) before(o keyAge) bool { return k.oldest < o.oldest }
func (k keyAge) setPos(pos int)       { k.agePos = pos }

// await adds a ready queue that was parked to those that wait for the worker of its key.
func (s *Scheduler) await(r *readyQueue) {
	if r.wait == nil {
		r.wait = &keyWait{ready: r, pos: -1, agePos: -1}
	}
	w, k := r.class.affinity.worker, r.wait
	if k.part = s.affinityPart(w, r); k.part == nil {
		k.part = &affinityPart{worker: w, level: &r.class.flow.levels[r.priority], shape: r.class.shape, pos: len(s.affinity.parts)}
		s.affinity.parts = append(s.affinity.parts, k.part)
		w.parts = append(w.parts, k.part)
	}
	k.oldest, k.counted = r.front().seq, r.n
	k.part.ready.push(k)
	r.class.flow.queue.keyed.push(keyAge{k})
	w.awaited += r.n
	s.affinity.tasks += r.n
	// Otherwise what is prefetched there could take each slot before it is free.
	if !r.class.prefetchable && !w.reserved && w.ranked() && w.prefetch > 0 && w.used >= w.slots && w.fitsWithSlot(r.class.shape) {
		w.reserved = true
		s.rank(w)
	}
}

// affinityPart returns the part in which a ready queue waits for a worker, or nil.
func (s *Scheduler) affinityPart(w *worker, r *readyQueue) *affinityPart {
	level := &r.class.flow.levels[r.priority]
	for _, p := range w.parts {
		if p.level == level && p.shape == r.class.shape {
			return p
		}
	}
	return nil
}

// endWait removes a ready queue from those that wait for the worker of its key.
func (s *Scheduler) endWait(k *keyWait) {
	p := k.part
	k.part = nil
	p.worker.awaited -= k.counted
	s.affinity.tasks -= k.counted
	p.ready.remove(k.pos)
	k.ready.class.flow.queue.keyed.remove(k.agePos)
	if len(p.ready.items) > 0 {
		return
	}
	p.worker.parts = slices.DeleteFunc(p.worker.parts, func(x *affinityPart) bool { return x == p })
	last := len(s.affinity.parts) - 1
	moved := s.affinity.parts[last]
	s.affinity.parts[p.pos], moved.pos = moved, p.pos
	s.affinity.parts[last] = nil
	s.affinity.parts = s.affinity.parts[:last]
}

// resume returns a ready queue that waits for the worker of its key to the order.
func (s *Scheduler) resume(k *keyWait) {
	s.endWait(k)
	s.unpark(k.ready, byAffinity)
}

// recount brings a ready queue that waits up to date after a change of its tasks.
func (s *Scheduler) recount(k *keyWait) {
	if k.ready.n == 0 {
		s.endWait(k)
		k.ready.parked = listable
		return
	}
	k.part.worker.awaited += k.ready.n - k.counted
	s.affinity.tasks += k.ready.n - k.counted
	k.counted = k.ready.n
	if seq := k.ready.front().seq; seq != k.oldest {
		k.oldest = seq
		k.part.ready.fix(k.pos)
		k.ready.class.flow.queue.keyed.fix(k.agePos)
		if k.ready.front().avoid == k.part.worker.id {
			s.affinity.freed = true
			s.resume(k)
		}
	}
}

// wakeKeyed returns to the order what waits for a worker that has capacity for it, or a slot for
// what may spill then.
func (s *Scheduler) wakeKeyed(w *worker) {
	for _, p := range slices.Backward(w.parts) { // backwards: resume may remove the part
		if s.takes(w, p.shape) {
			s.resume(p.ready.items[0])
		} else {
			s.spillLarge(p)
		}
	}
}

// wakeNext returns to the order the next ready queue that waits for the same worker as one
// that has left the order, or whose first task is younger now.
func (s *Scheduler) wakeNext(r *readyQueue) {
	w := r.class.affinity.worker
	if w == nil || r.class.affinity.epoch != s.affinity.epoch || !s.takes(w, r.class.shape) {
		return
	}
	if p := s.affinityPart(w, r); p != nil && (r.pos < 0 || p.ready.items[0].oldest < r.oldest) {
		s.resume(p.ready.items[0])
	}
}

// fleetChanged drops the workers of all keys.
func (s *Scheduler) fleetChanged() {
	s.affinity.epoch++
	s.affinity.stale = true
}

// wakeAllKeyed returns to the order all that waits, after a change of the fleet.
func (s *Scheduler) wakeAllKeyed() {
	if !s.affinity.stale {
		return
	}
	s.affinity.stale = false
	for _, p := range slices.Backward(s.affinity.parts) {
		for len(p.ready.items) > 0 {
			s.resume(p.ready.items[0])
		}
	}
}

// olderKeyed returns the ready queue with the oldest task of a queue for its turn by age, if
// it waits for the worker of its key, and found otherwise: this task may start anywhere.
func (s *Scheduler) olderKeyed(q *queue, found *readyQueue) *readyQueue {
	if len(q.keyed.items) == 0 {
		return found
	}
	k := q.keyed.items[0].keyWait
	if found != nil && found.oldest < k.oldest {
		return found
	}
	k.round, k.spill = s.affinity.round, k.oldest
	s.resume(k)
	return k.ready
}

// spill lets tasks that wait for the workers of their keys start anywhere, while others have
// capacity and nothing else can start: those of workers for which too many wait, and if a worker
// is idle, those that have waited for affinityWait. It reports whether there are any.
func (s *Scheduler) spill(valid func(TaskRef) bool) (some bool) {
	if !s.hasCapacity() {
		return false
	}
	idle := s.someIdle()
	s.affinity.round++
	s.affinity.spent, s.affinity.freed = true, false
	for _, p := range slices.Backward(s.affinity.parts) {
		// dropStale may have removed this part, too: one of other alternatives of its tasks.
		if p == nil || p.shape.blocked || !idle && !p.shape.prefetchable || !s.dropStale(p, valid) {
			continue
		}
		if k := p.ready.items[0]; idle && k.oldest <= s.affinity.old || s.excess(p.worker) > 0 {
			k.round, k.spill = s.affinity.round, k.oldest
			some = true
		}
	}
	if !some {
		return s.affinity.freed
	}
	for _, p := range slices.Backward(s.affinity.parts) {
		if k := p.ready.items[0]; k.mayStart(s.affinity.round, k.oldest) {
			s.resume(k)
		}
	}
	return true
}

// wakeBound returns to the order what waits for workers that may prefetch more now, because no
// worker is idle any more.
func (s *Scheduler) wakeBound() {
	for _, w := range s.affinity.bound {
		w.bound = false
		for _, p := range slices.Backward(w.parts) {
			if s.takes(w, p.shape) {
				s.resume(p.ready.items[0])
			}
		}
	}
	clear(s.affinity.bound)
	s.affinity.bound = s.affinity.bound[:0]
}

// endRound ends a round: tasks that could spill and did not wait again, because others may
// start now.
func (s *Scheduler) endRound() {
	if s.affinity.spent {
		s.affinity.spent = false
		s.affinity.round++
	}
}

// dropStale drops entries that are no longer valid from the front of a part, and reports
// whether tasks are left.
func (s *Scheduler) dropStale(p *affinityPart, valid func(TaskRef) bool) bool {
	for len(p.ready.items) > 0 {
		r := p.ready.items[0].ready
		if !s.isStale(r.front(), valid) {
			return true
		}
		s.drop(r)
	}
	return false
}

// excess returns how many tasks wait at a worker and for it above the bound of loads: more than
// it has slots, and more than 1.25 times the mean of all workers for each slot (consistent hashing
// with bounded loads). It is 0 or less within the bound.
func (s *Scheduler) excess(w *worker) int {
	waits, slots := int(w.waiting)+w.awaited, int(w.slots)
	if waits <= slots {
		return 0
	}
	mean := 5 * (s.waiting + s.affinity.tasks) * slots / (4 * max(int(s.fleet.slots), 1)) //nolint:gosec // far below 2^32
	return waits - max(slots, mean)
}

// Advance sets the time, in milliseconds of any clock that only grows. While tasks wait for
// the workers of their keys and AwaitsTime is true, call it, and then Next, every 100 ms.
func (s *Scheduler) Advance(now int64) {
	a := &s.affinity
	if n := len(a.samples); n > 0 && now-a.samples[n-1].at < affinityTick {
		return
	}
	a.samples = append(a.samples, pushSample{now, s.pushes})
	past := 0
	for past < len(a.samples) && now-a.samples[past].at >= affinityWait {
		a.old = a.samples[past].last
		past++
	}
	a.samples = slices.Delete(a.samples, 0, past)
	s.endRound()
	for _, p := range slices.Backward(a.parts) {
		s.spillLarge(p)
	}
}

// spillLarge lets the first task of a part start anywhere that has waited for affinityWait and for
// which the worker of its key has a free slot, but not the resources. If it fits nowhere, a worker
// is kept free for it as for all large tasks. On a busy worker, a slot is free only until the next
// call of Next.
func (s *Scheduler) spillLarge(p *affinityPart) {
	if k := p.ready.items[0]; len(p.shape.needs) > 0 && k.oldest <= s.affinity.old && p.worker.used < p.worker.slots {
		s.endRound()
		k.round, k.spill = s.affinity.round, k.oldest
		s.resume(k)
	}
}

// AwaitsTime reports whether tasks wait for the workers of their keys while another worker
// has a free slot: they may start there when time has passed.
func (s *Scheduler) AwaitsTime() bool {
	return len(s.affinity.parts) > 0 && s.someIdle()
}
