package scheduler

import (
	"slices"

	"github.com/dtask/dtask/scheduler/internal/splitmix"
)

const (
	// minSamples is how many run times of a unit must be known to draw from them.
	minSamples = 5
	// maxSimulated bounds the attempts that end, and the tasks that start, in one run of the
	// simulation.
	maxSimulated = 10_000
	// maxRepeats and minRepeats bound the runs of the simulation; those of all together
	// should have no more than simulationBudget starts and ends, which take some 5 ms; with minRepeats it may be 10 ms.
	maxRepeats, minRepeats = 30, 12
	simulationBudget       = 40_000
	// maxLookups bounds the tasks that are compared with workers in all runs together.
	maxLookups = 2_000_000
)

// A RunningAttempt is an attempt that a worker holds, or one whose worker was lost.
type RunningAttempt struct {
	Worker WorkerID
	Class  ClassID
	Task   TaskRef
	// RanMS is for how many ms it has had a slot; negative if it waits for one.
	RanMS int64
	// EndsMS is in how many ms the lease ends of an attempt that no worker holds, and that counts
	// towards its limits until then. Its Worker is 0.
	EndsMS int64
}

// running is what the workers hold, by worker, and the classes of it.
type running struct {
	attempts []RunningAttempt
	classes  map[ClassID]*class
}

// ViewRunning adds to a view what the workers hold. Like View, it must be called in the
// Scheduler's goroutine, and directly after it. Those that no worker holds must be first, and
// the attempts of a worker adjacent, in the order in which they get a slot.
func (s *Scheduler) ViewRunning(v *TaskView, list []RunningAttempt) {
	v.running = &running{attempts: list, classes: make(map[ClassID]*class)}
	for i := range list {
		if c := list[i].Class; v.running.classes[c] == nil {
			v.running.classes[c] = v.copyClass(s.classes[c])
		}
	}
}

// Busy returns the workers that hold attempts, by id, and the number of these attempts. ok is false
// if there are too many for an estimate, together with those that no worker holds.
func (v *TaskView) Busy(leased int) (ids []WorkerID, attempts int, ok bool) {
	for i := range v.fleet.loads {
		if n := v.fleet.loads[i].used; n > 0 {
			ids, attempts = append(ids, v.fleet.offers[i].id), attempts+int(n)
		}
	}
	return ids, attempts, attempts+leased <= maxSimulated
}

// A Doubt is why a start can't be estimated. Zero means that it can.
type Doubt uint8

// The reasons.
const (
	// TooLarge: too many attempts end and tasks start before the task.
	TooLarge Doubt = iota + 1
	// FewSamples: fewer than 5 run times are known of a task that runs, or starts before.
	FewSamples
	// NeverStarts: the task does not start, whatever ends.
	NeverStarts
	// RateLimited: the task, or one before it, uses a limit with a rate.
	RateLimited
)

// An Estimate is when a task starts, in ms from now: the range of its starts in all runs of
// the simulation. It has more than 8 of 10 true starts under a stationary load.
type Estimate struct {
	FromMS, ToMS int64
	Doubt        Doubt   // if it is not 0, the range is unknown
	Task         TaskRef // FewSamples: one of which too few are known
}

// Estimate returns when the task of a view that has what the workers hold gets a slot, if
// no task of a higher priority becomes ready until then, and no worker joins or leaves.
//
// runTimes returns the latest run times, in ms, of the unit of a task: of the tasks that
// are alike. The list must stay the same for one unit. seed decides about the draws.
//
// It repeats a simulation that starts waiting tasks in order as attempts end. How long an
// attempt runs is drawn from the samples of its unit: of those that ran longer than it has
// until now, or of all if it has run longer than all of them. As the samples are few, each
// run of the simulation draws from a sample of the samples (the bootstrap of B. Efron).
func (v *TaskView) Estimate(seed uint64, runTimes func(TaskRef) []int64) Estimate {
	if v.running == nil || v.cut {
		return Estimate{Doubt: TooLarge}
	}
	x := &simulation{v: v, random: splitmix.New(seed), samples: runTimes, first: make(map[*int64]int), classOf: make(map[ClassID]int)}
	if e := x.prepare(); e.Doubt != 0 {
		return e
	}
	defer x.order.restore()
	var starts []int64
	repeats := maxRepeats
	for len(starts) < repeats {
		at, doubt := x.run()
		if doubt != 0 {
			return Estimate{Doubt: doubt}
		}
		if starts = append(starts, at); len(starts) == 1 {
			repeats = min(max(simulationBudget/max(x.steps, 1), minRepeats), maxRepeats)
		}
	}
	slices.Sort(starts)
	return Estimate{FromMS: starts[0], ToMS: starts[repeats-1]}
}

