package scheduler

import "github.com/dtask/dtask/scheduler/internal/splitmix"

// A Scheduler holds the ready tasks and the free capacity of one term. It is
// not safe for concurrent use. Make one with New.
type Scheduler struct {
	random splitmix.Source

	classes      []*class // by ClassID; the first is that of the empty demand
	classOf      map[string]ClassID
	shapes       map[string]*shape
	noShape      *shape                 // of unused classes
	queues       map[string]*queue      // by name
	limits       map[string]*namedLimit // those that classes use
	lastLimit    limitID
	limitsPaused bool
	spent        []*namedLimit // see Spent
	resources    map[string]resourceID
	labels       map[Label]labelID
	presence     []labelID // of each label, at its number: see labelID
	types        map[string]typeID
	namespaces   map[string]namespaceID
	key          []byte // scratch space of Class

	workers map[WorkerID]*worker // never ranged over
	sorted  []*worker            // the same workers, by id
	version uint64               // number of changes of the workers and their capacity
	offers  offerList            // of a version, for TaskViews
	byLoad  loadOrder            // workers that accept tasks and have slots, least loaded first
	pack    *packOrder           // the same workers, while a class with Pack uses it
	search  heap[visit]          // scratch space of walk
	waiting int                  // attempts that wait for a slot
	held    [Urgent + 1]int      // attempts that workers hold, by priority
	choices uint64               // number of assignments: see draw

	overtaken int // position in sorted after the last worker at which a task overtook others

	pages   pages
	pushes  uint64          // the last seq
	depth   [Urgent + 1]int // entries by priority
	byShare turns[*queue]   // queues of which a task may start if a worker has capacity
	blocked []*shape        // in the order in which they were blocked
	unused  []ClassID       // of recycled classes

	fleet        fleet
	affinity     affinityWaits
	reshare      bool           // the keys of the heaps must be brought up to date
	starts       uint64         // assignments in the order of the queues
	passed       []*queue       // those all of whose tasks are blocked, in the order in which they were
	reservations []*reservation // oldest first; mostly none
	wants        []*queue       // that need one, in the order in which they get it
	saving       []*queue       // that save quotas for a task
	yields       int            // attempts on all workers that give their places to urgent tasks
	untried      int            // kinds of urgent tasks for which the next call of Preempt does not look
	byAge        bool           // see StartedByAge
	offered      []Yield        // scratch space of yieldsOf
	lacking      []need         // scratch space of cover
	unkept       bool           // those may be made now: one has ended, or a worker accepts tasks
	fitting      bool           // a worker had capacity for the task of one of those

	superseded superseded

	maxListed, maxOpen int // maxListedWaits and maxOpen, except in tests
}

// New returns a Scheduler without workers and tasks. The seed only decides
// between equally loaded workers.
func New(seed uint64) *Scheduler {
	s := &Scheduler{
		random:     splitmix.New(seed),
		classOf:    make(map[string]ClassID),
		shapes:     make(map[string]*shape),
		noShape:    &shape{},
		queues:     make(map[string]*queue),
		limits:     make(map[string]*namedLimit),
		resources:  make(map[string]resourceID),
		labels:     make(map[Label]labelID),
		types:      make(map[string]typeID),
		namespaces: make(map[string]namespaceID),
		workers:    make(map[WorkerID]*worker),
		maxListed:  maxListedWaits,
		maxOpen:    maxOpen,
	}
	s.Class(Demand{}) // class 0
	return s
}

// Push adds a ready task behind all that were pushed before with the same
// class and priority. c must come from Class of this Scheduler, or Push panics. An
// invalid priority counts as Normal.
//
// avoid is 0, or the worker on which the task's last attempt failed: the task
// goes to it only if no other worker has capacity now.
//
// A task that is pushed twice has two entries. The valid function of Next must
// reject the second after the first was assigned, and cannot if the task is ready
// again by then. So Supersede what may be left of a task before it is pushed again.
func (s *Scheduler) Push(t TaskRef, c ClassID, p Priority, avoid WorkerID) {
	s.push(entry{job: t.Job, index: t.Index, n: 1, avoid: avoid}, c, p)
}

