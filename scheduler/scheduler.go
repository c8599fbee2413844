package scheduler

import "github.com/dtask/dtask/scheduler/internal/splitmix"

// A Scheduler holds the ready tasks and the free capacity of one term. It is
// not safe for concurrent use. Make one with New.
type Scheduler struct {
	random splitmix.Source

	classes      []*class // by ClassID; the first is that of the empty demand
	classOf      map[string]ClassID
	resources    map[string]resourceID
	labels       map[Label]labelID
	types        map[string]typeID
	namespaces   map[string]namespaceID
	limits       map[string]*namedLimit // those that classes use
	lastLimit    limitID
	limitsPaused bool
	key          []byte // scratch space of Class

	workers map[WorkerID]*worker // never ranged over
	sorted  []*worker            // the same workers, by id
	version uint64               // number of changes of the workers and their capacity
	offers  offerList            // of a version, for TaskViews
	byLoad  heap[*worker]        // workers that accept tasks and have slots, least loaded first
	search  heap[visit]          // scratch space of walk
	waiting int                  // attempts that wait for a slot
	held    [Urgent + 1]int      // attempts that workers hold, by priority
	choices uint64               // number of assignments: see draw

	overtaken int // position in sorted after the last worker at which a task overtook others

	pages   pages
	pushes  uint64                        // the last seq
	depth   [Urgent + 1]int               // entries by priority
	ready   [Urgent + 1]heap[*readyQueue] // by priority: queues that have tasks and are not blocked
	blocked []*class                      // in the order in which they were blocked
	unused  []*class                      // recycled limited classes

	superseded map[TaskRef]uint64 // entries up to this seq are dropped; mostly empty
}

// New returns a Scheduler without workers and tasks. The seed only decides
// between equally loaded workers.
func New(seed uint64) *Scheduler {
	s := &Scheduler{
		random:     splitmix.New(seed),
		classOf:    make(map[string]ClassID),
		resources:  make(map[string]resourceID),
		labels:     make(map[Label]labelID),
		types:      make(map[string]typeID),
		namespaces: make(map[string]namespaceID),
		limits:     make(map[string]*namedLimit),
		workers:    make(map[WorkerID]*worker),
	}
	s.Class(Demand{}) // class 0
	return s
}

// Push adds a ready task behind all that were pushed before with the same
// priority. c must come from Class of this Scheduler, or Push panics. An
// invalid priority counts as Normal.
//
// avoid is 0, or the worker on which the task's last attempt failed: the task
// goes to it only if no other worker has capacity now.
//
// A task that is pushed twice has two entries. The valid function of Next must
// reject the second after the first was assigned.
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

func (s *Scheduler) push(e entry, c ClassID, p Priority) {
	p = p.orNormal()
	q := &s.classes[c].queues[p]
	for q.n > 0 && s.isSuperseded(q.front()) { // mostly an earlier entry of the same task
		s.pop(q)
	}
	first := q.n == 0
	e.seq = s.pushes + 1
	s.pushes += uint64(e.n)
	s.depth[p] += int(e.n)
	q.push(&s.pages, e)
	if first {
		s.relist(q)
	}
}

// Supersede drops all entries of a task that were pushed until now, because its
// position in the order changes. They are dropped when Next, Sweep, or a Push to
// the same ready queue reaches them, and count until then.
func (s *Scheduler) Supersede(t TaskRef) {
	if s.Len() == 0 {
		return
	}
	if s.superseded == nil {
		s.superseded = make(map[TaskRef]uint64)
	}
	s.superseded[t] = s.pushes
}

