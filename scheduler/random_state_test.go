package scheduler_test

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/dtask/dtask/scheduler"
)

// A fork is a Scheduler, and what its callers know beside it.
type fork struct {
	*scheduler.Scheduler

	capacity  map[scheduler.WorkerID]scheduler.Capacity
	drained   map[scheduler.WorkerID]bool
	queues    map[string]scheduler.Queue
	limits    map[string]uint32 // named ones
	cancelled map[scheduler.TaskRef]bool
	assigned  map[scheduler.TaskRef]bool
}

func (f *fork) setQueue(name string, q scheduler.Queue) {
	f.SetQueue(name, q)
	f.queues[name] = q
}

func (f *fork) setNamedLimit(name string, running uint32) {
	f.SetNamedLimit(name, running)
	if slices.Contains(f.NamedLimits(), name) {
		f.limits[name] = running
	}
}

func (f *fork) valid(t scheduler.TaskRef) bool { return !f.cancelled[t] && !f.assigned[t] }

// next is Next; started reports whether the task gets a free slot.
func (f *fork) next() (a scheduler.Assignment, started, ok bool) {
	a, ok = f.Next(f.valid)
	if ok {
		f.assigned[a.Task] = true
		started = f.Free(a.Worker) >= 0
	}
	return a, started, ok
}

// settle calls next until nothing is left to do.
func (f *fork) settle() {
	for {
		if _, _, ok := f.next(); !ok {
			return
		}
	}
}

// starts reports whether a task gets a free slot by the next calls of Next.
func (f *fork) starts(t scheduler.TaskRef) bool {
	for {
		switch a, started, ok := f.next(); {
		case !ok:
			return false
		case a.Task == t:
			return started
		}
	}
}

func (f *fork) addWorker(id scheduler.WorkerID, c scheduler.Capacity) {
	f.AddWorker(id, c)
	f.capacity[id] = c
}

// A recipe makes the same state again and again.
type recipe struct {
	seed  uint64
	steps []func(f *fork)
}

func (r *recipe) fork() *fork {
	f := &fork{
		Scheduler: scheduler.New(r.seed), capacity: map[scheduler.WorkerID]scheduler.Capacity{}, drained: map[scheduler.WorkerID]bool{},
		queues: map[string]scheduler.Queue{}, limits: map[string]uint32{}, cancelled: map[scheduler.TaskRef]bool{}, assigned: map[scheduler.TaskRef]bool{},
	}
	for _, step := range r.steps {
		step(f)
	}
	return f
}

// A pushed is a task of a random state.
type pushed struct {
	ref      scheduler.TaskRef
	class    scheduler.ClassID
	priority scheduler.Priority
	avoid    scheduler.WorkerID
}

// A randomState is a state in which Next has returned false, and the tasks that were
// pushed to it.
type randomState struct {
	recipe

	r       *rand.Rand
	demands []scheduler.Demand
	tasks   []pushed
	now     int64 // ms
	former  bool  // it has only what such states had first, so that a seed makes the same one
}

var (
	someResources = []string{"cpu", "gpu"}
	someLabels    = []scheduler.Label{{Name: "zone", Value: "eu"}, {Name: "zone", Value: "us"}, {Name: "disk", Value: "ssd"}}
	someTypes     = []string{"command", "noop"}
	someNames     = []string{"", "etl"}
	someQueues    = []string{"", "ml"}
	someOwners    = []string{"", "alice"}
	someLimits    = []string{"api", "db"}
	someKeys      = []string{"ann", "ben", "cem"}
)

// subset returns some of the values.
func subset[T any](r *rand.Rand, values []T, each float64) (some []T) {
	for _, v := range values {
		if r.Float64() < each {
			some = append(some, v)
		}
	}
	return some
}

func newRandomState(seed uint64) *randomState { return newState(seed, false) }