// A simulation starts waiting tasks in order as attempts end.
type simulation struct {
	v       *TaskView
	random  splitmix.Source
	samples func(TaskRef) []int64

	classes []*class
	classOf map[ClassID]int // their numbers
	units   [][]int64       // run times by unit
	drawn   [][]int64       // likewise: those from which this run draws, sorted
	first   map[*int64]int
	leased  []simEnd // of attempts that no worker holds, and that count until their leases end
	workers []simWorker
	queues  []simQueue    // the last is the task itself
	scratch []worker      // of the workers, as they are in this run
	taken   []int64       // of all of them
	at      []simPosition // of the queues, in this run
	held    map[*group]uint32
	uses    map[*namedLimit]uint32 // attempts that count towards named limits
	order   simOrder
	ends    heap[simEnd]
	waits   []int // of the workers: how many of what waits there has a slot
	steps   int   // of this run
	lookups int   // of all
	short   bool  // a queue has further tasks than those that are known, which are next
}

// A simWorker is a worker, and what it holds.
type simWorker struct {
	worker  worker
	kept    *simKept // nil: it is kept free for no task
	running []simAttempt
	waiting []simAttempt // for a slot, the first first
}

type simAttempt struct {
	class int // in simulation.classes
	unit  int
	ran   int64
}

// A simQueue has waiting tasks of one class and priority.
type simQueue struct {
	class    *class
	number   int // of the class
	priority Priority
	runs     []simRun
	short    bool // there are further ones, which are not known
}

type simRun struct {
	seq  uint64
	n    uint32
	unit int
}

// A simPosition is the next task of a queue.
type simPosition struct {
	run int
	n   uint32 // tasks of the run that have started
}

// A simEnd is the end of an attempt. It has no pointer: there are many of them.
type simEnd struct {
	at     int64
	number int // of the ends, so that the order is that of the starts
	worker int
	class  int
}

func (e simEnd) before(o simEnd) bool { return e.at < o.at || e.at == o.at && e.number < o.number }
func (simEnd) setPos(int)             {}

// prepare reads the view.
func (x *simulation) prepare() Estimate {
	var queued []*class
	for _, list := range [][]aheadQueue{x.v.ahead, x.v.limited} {
		for i := range list {
			if !x.v.takes(list[i].class) {
				continue
			}
			if e := x.addQueue(&list[i]); e.Doubt != 0 {
				return e
			}
			queued = append(queued, list[i].class)
		}
	}
	if slices.ContainsFunc(append(queued, x.v.class), (*class).hasRate) {
		return Estimate{Doubt: RateLimited}
	}
	own := simQueue{class: x.v.class, number: x.number(x.v.class), priority: x.v.priority, runs: []simRun{{seq: x.v.seq, n: 1}}}
	x.queues, queued = append(x.queues, own), append(queued, x.v.class)
	frees := x.v.freeing(queued)
	attempts := x.addLeased(x.v.running.attempts, frees)
	for i := range x.v.fleet.loads {
		w := x.v.fleet.worker(i)
		n := 0
		for n < len(attempts) && attempts[n].Worker == w.id {
			n++
		}
		if matters(&w, attempts[:n], queued, frees) {
			if e := x.addWorker(i, w, attempts[:n]); e.Doubt != 0 {
				return e
			}
		}
		attempts = attempts[n:]
	}
	x.order = newSimOrder(x.v)
	return Estimate{}
}

func (x *simulation) addQueue(a *aheadQueue) Estimate {
	q := simQueue{class: a.class, number: x.number(a.class), priority: a.priority, short: a.short}
	for _, r := range a.runs {
		unit, ok := x.unit(r.Task)
		if !ok {
			return Estimate{Doubt: FewSamples, Task: r.Task}
		}
		q.runs = append(q.runs, simRun{seq: r.seq, n: r.N, unit: unit})
	}
	x.queues = append(x.queues, q)
	return Estimate{}
}

