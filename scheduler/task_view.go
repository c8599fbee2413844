package scheduler

import (
	"math"
	"slices"

	"github.com/dtask/dtask/scheduler/internal/splitmix"
)

const (
	// maxListed is how many tasks of one ready queue a TaskView has: a change that
	// would also start more tasks before its own is not found.
	maxListed = 256
	// maxChecked bounds the tasks of all ready queues of which a TaskView asks whether they
	// may still start. It takes about a millisecond.
	maxChecked = 8_192
	// maxScanned bounds the runs of ready queues that are read for a TaskView, which takes
	// about 0.1 ms.
	maxScanned = 50_000
)

// maxLimited is how many waiting tasks of a class at its limit a TaskView has.
const maxLimited = 1_000

// A TaskView is a copy of what decides when one task starts: the workers with what they
// hold, and the tasks before it. It is taken in the Scheduler's goroutine, which takes some
// 20 ns for each worker. Its methods may be called in any other, but only in one at a time.
type TaskView struct {
	task     TaskRef
	class    *class
	priority Priority
	avoid    WorkerID
	seq      uint64 // of its entry; above all others if it has none
	queued   bool
	position Position
	fleet    fleetCopy
	presence []labelID     // of each label, at its number
	groups   []workerGroup // of the fleet; nil until group is called
	groupOf  []uint32      // the group of each worker of the fleet
	kinds    []worker      // see workerKinds
	capacity fleet         // of all workers together
	random   splitmix.Source
	choices  uint64
	starts   uint64
	// preempting: attempts end for urgent tasks.
	preempting bool

	wanted   bool // queues wait for a worker to be reserved
	retried  bool // the next start may reserve one for them
	keepable keepableWorkers
	order    slotOrder
	flows    map[*flow]*flow // copies by original
	queues   map[*queue]*queue
	limitOf  limitCopies
	bounds   groupCopies
	key      KeyWorker
	keyed    *keyedView
	ahead    []aheadQueue // tasks that may start before it
	limited  []aheadQueue // likewise, but none until an attempt of their group or queue ends
	running  *running     // see ViewRunning; nil: none are known
	// cut: ahead is not complete, or Changes has taken too many steps. Nothing follows from
	// a trial then. undecided: a trial would have needed more of ahead than is listed.
	cut, undecided bool
	spills         bool     // the task may start elsewhere after a change of any worker: see maySpillAfterChange
	unsure         []Change // whose least amount is not known
	steps          int      // of all trials until now: see maxSteps
	scratch        trial    // the present one
}

// Position is how many tasks are before a task in its queue, if its oldest ones are not
// given a turn, whether they could start or not. Owners share a priority: some of the
// earlier ones of other owners start after the task. It includes tasks that were cancelled and are not removed yet.
type Position struct {
	Higher  uint64 // of a higher priority
	Earlier uint64 // of the same priority, that became ready earlier
	AtLeast bool   // Earlier is a lower bound: there are too many to count
}

// An aheadQueue has tasks of one ready queue that may start before the task of a TaskView.
type aheadQueue struct {
	class    *class
	priority Priority
	seqs     []uint64 // ascending; at most scanner.listed
	more     bool     // there are further ones
	// others are the positions in TaskView.ahead of the ready queues that have the same tasks
	// for the other alternatives.
	others []int
	avoid  []WorkerID // the worker that each of seqs avoids, 0 = none; nil: none of them avoids one
	// spills: the first one has a key, and may start anywhere now.
	spills bool
	// runs has the same tasks, and further ones, which may have been cancelled. short: there
	// are still more. room is how many further ones may be added.
	runs  []TaskRun
	short bool
	room  uint64
}

// addFurther adds tasks of a run without looking at each, and reports whether it had room
// for all.
func (a *aheadQueue) addFurther(t TaskRef, seq, n uint64, left *uint64) bool {
	added := min(n, a.room, *left)
	if added > 0 {
		a.addRun(t, seq, uint32(added)) //nolint:gosec // at most those of an entry
	}
	a.room, *left = a.room-added, *left-added
	a.short = a.short || added < n
	return added == n
}