// PushRun pushes n tasks of a job in order, from t on, that avoid no worker. It
// takes the time and the memory of one.
func (s *Scheduler) PushRun(t TaskRef, n uint32, c ClassID, p Priority) {
	if n > 0 {
		s.push(entry{job: t.Job, index: t.Index, n: n}, c, p)
	}
}

func (s *Scheduler) push(e entry, id ClassID, p Priority) {
	p = p.orNormal()
	c := s.classes[id]
	q := &c.queues[p]
	for q.n > 0 && s.isSuperseded(q.front()) { // mostly an earlier entry of the same task
		s.drop(q)
	}
	first := q.n == 0
	e.seq = s.pushes + 1
	s.pushes += uint64(e.n)
	s.depth[p] += int(e.n)
	q.push(&s.pages, e)
	switch {
	case first:
		s.relist(q)
	case q.parked == byAffinity:
		s.recount(q.wait)
	}
	if c.alternatives != nil && c.number == 0 {
		s.pushToOthers(e, c, p)
	}
}

// Depth returns the number of entries of a priority, including those that are
// no longer valid and not dropped yet.
func (s *Scheduler) Depth(p Priority) int {
	if !p.Valid() {
		return 0
	}
	return s.depth[p]
}

// Len returns the number of entries of all priorities.
func (s *Scheduler) Len() int {
	return s.depth[Low] + s.depth[Normal] + s.depth[High] + s.depth[Urgent]
}

// Next assigns the first task in order for which a worker has capacity. The queue with the
// smallest share is first, in it the highest priority, in that the owner that holds least,
// and of their tasks the one that was pushed first; at every 16th start of a queue, its
// oldest task is first. Next takes a slot and the resources of the least loaded such worker. If no
// ready task fits anywhere, the first one overtakes attempts of a lower priority
// that wait for a slot, if there are any. Otherwise Next returns false.
//
// valid reports whether a task may still start; entries for which it is false
// are dropped when Next reaches them. It must not call the Scheduler. nil: all
// are valid.
func (s *Scheduler) Next(valid func(TaskRef) bool) (Assignment, bool) {
	if s.byAge = false; s.reshare {
		s.rekey()
	}
	if s.affinity.spent || s.affinity.stale {
		s.endRound()
		s.wakeAllKeyed()
	}
	if len(s.affinity.bound) > 0 && !s.someIdle() {
		s.wakeBound()
	}
	if len(s.saving) > 0 {
		s.endSavings(valid)
	}
	if len(s.reservations) > 0 {
		if a, ok := s.startKept(valid); ok {
			return a, true
		}
	}
	for {
		if a, ok := s.nextInOrder(valid); ok {
			return a, true
		}
		if len(s.affinity.parts) > 0 && s.spill(valid) {
			continue
		}
		if len(s.reservations) == 0 || !s.dropReservations(valid) {
			return s.overtake(valid)
		}
	}
}

func (s *Scheduler) nextInOrder(valid func(TaskRef) bool) (Assignment, bool) {
	for s.hasCapacity() {
		q := s.firstQueue()
		if q == nil {
			break
		}
		if a, ok := s.start(q, valid); ok {
			return a, true
		}
	}
	return Assignment{}, false
}