func newState(seed uint64, former bool) *randomState {
	st := &randomState{recipe: recipe{seed: seed}, former: former, r: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // reproducible
	for range 1 + st.r.IntN(4) {
		st.demands = append(st.demands, st.demand())
	}
	classes := make([]scheduler.ClassID, len(st.demands))
	for i, d := range st.demands {
		st.steps = append(st.steps, func(f *fork) { classes[i] = f.Class(d) })
	}
	st.fork() // so that classes is known
	for range 5 + st.r.IntN(20) {
		st.step(classes)
	}
	st.steps = append(st.steps, (*fork).settle)
	return st
}

// newAgedState returns a random state in which turns by age are near: the queues have started up
// to 15 tasks before, on a worker that has left.
func newAgedState(seed uint64) *randomState {
	st := newRandomState(seed)
	r := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // reproducible
	first := slices.Clone(st.steps[:len(st.demands)])
	for i, name := range someQueues {
		starts := uint32(12 + r.IntN(4)) //nolint:gosec // small
		first = append(first, func(f *fork) {
			f.addWorker(50, scheduler.Capacity{Slots: 15})
			f.PushRun(scheduler.TaskRef{Job: 3 + uint64(i)}, starts, f.Class(scheduler.Demand{Queue: name}), scheduler.Normal) //nolint:gosec // small
			f.settle()
			f.RemoveWorker(50)
			delete(f.capacity, 50)
		})
	}
	st.steps = append(first, st.steps[len(st.demands):]...)
	return st
}

func (st *randomState) demand() scheduler.Demand {
	r := st.r
	d := scheduler.Demand{
		Labels: subset(r, someLabels, 0.2), Type: cmp.Or(subset(r, someTypes, 0.3)...), Namespace: someNames[r.IntN(2)], NoPrefetch: r.IntN(3) == 0,
		Group: scheduler.TaskRef{Job: 1, Index: uint32(r.IntN(2))}, Queue: cmp.Or(subset(r, someQueues, 0.5)...), Owner: cmp.Or(subset(r, someOwners, 0.5)...),
	}
	if r.IntN(3) == 0 {
		d.Limit = 1 + uint32(r.IntN(2)) //nolint:gosec // small
	}
	if r.IntN(3) == 0 {
		d.Uses = subset(r, someLimits, 0.6)
	}
	d.Rules = drawRules(r, d.Labels)
	d.Prefer, d.Place = subset(r, someRules, 0.1), scheduler.Strategy(r.IntN(3)) //nolint:gosec // small
	amounts := func(each float64) (list []scheduler.Quantity) {
		for _, name := range subset(r, someResources, each) {
			list = append(list, scheduler.Quantity{Name: name, Amount: 1 + int64(r.IntN(4))})
		}
		return list
	}
	d.Resources = amounts(0.3)
	for range max(r.IntN(5)-2, 0) {
		d.Alternatives = append(d.Alternatives, amounts(0.5))
	}
	if r.IntN(5) == 0 {
		d.Affinity = someKeys[r.IntN(3)]
		if r.IntN(2) == 0 { // so that some workers are idle
			d.Labels, d.Rules, d.Resources, d.Type, d.Uses, d.Limit = nil, nil, nil, "", nil, 0
		}
	}
	return d
}

// step adds a random step.
func (st *randomState) step(classes []scheduler.ClassID) {
	r := st.r
	id, class := scheduler.WorkerID(1+r.IntN(3)), classes[r.IntN(len(classes))] //nolint:gosec // small
	priority := scheduler.Priority(1 + r.IntN(4))                               //nolint:gosec // small
	kinds := 13
	if st.former {
		kinds = 12
	}
	switch r.IntN(kinds) {
	case 12:
		st.supersedeJob()
	case 11:
		// All that was pushed until now has waited for a second.
		st.now += 1100
		now := st.now
		st.steps = append(st.steps, func(f *fork) {
			f.Advance(now - 1000)
			f.Advance(now)
		})
	case 10:
		name, running := someLimits[r.IntN(2)], uint32(r.IntN(4)) //nolint:gosec // small
		st.steps = append(st.steps, func(f *fork) { f.setNamedLimit(name, running) })
		if r.IntN(4) == 0 {
			st.steps = append(st.steps, func(f *fork) { f.SetTokens(name, running) })
		}
	case 9:
		name := someQueues[r.IntN(2)]
		q := scheduler.Queue{Weight: uint32(1 + r.IntN(3)), Paused: r.IntN(3) == 0, MaxRunning: uint32(r.IntN(2) * r.IntN(4))} //nolint:gosec // small
		if r.IntN(3) == 0 {
			q.Max = []scheduler.Quantity{{Name: "gpu", Amount: 1 + int64(r.IntN(5))}}
		}
		st.steps = append(st.steps, func(f *fork) { f.setQueue(name, q) })
	case 0, 1:
		c := scheduler.Capacity{Slots: r.IntN(4), Labels: subset(r, someLabels, 0.6), Types: subset(r, someTypes, 0.4), Namespaces: subset(r, someNames, 0.4)}
		for _, name := range subset(r, someResources, 0.7) {
			c.Resources = append(c.Resources, scheduler.Quantity{Name: name, Amount: 1 + int64(r.IntN(6))})
		}
		c.Reserved = !st.former && r.IntN(4) == 0
		st.steps = append(st.steps, func(f *fork) { f.addWorker(id, c) })
	case 2:
		on := r.IntN(2) == 0
		st.steps = append(st.steps, func(f *fork) {
			if _, known := f.capacity[id]; known {
				f.SetAccepting(id, on)
				f.drained[id] = !on
			}
		})
	case 3:
		n := r.IntN(3)
		st.steps = append(st.steps, func(f *fork) { f.SetPrefetch(id, n) })
	case 4:
		st.steps = append(st.steps, func(f *fork) { f.Occupy(id, class, priority) })
	case 5:
		if len(st.tasks) > 0 {
			t, again := st.tasks[r.IntN(len(st.tasks))], r.IntN(2) == 0
			st.steps = append(st.steps, func(f *fork) {
				if f.Supersede(t.ref); again {
					f.Push(t.ref, t.class, t.priority, t.avoid)
				} else {
					f.cancelled[t.ref] = true
				}
			})
		}
	case 6:
		st.steps = append(st.steps, func(f *fork) { f.next() })
	default:
		job := uint64(1)
		if !st.former {
			job += 4 * uint64(r.IntN(2)) //nolint:gosec // 0 or 1
		}
		for range 1 + r.IntN(3) {
			t := pushed{scheduler.TaskRef{Job: job, Index: uint32(len(st.tasks))}, class, priority, 0} //nolint:gosec // small
			if r.IntN(4) == 0 {
				t.avoid = id
			}
			st.tasks = append(st.tasks, t)
			st.steps = append(st.steps, func(f *fork) { f.Push(t.ref, t.class, t.priority, t.avoid) })
		}
	}
}

// supersedeJob adds a change of a whole job: its waiting tasks are pushed again, by index, or
// cancelled. Some may keep their place.
func (st *randomState) supersedeJob() {
	if len(st.tasks) == 0 {
		return
	}
	job, tasks, again := st.tasks[st.r.IntN(len(st.tasks))].ref.Job, slices.Clone(st.tasks), st.r.IntN(3) > 0
	var except []uint32
	if st.r.IntN(3) == 0 {
		for _, t := range tasks {
			if t.ref.Job == job && t.ref.Index%2 == 0 {
				except = append(except, t.ref.Index)
			}
		}
	}
	st.steps = append(st.steps, func(f *fork) {
		f.SupersedeJob(job, except)
		for _, t := range tasks {
			switch {
			case t.ref.Job != job || !f.valid(t.ref) || slices.Contains(except, t.ref.Index):
			case again:
				f.Push(t.ref, t.class, t.priority, t.avoid)
			default:
				f.cancelled[t.ref] = true
			}
		}
	})
}

// waiting returns the tasks that wait in the state.
func (st *randomState) waiting() (list []pushed) {
	f := st.fork()
	for _, t := range st.tasks {
		if f.valid(t.ref) {
			list = append(list, t)
		}
	}
	return list
}
