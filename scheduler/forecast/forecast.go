package forecast

import (
	"github.com/dtask/dtask/scheduler"
	"github.com/dtask/dtask/scheduler/internal/splitmix"
)

// A Unit is a task, or an array of tasks that become ready together.
type Unit struct {
	Demand   scheduler.Demand // its Group, Limit, Queue and Owner are not used
	Priority scheduler.Priority
	Tasks    uint32 // at least 1
	Limit    uint32 // maximum of its tasks that run at the same time; 0 = unlimited
	TakesMS  int64  // of each task; not negative
	// Named returns the named limits of the demand; not called without any.
	Named func(name string) Limit
	// Needs are the numbers of the units that must end before. They are lower than its own.
	Needs []uint32
	// Cleanup units begin when all others have ended.
	Cleanup bool
	// Skipped units don't run: they end as soon as they are ready.
	Skipped bool
}

// A Result is the end of a forecast.
type Result struct {
	MakespanMS int64 // from the first start to the last end
	// Unplaced is the number of tasks that never start, because no worker fits them or
	// others that they wait for.
	Unplaced uint64
}

// checkInterval is how many tasks are looked at between two calls of stop.
const checkInterval = 256

// Run computes how the units run on workers with these capacities, as tasks of one owner in
// a queue with these settings that holds nothing else. ok is false if stop has
// returned true; it is called now and then. The seed decides between workers of equal load,
// and in which order the slots of tasks become free that end in the same millisecond.
func Run(seed uint64, fleet []scheduler.Capacity, queue scheduler.Queue, units []Unit, stop func() bool) (r Result, ok bool) {
	f := &forecast{s: scheduler.New(seed), random: splitmix.New(seed), seed: seed, order: order(seed % orders), units: units, stop: stop}
	f.s.SetQueue("", queue)
	for i, c := range fleet {
		f.s.AddWorker(scheduler.WorkerID(i+1), c) //nolint:gosec // workers are few
	}
	f.begin()
	if f.run(); f.stopped {
		return Result{}, false
	}
	r.MakespanMS = f.last
	for i := range units {
		if !units[i].Skipped {
			r.Unplaced += uint64(f.left[i])
		}
	}
	return r, true
}

// An order is one in which the slots of tasks become free that end in the same millisecond. In a
// cluster it is any of these: a worker reports all tasks together that end together, the reports of
// several workers may be in one log entry, and real tasks do not end at exactly the same time.
type order uint64

const (
	oneByOne order = iota // in random order
	together
	byWorker // those of one worker after those of another, the workers in random order
)

const orders = 3

type forecast struct {
	s       *scheduler.Scheduler
	random  splitmix.Source
	seed    uint64
	order   order
	units   []Unit
	now     int64              // ms
	last    int64              // the last end
	buckets map[string]*bucket // of limits with a rate
	empty   map[string]*bucket // those without a token

	left     []uint32 // tasks of each unit that have not ended
	waits    []uint32 // what each unit waits for
	offsets  []uint32 // the units that need unit i are after[offsets[i]:offsets[i+1]]
	after    []uint32
	ordinary int      // units that have not ended, without cleanup units
	ready    []uint32 // units that are about to be pushed
	ends     ends

	stop    func() bool
	stopped bool
	looks   uint64
}

// valid is asked by the scheduler about each task that it looks at, also about those that
// fit no worker, and before each end. After a stop, it drops them.
func (f *forecast) valid(scheduler.TaskRef) bool {
	if f.looks++; !f.stopped && f.looks%checkInterval == 0 {
		f.stopped = f.stop()
	}
	return !f.stopped
}

// begin makes the units ready that wait for nothing.
func (f *forecast) begin() {
	n := len(f.units)
	f.left, f.waits, f.offsets = make([]uint32, n), make([]uint32, n), make([]uint32, n+1)
	for i := range f.units {
		u := &f.units[i]
		f.left[i], f.waits[i] = u.Tasks, uint32(len(u.Needs)) //nolint:gosec // bounded by the job
		if u.Cleanup {
			f.waits[i]++ // for the ordinary units
		} else {
			f.ordinary++
		}
		for _, of := range u.Needs {
			f.offsets[of+1]++
		}
	}
	for i := range f.units {
		f.offsets[i+1] += f.offsets[i]
	}
	f.after = make([]uint32, f.offsets[n])
	next := append([]uint32(nil), f.offsets...)
	for i := range f.units {
		for _, of := range f.units[i].Needs {
			f.after[next[of]] = uint32(i) //nolint:gosec // bounded by the job
			next[of]++
		}
	}
	for i := range f.units {
		if f.waits[i] == 0 {
			f.ready = append(f.ready, uint32(i)) //nolint:gosec // as above
		}
	}
	if f.ordinary == 0 {
		f.releaseCleanup()
	}
	f.push()
}