// isSuperseded reports whether the first task of a run was superseded.
func (s *Scheduler) isSuperseded(e *entry) bool {
	return len(s.superseded) > 0 && e.seq <= s.superseded[e.task()]
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

// Next assigns the first task in order for which a worker has capacity: the
// highest priority first, then in the order of the pushes. It takes a slot and
// the resources of the least loaded such worker. If no ready task fits
// anywhere, the first one overtakes attempts of a lower priority that wait for
// a slot, if there are any. Otherwise Next returns false.
//
// valid reports whether a task may still start; entries for which it is false
// are dropped when Next reaches them. It must not call the Scheduler. nil: all
// are valid.
func (s *Scheduler) Next(valid func(TaskRef) bool) (Assignment, bool) {
	for p := Urgent; p >= Low; p-- {
		for s.hasCapacity() && len(s.ready[p].items) > 0 {
			q := s.ready[p].items[0]
			e := *q.front()
			if s.isStale(&e, valid) {
				s.pop(q)
				continue
			}
			if l := q.class.fullLimit(); l != nil {
				s.await(q.class, l)
				continue
			}
			var w *worker
			if !q.class.groupFull() {
				w = s.findWorker(q.class, e.avoid)
			}
			if w == nil {
				s.block(q.class)
				continue
			}
			return s.assign(q, w), true
		}
	}
	return s.overtake(valid)
}

// assign assigns the first task of a queue to a worker.
func (s *Scheduler) assign(q *readyQueue, w *worker) Assignment {
	a := Assignment{Task: q.front().task(), Worker: w.id, Class: q.class.id, Priority: q.priority}
	s.pop(q)
	s.occupy(w, q.class, q.priority)
	return a
}

// Sweep drops every entry for which valid is false and returns their number. It
// reads all entries. Call it after many waiting tasks were cancelled, so that
// they don't take memory, and don't count in Depth, until Next reaches them.
func (s *Scheduler) Sweep(valid func(TaskRef) bool) int {
	before := s.Len()
	for _, c := range s.classes {
		for p := Low; p <= Urgent; p++ {
			q := &c.queues[p]
			var kept fifo
			for q.n > 0 {
				e := *q.front()
				e.n = 1
				if !s.isSuperseded(&e) && valid(e.task()) {
					kept.push(&s.pages, e)
				} else {
					s.depth[p]--
				}
				q.fifo.pop(&s.pages)
			}
			q.fifo = kept
			s.relist(q)
		}
	}
	s.superseded = nil // none of these entries is left
	return before - s.Len()
}

// pop removes the first task of a queue.
func (s *Scheduler) pop(q *readyQueue) {
	q.fifo.pop(&s.pages)
	s.depth[q.priority]--
	s.relist(q)
	if len(s.superseded) > 0 && s.Len() == 0 {
		s.superseded = nil
	}
}

// relist moves a queue to its position in the heap of its priority after a
// change of its front or of class.blocked, or in or out of the heap.
func (s *Scheduler) relist(q *readyQueue) {
	ready := &s.ready[q.priority]
	if q.n == 0 || q.class.blocked {
		if q.pos >= 0 {
			ready.remove(q.pos)
		}
		return
	}
	q.oldest = q.front().seq
	if q.pos < 0 {
		ready.push(q)
	} else {
		ready.fix(q.pos)
	}
}

// block removes a class that fits nowhere from the order.
func (s *Scheduler) block(c *class) {
	c.blocked = true
	s.blocked = append(s.blocked, c)
	s.relistAll(c)
	s.reserve(c)
}

// unblock unblocks the classes that fit a worker whose capacity has grown.
func (s *Scheduler) unblock(w *worker) {
	if len(s.blocked) == 0 || !w.ranked() {
		return
	}
	still := s.blocked[:0]
	for _, c := range s.blocked {
		if c.groupFull() || !w.fits(c) { // a full limit keeps it in a list of its own
			still = append(still, c)
			continue
		}
		c.blocked = false
		s.relistAll(c)
	}
	clear(s.blocked[len(still):])
	s.blocked = still
}

func (s *Scheduler) relistAll(c *class) {
	for p := Low; p <= Urgent; p++ {
		s.relist(&c.queues[p])
	}
}