func (x *simulation) addWorker(number int, w worker, attempts []RunningAttempt) Estimate {
	sim := simWorker{worker: w, kept: x.keptFor(x.v.fleet.loads[number].kept)}
	for _, a := range attempts {
		unit, ok := x.unit(a.Task)
		if !ok {
			return Estimate{Doubt: FewSamples, Task: a.Task}
		}
		attempt := simAttempt{class: x.number(x.v.running.classes[a.Class]), unit: unit, ran: max(a.RanMS, 0)}
		if a.RanMS < 0 {
			sim.waiting = append(sim.waiting, attempt)
		} else {
			sim.running = append(sim.running, attempt)
		}
	}
	x.workers = append(x.workers, sim)
	return Estimate{}
}

// number returns the number of a class in classes.
func (x *simulation) number(c *class) int {
	n, known := x.classOf[c.id]
	if !known {
		n = len(x.classes)
		x.classOf[c.id] = n
		x.classes = append(x.classes, c)
	}
	return n
}

// unit returns the number of the unit of a task; ok is false if too few of its run times
// are known. Tasks of one unit have one list of samples.
func (x *simulation) unit(t TaskRef) (unit int, ok bool) {
	samples := x.samples(t)
	if len(samples) < minSamples {
		return 0, false
	}
	unit, known := x.first[&samples[0]]
	if !known {
		unit = len(x.units)
		x.first[&samples[0]] = unit
		x.units = append(x.units, samples)
	}
	return unit, true
}

// run returns when the task starts in one run of the simulation.
func (x *simulation) run() (at int64, doubt Doubt) {
	x.reset()
	for !x.short && x.steps <= maxSimulated && x.lookups <= maxLookups {
		if len(x.ends.items) == 0 {
			return 0, NeverStarts
		}
		if e := x.ends.remove(0); x.end(e) {
			return e.at, 0
		}
	}
	return 0, TooLarge
}

// reset returns to now, and draws how long everything that runs will run.
func (x *simulation) reset() {
	x.steps, x.short, x.ends.items, x.held = 0, false, x.ends.items[:0], make(map[*group]uint32)
	x.uses = make(map[*namedLimit]uint32)
	x.order.restore()
	x.drawn = x.drawn[:0]
	for _, samples := range x.units {
		drawn := make([]int64, len(samples)-1) // one less makes up for the small number
		for i := range drawn {
			drawn[i] = samples[x.random.Below(uint64(len(samples)))]
		}
		slices.Sort(drawn)
		x.drawn = append(x.drawn, drawn)
	}
	x.scratch, x.taken, x.waits, x.at = x.scratch[:0], x.taken[:0], make([]int, len(x.workers)), make([]simPosition, len(x.queues))
	for i := range x.queues {
		if g := x.queues[i].class.group; g != nil {
			x.held[g] = g.held
		}
		for _, l := range x.queues[i].class.limits {
			x.uses[l] = l.held
		}
		x.short = x.short || x.queues[i].short && len(x.queues[i].runs) == 0
	}
	for i := range x.workers {
		w := x.workers[i].worker
		from := len(x.taken)
		x.taken = append(x.taken, w.taken...)
		w.taken = x.taken[from:len(x.taken):len(x.taken)]
		x.scratch = append(x.scratch, w)
		for _, a := range x.workers[i].running {
			x.ends.items = append(x.ends.items, x.draw(0, i, a))
		}
	}
	for _, e := range x.leased {
		x.steps++
		e.number = x.steps
		x.ends.items = append(x.ends.items, e)
	}
	for at := len(x.ends.items)/2 - 1; at >= 0; at-- { // much cheaper than a push for each
		x.ends.down(at)
	}
}

func (x *simulation) start(now int64, worker int, a simAttempt) {
	x.ends.push(x.draw(now, worker, a))
}

// draw draws when an attempt ends that has a slot.
func (x *simulation) draw(now int64, worker int, a simAttempt) simEnd {
	x.steps++
	drawn := x.drawn[a.unit]
	from, _ := slices.BinarySearch(drawn, a.ran+1)
	if from == len(drawn) { // it has run longer than all of them: that says nothing about the rest
		from, a.ran = 0, 0
	}
	took := drawn[from+int(x.random.Below(uint64(len(drawn)-from)))] - a.ran //nolint:gosec // a length
	return simEnd{at: now + max(took, 0), number: x.steps, worker: worker, class: a.class}
}