// start assigns the first task of a queue for which a worker has capacity. Without one, the queue
// has left the order. What is blocked leaves it, too, even if nothing else is listed: a queue whose
// share is large is passed over only then, and gets a reservation.
func (s *Scheduler) start(q *queue, valid func(TaskRef) bool) (Assignment, bool) {
	aged := q.turn == agedStart-1
	for {
		var r *readyQueue
		if aged {
			r = s.olderKeyed(q, s.oldestReady(q))
		} else {
			r = s.firstReady(q)
		}
		if r == nil {
			s.relistQueue(q) // all that waits in it waits for capacity
			return Assignment{}, false
		}
		e := *r.front()
		switch c := r.class; {
		case s.isStale(&e, valid):
			s.drop(r)
		case c.groupFull():
			s.park(r, byLimit)
		case len(c.limits) > 0 && c.fullLimit() != nil:
			s.park(r, byNamedLimit)
		case c.blocked:
			s.park(r, byShape)
		case (len(q.max) > 0 || q.saving != nil) && !q.allows(c, r.priority):
			if q.watched != nil {
				q.watched(r)
			}
			s.park(r, byQuota)
		case c.affinity != nil && s.awaits(r, &e):
			s.park(r, byAffinity)
		default:
			if w := s.findFor(c, e.avoid); w != nil {
				if q.turn++; aged {
					q.turn = 0
					s.saveForOldest(q, e.seq, valid)
					s.keepForOldest(q, e.seq, valid)
				}
				s.byAge = aged
				return s.startInTurn(r, w, valid), true
			}
			s.block(c)
		}
	}
}

// startInTurn assigns the first task of a ready queue whose turn it is.
func (s *Scheduler) startInTurn(r *readyQueue, w *worker, valid func(TaskRef) bool) Assignment {
	s.starts++
	r.class.flow.served, r.class.flow.queue.served = s.starts, s.starts
	a := s.assign(r, w)
	if len(s.passed) > 0 {
		s.keepForPassed()
	}
	if (s.unkept || s.fitting) && len(s.wants) > 0 {
		s.keepWanted(valid)
	}
	return a
}

// assign assigns the first task of a queue to a worker.
func (s *Scheduler) assign(q *readyQueue, w *worker) Assignment {
	e := q.front()
	a := Assignment{Task: e.task(), Worker: w.id, Class: q.class.id, Priority: q.priority}
	of := q.class.flow.queue
	for _, k := range [2]*reservation{of.kept, of.preempting} {
		if k != nil && k.isFor(q) {
			s.unkeep(k)
		}
	}
	if of.wants && of.wanted.isFor(q) {
		s.unwant(of)
	}
	saved := of.saving != nil && of.saving.isFor(q)
	s.pop(q)
	s.occupy(w, q.class, q.priority)
	if saved {
		s.unsave(of)
	}
	if len(q.class.limits) > 0 {
		s.take(q.class)
	}
	return a
}

// pop removes the first task of a queue, with its entries in the queues of the alternatives.
func (s *Scheduler) pop(q *readyQueue) {
	q.fifo.pop(&s.pages)
	s.depth[q.priority]--
	s.relist(q)
	if q.class.alternatives != nil {
		s.popFromOthers(q)
	}
	if len(s.superseded.tasks)+len(s.superseded.jobs) > 0 && s.Len() == 0 {
		s.superseded = superseded{}
	}
}

// block records that a shape fits nowhere. Its ready queues leave the order when they are
// at the front.
func (s *Scheduler) block(c *class) {
	if len(s.blocked) == cap(s.blocked) {
		s.blocked = compact(s.blocked, func(sh *shape) bool { return sh.classes == 0 })
	}
	s.blocked = append(s.blocked, c.shape)
	s.setBlocked(&c.shape.gate, true)
	s.reserve(c)
}

// unblock unblocks the shapes that fit a worker whose capacity has grown, and those without
// classes.
func (s *Scheduler) unblock(w *worker) {
	if len(s.blocked) == 0 || !w.ranked() {
		return
	}
	still := s.blocked[:0]
	for _, sh := range s.blocked {
		if sh.classes > 0 && !w.fits(sh) {
			still = append(still, sh)
			continue
		}
		s.setBlocked(&sh.gate, false)
	}
	clear(s.blocked[len(still):])
	s.blocked = still
}