// addListed adds a task to seqs.
func (a *aheadQueue) addListed(seq uint64, avoid WorkerID) {
	if avoid != 0 && a.avoid == nil {
		a.avoid = make([]WorkerID, len(a.seqs))
	}
	if a.seqs = append(a.seqs, seq); a.avoid != nil {
		a.avoid = append(a.avoid, avoid)
	}
}

// avoids reports whether some of seqs avoid a worker.
func (a *aheadQueue) avoids() bool { return a.avoid != nil }

// A TaskRun is a run of tasks with consecutive indexes in one job.
type TaskRun struct {
	Task TaskRef // the first
	N    uint32
	seq  uint64 // of the first
}

// addRun appends tasks to runs.
func (a *aheadQueue) addRun(t TaskRef, seq uint64, n uint32) {
	if last := len(a.runs) - 1; last >= 0 {
		r := &a.runs[last]
		if r.Task.Job == t.Job && r.Task.Index+r.N == t.Index && r.seq+uint64(r.N) == seq {
			r.N += n
			return
		}
	}
	a.runs = append(a.runs, TaskRun{Task: t, N: n, seq: seq})
}

// View copies what decides about a task of class c, priority p and, as in Push, a worker
// to avoid. If the task is not in a ready queue, it is treated as if it were pushed now.
// valid is that of Next. c must come from Class of this Scheduler, or View panics. View
// changes nothing.
func (s *Scheduler) View(t TaskRef, c ClassID, p Priority, avoid WorkerID, valid func(TaskRef) bool) *TaskView {
	p = p.orNormal()
	v := &TaskView{
		task: t, priority: p, avoid: avoid, seq: math.MaxUint64, fleet: s.copyFleet(), capacity: fleet{s.fleet.slots, slices.Clone(s.fleet.total)},
		random: s.random, choices: s.choices, starts: s.starts, presence: slices.Clip(s.presence),
		wanted: len(s.wants) > 0, retried: len(s.wants) > 0 && (s.unkept || s.fitting),
		limitOf: make(limitCopies), bounds: make(groupCopies),
	}
	v.preempting = slices.ContainsFunc(s.reservations, func(k *reservation) bool { return k.preempts })
	v.class, v.key = v.copyClass(s.classes[c]), s.KeyWorker(c)
	scan := scanner{s: s, valid: valid, left: maxScanned, checks: maxChecked, further: maxSimulated}
	e, seq, found := scan.find(&s.classes[c].queues[p], t)
	if v.queued = found; found {
		v.seq, v.avoid = seq, e.avoid
	}
	// Without its position, the tasks before it are not known.
	v.cut = scan.left <= 0
	scan.listed = s.listedPerQueue()
	for _, x := range s.classes {
		copied := v.class
		if x.id != c {
			copied = nil
		}
		for q := Urgent; q >= Low; q-- {
			queue := &x.queues[q]
			if queue.n == 0 || x.flow.queue.paused && x.flow.queue != s.classes[c].flow.queue {
				continue
			}
			if x.flow.queue == s.classes[c].flow.queue && x.number == 0 {
				switch {
				case q > p:
					v.position.Higher += uint64(queue.n) //nolint:gosec // not negative
				case q == p:
					v.position.Earlier += scan.count(queue, v.seq)
				}
			}
			before := uint64(math.MaxUint64)
			if x.id == c && q == p || x.flow == s.classes[c].flow && q <= p && v.class.affinity == nil {
				before = v.seq // those of a lower priority at the turn of the oldest
			}
			if copied == nil {
				copied = v.copyClass(x)
			}
			a := aheadQueue{class: copied, priority: q, room: maxSimulated}
			list := &v.ahead
			if x.id != c && s.heldBack(x, q, s.classes[c]) {
				// None of them can start: they are only counted, and not at the cost of others.
				list, a.more, a.room = &v.limited, true, maxLimited
			}
			if scan.list(queue, before, &a) {
				*list = append(*list, a)
			}
		}
	}
	v.linkAlternatives()
	if v.position.AtLeast = scan.left <= 0; v.cut && !found {
		v.position.Earlier = scan.passed
	}
	s.viewKeys(v, c)
	return v
}