// end ends an attempt, starts what follows, and reports whether that is the task.
func (x *simulation) end(e simEnd) bool {
	x.steps++
	c := x.classes[e.class]
	full := x.full(c) || c.flow.queue.full() || len(c.flow.queue.max) > 0
	if x.held[c.group] > 0 {
		x.held[c.group]--
	}
	for _, l := range c.limits {
		if x.uses[l] > 0 {
			x.uses[l]--
		}
	}
	x.order.end(c)
	if e.worker >= 0 && x.leave(e, c) {
		return true
	}
	if full { // its group or queue may have another attempt, at any worker
		x.lookups += len(x.scratch)
		for i := range x.scratch {
			if i != e.worker && x.fill(e.at, i) {
				return true
			}
		}
	}
	return false
}

// leave frees what an attempt had of its worker, and starts what follows there.
func (x *simulation) leave(e simEnd, c *class) bool {
	w := &x.scratch[e.worker]
	if w.used > 0 {
		w.used--
	}
	for _, n := range c.needs {
		if int(n.resource) < len(w.taken) {
			w.taken[n.resource] -= n.amount
		}
	}
	if waiting := x.workers[e.worker].waiting; x.waits[e.worker] < len(waiting) {
		x.waits[e.worker]++
		x.start(e.at, e.worker, waiting[x.waits[e.worker]-1])
	}
	return x.fill(e.at, e.worker)
}

func (x *simulation) full(c *class) bool {
	return c.group != nil && x.held[c.group] >= c.group.limit ||
		slices.ContainsFunc(c.limits, func(l *namedLimit) bool { return l.running > 0 && x.uses[l] >= l.running })
}

// mayStart is class.mayStart in this run.
func (x *simulation) mayStart(c *class, p Priority) bool {
	q := c.flow.queue
	return !q.paused && !q.full() && !x.full(c) && q.allows(c, p)
}

// fill starts waiting tasks at a worker, in order, and reports whether one is the task.
func (x *simulation) fill(now int64, worker int) bool {
	w := &x.scratch[worker]
	for w.usable() && w.used < w.slots && !x.short {
		q, c, number := x.next(w, x.workers[worker].kept)
		if q < 0 {
			return false
		}
		if q == len(x.queues)-1 {
			return true
		}
		x.order.start(c, x.seq(q))
		at := &x.at[q]
		run := &x.queues[q].runs[at.run]
		if at.n++; at.n == run.n {
			at.run, at.n = at.run+1, 0
			x.short = x.short || at.run == len(x.queues[q].runs) && x.queues[q].short
		}
		if c.group != nil {
			x.held[c.group]++
		}
		for _, l := range c.limits {
			x.uses[l]++
		}
		w.used++
		for _, n := range c.needs {
			for int(n.resource) >= len(w.taken) {
				w.taken = append(w.taken, 0)
			}
			w.taken[n.resource] += n.amount
		}
		x.start(now, worker, simAttempt{class: number, unit: run.unit})
	}
	return false
}

// next returns the queue whose next task is the first in order that fits the worker, and the class
// that it takes, with its number; below 0 if none does. A worker that is kept free for a task gets
// that one first.
func (x *simulation) next(w *worker, kept *simKept) (queue int, c *class, number int) {
	if w.kept != nil {
		if kept != nil && x.at[kept.queue] == (simPosition{}) && x.mayStart(kept.class, x.queues[kept.queue].priority) {
			if !w.fitsWithSlot(kept.class.shape) {
				return -1, nil, 0
			}
			w.kept = nil
			return kept.queue, kept.class, kept.number
		}
		w.kept = nil // the task has started elsewhere, or its queue holds it back
	}
	best := -1
	x.lookups += len(x.queues) * min(len(x.v.flows), 4) // shares take longer to compare
	for k := range x.queues {
		c := x.queues[k].class
		if x.at[k].run < len(x.queues[k].runs) && (best < 0 || x.before(k, best)) && x.mayStart(c, x.queues[k].priority) && w.fitsWithSlot(c.shape) {
			best = k
		}
	}
	if best < 0 {
		return -1, nil, 0
	}
	return best, x.queues[best].class, x.queues[best].number
}

// before reports whether the next task of a queue is before that of another.
func (x *simulation) before(k, other int) bool {
	a, b := x.contender(k), x.contender(other)
	return x.v.before(&a, &b)
}

func (x *simulation) contender(k int) contender {
	q := &x.queues[k]
	return contender{q.class.flow, q.priority, x.seq(k)}
}

// seq returns the seq of the next task of a queue.
func (x *simulation) seq(k int) uint64 { return x.queues[k].runs[x.at[k].run].seq + uint64(x.at[k].n) }