// run assigns tasks until none can start, or it is stopped.
func (f *forecast) run() {
	for {
		f.start()
		token, waits := f.nextToken()
		if f.stopped || len(f.ends) == 0 && (!waits || f.s.Len() == 0) {
			return
		}
		if waits && (len(f.ends) == 0 || token < f.ends[0].at) {
			f.now = token
			f.addTokens()
			continue
		}
		f.now = f.ends[0].at
		f.last = f.now
		for len(f.ends) > 0 && f.ends[0].at == f.now && f.valid(scheduler.TaskRef{}) {
			e := f.ends.pop()
			f.s.Release(e.assignment.Worker, e.assignment.Class, e.assignment.Priority)
			if f.left[e.unit]--; f.left[e.unit] == 0 {
				f.s.Retire(e.assignment.Class)
				f.ended(e.unit)
			}
			if f.order != together {
				break
			}
		}
		f.push()
	}
}

// start assigns all tasks that can start now.
func (f *forecast) start() {
	for {
		a, ok := f.s.Next(f.valid)
		if !ok && f.settle() {
			continue
		}
		if !ok {
			return
		}
		unit := uint32(a.Task.Job - 1) //nolint:gosec // see push
		at := f.now + f.units[unit].TakesMS
		f.ends.push(end{at: at, tie: f.tie(at, a.Worker), unit: unit, assignment: a})
	}
}

// tie decides between tasks that end at the same time.
func (f *forecast) tie(at int64, w scheduler.WorkerID) uint64 {
	if f.order != byWorker {
		return f.random.Next()
	}
	ofWorker := splitmix.New(f.seed ^ uint64(at)<<20 ^ uint64(w)<<44) //nolint:gosec // any number
	return ofWorker.Next()
}

// push pushes the tasks of all units that are ready, and ends those that are skipped.
func (f *forecast) push() {
	for k := 0; k < len(f.ready); k++ { // ended adds more
		i := f.ready[k]
		u := &f.units[i]
		if u.Skipped {
			f.ended(i)
			continue
		}
		t := scheduler.TaskRef{Job: uint64(i) + 1}
		d := u.Demand
		d.Queue, d.Owner = "", ""
		if d.Limit, d.Group = 0, t; u.Limit < u.Tasks { // else it needs no class of its own
			d.Limit = u.Limit
		}
		class := f.s.Class(d)
		for _, name := range d.Uses {
			f.useLimit(name, u.Named(name))
		}
		f.s.PushRun(t, u.Tasks, class, u.Priority)
	}
	f.ready = f.ready[:0]
}

// ended makes the units ready that waited for one.
func (f *forecast) ended(i uint32) {
	for _, next := range f.after[f.offsets[i]:f.offsets[i+1]] {
		if f.waits[next]--; f.waits[next] == 0 {
			f.ready = append(f.ready, next)
		}
	}
	if !f.units[i].Cleanup {
		if f.ordinary--; f.ordinary == 0 {
			f.releaseCleanup()
		}
	}
}

func (f *forecast) releaseCleanup() {
	for i := range f.units {
		if f.units[i].Cleanup {
			if f.waits[i]--; f.waits[i] == 0 {
				f.ready = append(f.ready, uint32(i)) //nolint:gosec // bounded by the job
			}
		}
	}
}

// An end is a running task, by when it ends.
type end struct {
	at         int64  // ms
	tie        uint64 // random
	unit       uint32
	assignment scheduler.Assignment
}

// before orders ends: the earlier one first.
func (e *end) before(o *end) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	return e.tie < o.tie
}

// ends is a heap.
type ends []end

func (h *ends) push(e end) {
	*h = append(*h, e)
	list := *h
	for i := len(list) - 1; i > 0; {
		parent := (i - 1) / 2
		if !list[i].before(&list[parent]) {
			return
		}
		list[i], list[parent] = list[parent], list[i]
		i = parent
	}
}

func (h *ends) pop() end {
	list := *h
	first, last := list[0], len(list)-1
	list[0] = list[last]
	list = list[:last]
	*h = list
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if list[child].before(&list[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		list[i], list[least] = list[least], list[i]
		i = least
	}
}