// heldBack reports whether no change that starts a task of another class starts one of x and p
// before: the limit of its group, or its own queue, lets it not start.
func (s *Scheduler) heldBack(x *class, p Priority, other *class) bool {
	return x.full() || x.flow.queue != other.flow.queue && !x.mayStart(p)
}

// listedPerQueue returns how many tasks of each ready queue a TaskView has, so that many
// ready queues are not more than may be read.
func (s *Scheduler) listedPerQueue() int {
	n := 1
	for _, c := range s.classes {
		for p := Low; p <= Urgent; p++ {
			if c.queues[p].n > 0 {
				n++
			}
		}
	}
	return max(min(maxListed, maxScanned/(4*n)), 1)
}

// copyClass returns a class without its ready queues, with a copy of its flow. What it
// shares with c never changes.
func (v *TaskView) copyClass(c *class) *class {
	x := c.copyDemand()
	x.flow, x.limits, x.group = v.copyFlow(c.flow), v.limitOf.of(c.limits), v.bounds.of(c.group)
	return x
}

// copyDemand returns a class without its ready queues and with the same flow, whose shape
// may be changed.
func (c *class) copyDemand() *class {
	return &class{
		id: c.id, demand: c.demand, affinity: c.affinity, flow: c.flow, limits: c.limits, group: c.group,
		alternatives: c.alternatives, number: c.number, shape: &shape{
			needs: c.needs, labels: c.labels, rules: c.rules, prefer: c.prefer, place: c.place, typ: c.typ, namespace: c.namespace,
			prefetchable: c.prefetchable, pooled: c.pooled,
		},
	}
}

// A scanner reads ready queues, as far as maxScanned and maxChecked allow.
type scanner struct {
	s      *Scheduler
	valid  func(TaskRef) bool
	left   int // runs
	checks int // tasks
	listed int // tasks of one ready queue
	// further is how many tasks beyond those may be added to runs.
	further uint64
	// passed is the number of tasks that find has read.
	passed uint64
}

// runs calls f with each run of a queue, oldest first, until it returns false or nothing
// may be read any more.
func (r *scanner) runs(q *readyQueue, f func(e *entry) bool) {
	read := func(e *entry) bool {
		r.left--
		return r.left >= 0 && f(e)
	}
	if q.n == 0 || !read(&q.first) {
		return
	}
	at := q.at
	for p := q.head; p != nil; p, at = p.next, 0 {
		end := int32(len(p.runs)) //nolint:gosec // G115: few
		if p == q.tail {
			end = q.end
		}
		for ; at < end; at++ {
			if !read(&p.runs[at]) {
				return
			}
		}
	}
}

// find returns the entry by which a task will be assigned, and its seq.
func (r *scanner) find(q *readyQueue, t TaskRef) (found entry, seq uint64, ok bool) {
	r.runs(q, func(e *entry) bool {
		if e.job != t.Job || t.Index < e.index || t.Index-e.index >= e.n {
			r.passed += uint64(e.n)
			return true
		}
		found, seq = *e, e.seq+uint64(t.Index-e.index)
		ok = !r.s.superseded.isSuperseded(t, seq)
		return !ok
	})
	return found, seq, ok
}

// count returns the number of tasks of a queue before a seq.
func (r *scanner) count(q *readyQueue, before uint64) (n uint64) {
	r.runs(q, func(e *entry) bool {
		if e.seq >= before {
			return false
		}
		n += min(uint64(e.n), before-e.seq)
		return true
	})
	return n
}

// list adds the tasks of a queue before a seq that may still start, and reports whether
// there are any.
func (r *scanner) list(q *readyQueue, before uint64, to *aheadQueue) bool {
	r.runs(q, func(e *entry) bool {
		for k := r.s.superseded.withJob(e); k < e.n; k++ {
			seq := e.seq + uint64(k)
			if seq >= before {
				return false
			}
			t := TaskRef{Job: e.job, Index: e.index + k}
			if to.more = to.more || len(to.seqs) == r.listed || r.checks == 0; to.more {
				return to.addFurther(t, seq, min(uint64(e.n-k), before-seq), &r.further)
			}
			r.checks--
			if r.s.superseded.isSuperseded(t, seq) || r.valid != nil && !r.valid(t) {
				continue
			}
			to.addListed(seq, e.avoid)
			to.addRun(t, seq, 1)
		}
		return true
	})
	to.more, to.short = to.more || r.left < 0, to.short || r.left < 0
	return len(to.runs) > 0 || to.short
}

