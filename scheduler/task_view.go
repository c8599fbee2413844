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
	// maxScanned bounds the runs and tasks of ready queues that are read for a TaskView,
	// which takes about a millisecond.
	maxScanned = 50_000
)

// A TaskView is a copy of what decides when one task starts: the workers with what they
// hold, and the tasks before it. It is taken in the Scheduler's goroutine, in about 0.1 µs
// for each worker. Its methods may be called in any other, but only in one at a time.
type TaskView struct {
	class    *class
	priority Priority
	avoid    WorkerID
	seq      uint64 // of its entry; above all others if it has none
	queued   bool
	position Position
	workers  []worker // by id; without what they hold by class
	fleet    fleet
	random   splitmix.Source
	choices  uint64
	starts   uint64
	flows    map[*flow]*flow // copies by original; never ranged over
	queues   map[*queue]*queue
	fits     []WorkerFit  // of the workers; nil until Workers is called
	ahead    []aheadQueue // tasks before it that may compete with it
	// cut: ahead is not complete, or Changes has taken too many steps. Nothing follows from
	// a trial then. undecided: a trial would have needed more of ahead than is listed.
	cut, undecided bool
	steps          int   // of all trials until now: see maxSteps
	scratch        trial // the present one
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
	seqs     []uint64 // ascending; at most maxListed
	more     bool     // there are further ones
	avoids   bool     // some of seqs avoid a worker
}

// View copies what decides about a task of class c, priority p and, as in Push, a worker
// to avoid. If the task is not in a ready queue, it is treated as if it were pushed now.
// valid is that of Next. c must come from Class of this Scheduler, or View panics. View
// changes nothing.
func (s *Scheduler) View(t TaskRef, c ClassID, p Priority, avoid WorkerID, valid func(TaskRef) bool) *TaskView {
	p = p.orNormal()
	v := &TaskView{priority: p, avoid: avoid, seq: math.MaxUint64, random: s.random, choices: s.choices, starts: s.starts}
	v.copyWorkers(s)
	v.class = v.copyClass(s.classes[c])
	scan := scanner{s: s, valid: valid, left: maxScanned}
	e, seq, found := scan.find(&s.classes[c].queues[p], t)
	if v.queued = found; found {
		v.seq, v.avoid = seq, e.avoid
	}
	scan.listed = s.listedPerQueue()
	for _, x := range s.classes {
		copied := v.class
		if x.id != c {
			copied = nil
		}
		for q := Urgent; q >= Low; q-- {
			queue := &x.queues[q]
			if queue.n == 0 {
				continue
			}
			if x.flow.queue == s.classes[c].flow.queue {
				switch {
				case q > p:
					v.position.Higher += uint64(queue.n) //nolint:gosec // not negative
				case q == p:
					v.position.Earlier += scan.count(queue, v.seq)
				}
			}
			if x.id != c && x.full() {
				continue // none of them can start
			}
			before := uint64(math.MaxUint64)
			if x.flow == s.classes[c].flow && q <= p {
				before = v.seq // those of a lower priority at the turn of the oldest
			}
			if copied == nil {
				copied = v.copyClass(x)
			}
			if a := (aheadQueue{class: copied, priority: q}); scan.list(queue, before, &a) {
				v.ahead = append(v.ahead, a)
			}
		}
	}
	v.position.AtLeast, v.cut = scan.left <= 0, scan.left <= 0
	if v.cut && !found {
		v.position.Earlier = scan.passed
	}
	return v
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
	x.flow = v.copyFlow(c.flow)
	return x
}

// copyDemand returns a class without its ready queues and with the same flow, whose shape
// may be changed.
func (c *class) copyDemand() *class {
	return &class{
		id: c.id, demand: c.demand, flow: c.flow, limit: c.limit, held: c.held, shape: &shape{
			needs: c.needs, labels: c.labels, typ: c.typ, namespace: c.namespace, prefetchable: c.prefetchable, pooled: c.pooled,
		},
	}
}

