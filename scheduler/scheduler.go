package scheduler

import "github.com/dtask/dtask/scheduler/internal/splitmix"

// A Scheduler holds the ready tasks and the free capacity of one term. It is
// not safe for concurrent use. Make one with New.
type Scheduler struct {
	random splitmix.Source

	classes   []*class // by ClassID; the first is that of the empty demand
	classOf   map[string]ClassID
	resources map[string]resourceID
	labels    map[Label]labelID
	key       []byte // scratch of Class

	workers map[WorkerID]*worker // never ranged over
	fleet   []*worker            // the same workers, by id
	fleets  uint64               // how often fleet or a capacity in it changed
	idlest  heap[*worker]        // those that accept and have slots, least loaded first
	search  heap[visit]          // scratch of walk
	waiting int                  // attempts beyond the slots of their workers
	choices uint64               // how many workers were chosen: see draw

	pages   pages
	pushes  uint64                  // the last seq given
	depth   [Urgent + 1]int         // entries by priority
	ready   [Urgent + 1]heap[*lane] // by priority: lanes that have tasks and are not blocked
	blocked []*class                // in the order in which they were blocked
	spare   []*class                // limited ones that are not in use

	superseded map[TaskRef]uint64 // entries up to this seq are dropped when they are met; mostly empty
}

// New returns a Scheduler without workers and tasks. The seed decides between
// equally loaded workers and nothing else.
func New(seed uint64) *Scheduler {
	s := &Scheduler{
		random:    splitmix.New(seed),
		classOf:   make(map[string]ClassID),
		resources: make(map[string]resourceID),
		labels:    make(map[Label]labelID),
		workers:   make(map[WorkerID]*worker),
	}
	s.Class(Demand{}) // class 0
	return s
}

// Push adds a ready task behind all that were pushed before it with the same
// priority. c must come from Class of this Scheduler, or Push panics. A
// priority that is not valid counts as Normal: better late than never.
//
// avoid is 0, or the worker on which the task's last attempt failed: another
// one is chosen if any has room now; if none has, the task goes back to the
// same worker rather than wait.
//
// A task that is pushed twice is two entries: the valid function of Next tells
// after the first was assigned that the second is not wanted.
func (s *Scheduler) Push(t TaskRef, c ClassID, p Priority, avoid WorkerID) {
	s.push(entry{job: t.Job, index: t.Index, n: 1, avoid: avoid}, c, p)
}

// PushRun is Push for n tasks of a job, from t on, in their order, that avoid no
// worker. It takes as long as for one of them, and as much memory.
func (s *Scheduler) PushRun(t TaskRef, n uint32, c ClassID, p Priority) {
	if n > 0 {
		s.push(entry{job: t.Job, index: t.Index, n: n}, c, p)
	}
}

func (s *Scheduler) push(e entry, c ClassID, p Priority) {
	if !p.Valid() {
		p = Normal
	}
	l := &s.classes[c].lanes[p]
	first := l.n == 0
	e.seq = s.pushes + 1
	s.pushes += uint64(e.n)
	s.depth[p] += int(e.n)
	l.push(&s.pages, e)
	if first {
		s.enlist(l)
	}
}

// Supersede drops all entries of a task that were pushed until now: its place in
// the order is to be another one, or none. They are dropped when they are met or
// swept, and count until then.
func (s *Scheduler) Supersede(t TaskRef) {
	if s.Len() == 0 {
		return
	}
	if s.superseded == nil {
		s.superseded = make(map[TaskRef]uint64)
	}
	s.superseded[t] = s.pushes
}

// gone reports whether the first task of a run was superseded.
func (s *Scheduler) gone(e *entry) bool {
	return len(s.superseded) > 0 && e.seq <= s.superseded[e.task()]
}

// Depth returns how many entries of this priority wait, including those that
// are no longer valid and not yet dropped.
func (s *Scheduler) Depth(p Priority) int {
	if !p.Valid() {
		return 0
	}
	return s.depth[p]
}

// Len returns how many entries wait in all: the sum of Depth.
func (s *Scheduler) Len() int {
	return s.depth[Low] + s.depth[Normal] + s.depth[High] + s.depth[Urgent]
}

// Next assigns the task that is first in order among those for which some
// worker has room, and takes a slot and the resources of the least loaded such
// worker. The order is: higher priority first, then as they were pushed. It
// returns false when no ready task fits anywhere now.
//
// valid says whether a task may still start; entries for which it is false are
// dropped when they are met. It must not call the Scheduler. A nil valid finds
// all valid.
func (s *Scheduler) Next(valid func(TaskRef) bool) (Assignment, bool) {
	for p := Urgent; p >= Low; p-- {
		for s.hasRoom() && len(s.ready[p].items) > 0 {
			l := s.ready[p].items[0]
			e := *l.front()
			if s.gone(&e) || valid != nil && !valid(e.task()) {
				s.pop(l)
				continue
			}
			var w *worker
			if !l.class.full() {
				w = s.place(l.class, e.avoid)
			}
			if w == nil {
				s.block(l.class)
				continue
			}
			s.pop(l)
			s.choose(w, l.class)
			return Assignment{Task: e.task(), Worker: w.id, Class: l.class.id, Priority: p}, true
		}
	}
	return Assignment{}, false
}

// Sweep drops every entry for which valid is false, and returns how many. It
// looks at all entries; call it when many tasks that wait were cancelled, so
// that they do not hold memory, nor Depth, until their turn comes.
func (s *Scheduler) Sweep(valid func(TaskRef) bool) int {
	before := s.Len()
	for _, c := range s.classes {
		for p := Low; p <= Urgent; p++ {
			l := &c.lanes[p]
			var kept fifo
			for l.n > 0 {
				e := *l.front()
				e.n = 1
				if !s.gone(&e) && valid(e.task()) {
					kept.push(&s.pages, e)
				} else {
					s.depth[p]--
				}
				l.fifo.pop(&s.pages)
			}
			l.fifo = kept
			s.enlist(l)
		}
	}
	s.superseded = nil // none of these is left
	return before - s.Len()
}

// pop drops the front of a lane.
func (s *Scheduler) pop(l *lane) {
	l.fifo.pop(&s.pages)
	s.depth[l.priority]--
	s.enlist(l)
	if len(s.superseded) > 0 && s.Len() == 0 {
		s.superseded = nil
	}
}

// enlist puts a lane where it belongs after its front or its class's being
// blocked has changed: into the heap of its priority, elsewhere in it, or out.
func (s *Scheduler) enlist(l *lane) {
	ready := &s.ready[l.priority]
	if l.n == 0 || l.class.blocked {
		if l.at >= 0 {
			ready.remove(l.at)
		}
		return
	}
	l.oldest = l.front().seq
	if l.at < 0 {
		ready.push(l)
	} else {
		ready.fix(l.at)
	}
}

// block takes a class that fits nowhere out of the order.
func (s *Scheduler) block(c *class) {
	c.blocked = true
	s.blocked = append(s.blocked, c)
	s.enlistAll(c)
}

// unblock brings back the classes that this worker has room for, after it got
// some.
func (s *Scheduler) unblock(w *worker) {
	if len(s.blocked) == 0 || !w.listed() {
		return
	}
	still := s.blocked[:0]
	for _, c := range s.blocked {
		if c.full() || !w.fits(c) {
			still = append(still, c)
			continue
		}
		c.blocked = false
		s.enlistAll(c)
	}
	clear(s.blocked[len(still):])
	s.blocked = still
}

func (s *Scheduler) enlistAll(c *class) {
	for p := Low; p <= Urgent; p++ {
		s.enlist(&c.lanes[p])
	}
}