// Queued reports whether the task is in a ready queue.
func (v *TaskView) Queued() bool { return v.queued }

// Position returns how many tasks are before the task.
func (v *TaskView) Position() Position { return v.position }

// BeforeByShare returns how many other queues with tasks that may start have their turn before the
// queue of the task, and how many other owners with such tasks of its priority have it before the
// owner of the task: they hold less, of queues for their weight, or as much and were served
// longer ago.
func (v *TaskView) BeforeByShare() (queues, owners uint64) {
	own := v.class.flow
	ownQueue, ownOwner := v.queueKey(own.queue), v.ownerKey(own)
	queueSeen, ownerSeen := make(map[*queue]bool), make(map[*flow]bool)
	for i := range v.ahead {
		f := v.ahead[i].class.flow
		switch {
		case !v.ahead[i].class.mayStart(v.ahead[i].priority):
		case f.queue != own.queue && !queueSeen[f.queue]:
			queueSeen[f.queue] = true
			if k := v.queueKey(f.queue); k.before(&ownQueue) || !ownQueue.before(&k) && f.queue.before(own.queue) {
				queues++
			}
		case f.queue == own.queue && f != own && v.ahead[i].priority == v.priority && !ownerSeen[f]:
			ownerSeen[f] = true
			if k := v.ownerKey(f); k.before(&ownOwner) || !ownOwner.before(&k) && f.before(own) {
				owners++
			}
		}
	}
	return queues, owners
}

// Group returns how many attempts of the task's group may run at once, 0 if any number,
// and how many do.
func (v *TaskView) Group() (limit, held uint32) {
	if g := v.class.group; g != nil {
		return g.limit, g.held
	}
	return 0, 0
}

// Queue returns why the task's queue lets it not start now; none if it does.
func (v *TaskView) Queue() []Obstacle { return v.class.flow.queue.obstacles(v.class, v.priority) }

// Workers returns for each worker, by id, why it can't take the task now. The caller must
// not change it.
func (v *TaskView) Workers() []WorkerFit {
	v.group()
	fits := make([]WorkerFit, len(v.groupOf))
	for i, g := range v.groupOf {
		fits[i] = WorkerFit{Worker: v.fleet.offers[i].id, Obstacles: v.groups[g].obstacles}
	}
	return fits
}

// Groups returns the same with the workers that are equal for the task, and for those
// before it, as one group. The caller must not change it.
func (v *TaskView) Groups() []WorkerGroup {
	v.group()
	groups := make([]WorkerGroup, len(v.groups))
	for i := range v.groups {
		groups[i] = WorkerGroup{Workers: v.groups[i].ids, Obstacles: v.groups[i].obstacles}
	}
	return groups
}

// NotAccepting returns the workers that accept no tasks, by id.
func (v *TaskView) NotAccepting() (ids []WorkerID) {
	for i := range v.fleet.loads {
		if !v.fleet.loads[i].accepting {
			ids = append(ids, v.fleet.offers[i].id)
		}
	}
	return ids
}

// Fits reports whether a worker could take the task now, so that it or one before it is
// about to be assigned.
func (v *TaskView) Fits() bool {
	return v.class.mayStart(v.priority) && !v.awaitsHome(v.class) && v.anyWorker(func(w *worker) bool { return w.ranked() && w.fits(v.class.shape) })
}

// Starts reports whether the task would get a free slot at once if it were ready, and
// Next had nothing else to do.
func (v *TaskView) Starts() bool { return v.class.mayStart(v.priority) && v.placed(v.class) }

// EverFits reports whether a worker that accepts tasks could take the task if it were
// idle.
func (v *TaskView) EverFits() bool {
	return v.anyWorker(func(w *worker) bool { return w.usable() && w.eligible(v.class.shape) })
}

// anyWorker reports whether f is true for a worker.
func (v *TaskView) anyWorker(f func(w *worker) bool) bool {
	v.group()
	for i := range v.groups {
		if f(&v.groups[i].worker) {
			return true
		}
	}
	return false
}