// copyWorkers copies all workers. Of their lists, only that of the taken resources changes
// in place.
func (v *TaskView) copyWorkers(s *Scheduler) {
	n := 0
	for _, w := range s.sorted {
		n += len(w.taken)
	}
	v.fleet = fleet{s.fleet.slots, slices.Clone(s.fleet.total)}
	v.workers = make([]worker, len(s.sorted))
	taken := make([]int64, 0, n)
	for i, w := range s.sorted {
		from := len(taken)
		taken = append(taken, w.taken...)
		v.workers[i] = *w
		v.workers[i].taken, v.workers[i].held = taken[from:len(taken):len(taken)], nil
		if w.kept != nil {
			v.workers[i].kept = &reservation{queue: w.kept.queue}
		}
	}
}

// A scanner reads ready queues, as far as maxScanned allows.
type scanner struct {
	s     *Scheduler
	valid func(TaskRef) bool
	left  int
	// listed is how many tasks of one ready queue are listed.
	listed int
	// passed is the number of tasks that find has read.
	passed uint64
}

// runs calls f with each run of a queue, oldest first, until it returns false or nothing
// may be read any more.
func (r *scanner) runs(q *readyQueue, f func(e *entry) bool) {
	at := q.first
	for p := q.head; p != nil; p, at = p.next, 0 {
		end := len(p.runs)
		if p == q.tail {
			end = q.last
		}
		for ; at < end; at++ {
			if r.left--; r.left < 0 || !f(&p.runs[at]) {
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
		ok = seq > r.s.superseded[t]
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
		for k := range e.n {
			seq := e.seq + uint64(k)
			if seq >= before {
				return false
			}
			t := TaskRef{Job: e.job, Index: e.index + k}
			if r.left--; r.left < 0 {
				return false
			}
			if seq <= r.s.superseded[t] || r.valid != nil && !r.valid(t) {
				continue
			}
			if len(to.seqs) == r.listed {
				to.more = true
				return false
			}
			to.seqs, to.avoids = append(to.seqs, seq), to.avoids || e.avoid != 0
		}
		return true
	})
	to.more = to.more || r.left < 0
	return len(to.seqs) > 0 || to.more
}

// Queued reports whether the task is in a ready queue.
func (v *TaskView) Queued() bool { return v.queued }

// Position returns how many tasks are before the task.
func (v *TaskView) Position() Position { return v.position }

// Group returns how many attempts of the task's group may run at once, 0 if any number,
// and how many do.
func (v *TaskView) Group() (limit, held uint32) { return v.class.limit, v.class.held }

// Queue returns why the task's queue lets it not start now; none if it does.
func (v *TaskView) Queue() []Obstacle { return v.class.flow.queue.obstacles(v.class) }

// Workers returns for each worker, by id, why it can't take the task now. The caller must
// not change it.
func (v *TaskView) Workers() []WorkerFit {
	if v.fits == nil {
		v.fits = make([]WorkerFit, len(v.workers))
		for i := range v.workers {
			w := &v.workers[i]
			v.fits[i] = WorkerFit{Worker: w.id, Obstacles: w.obstacles(v.class)}
		}
	}
	return v.fits
}

// Fits reports whether a worker could take the task now, so that it or one before it is
// about to be assigned.
func (v *TaskView) Fits() bool {
	return slices.ContainsFunc(v.workers, func(w worker) bool {
		return w.ranked() && v.class.mayStart() && w.fits(v.class.shape)
	})
}

// Starts reports whether the task would get a free slot at once if it were ready, and
// Next had nothing else to do.
func (v *TaskView) Starts() bool { return v.class.mayStart() && v.placed(v.class) }

// EverFits reports whether a worker that accepts tasks could take the task if it were
// idle.
func (v *TaskView) EverFits() bool {
	return slices.ContainsFunc(v.workers, func(w worker) bool { return w.usable() && w.eligible(v.class.shape) })
}
