package scheduler_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler"
)

var (
	resourceNames = rapid.SampledFrom([]string{"cpu", "gpu", "memory"})
	labels        = rapid.SampledFrom([]scheduler.Label{{Name: "zone", Value: "eu"}, {Name: "zone", Value: "us"}, {Name: "disk", Value: "ssd"}})
	types         = rapid.SampledFrom([]string{"command", "noop", "prime"})
	limitNames    = rapid.SampledFrom([]string{"db", "api"})
	workerIDs     = rapid.Map(rapid.IntRange(1, 8), func(n int) scheduler.WorkerID { return scheduler.WorkerID(n) })
)

var queueNames = []string{"", "", "etl", "ml"}

func queues() *rapid.Generator[scheduler.Queue] {
	return rapid.Custom(func(t *rapid.T) scheduler.Queue {
		return scheduler.Queue{
			Weight:     rapid.SampledFrom([]uint32{0, 1, 2, 4}).Draw(t, "weight"),
			MaxRunning: rapid.SampledFrom([]uint32{0, 0, 1, 2, 5}).Draw(t, "max running"),
			Max:        rapid.SampledFrom([][]scheduler.Quantity{nil, nil, {{Name: "gpu", Amount: 3}}, {{Name: "cpu", Amount: 5}}}).Draw(t, "max"),
			Paused:     rapid.IntRange(0, 5).Draw(t, "paused") == 0,
		}
	})
}

func quantities(upTo int64) *rapid.Generator[[]scheduler.Quantity] {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) scheduler.Quantity {
		return scheduler.Quantity{Name: resourceNames.Draw(t, "name"), Amount: rapid.Int64Range(1, upTo).Draw(t, "amount")}
	}), 0, 3, func(q scheduler.Quantity) string { return q.Name })
}

func capacities() *rapid.Generator[scheduler.Capacity] {
	return rapid.Custom(func(t *rapid.T) scheduler.Capacity {
		return scheduler.Capacity{
			Slots:      rapid.IntRange(0, 4).Draw(t, "slots"),
			Resources:  quantities(8).Draw(t, "resources"),
			Labels:     rapid.SliceOfNDistinct(labels, 0, 3, rapid.ID[scheduler.Label]).Draw(t, "labels"),
			Namespaces: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "etl", "ml"}), 0, 2, rapid.ID[string]).Draw(t, "namespaces"),
			Types:      rapid.SliceOfNDistinct(types, 0, 3, rapid.ID[string]).Draw(t, "types"),
		}
	})
}

func demands() *rapid.Generator[scheduler.Demand] {
	return rapid.Custom(func(t *rapid.T) scheduler.Demand {
		return satisfiable(scheduler.Demand{
			Resources:  quantities(5).Draw(t, "resources"),
			Labels:     rapid.SliceOfNDistinct(labels, 0, 1, rapid.ID[scheduler.Label]).Draw(t, "labels"),
			Rules:      rapid.SliceOfNDistinct(rapid.SampledFrom(someRules), 0, 1, scheduler.LabelRule.String).Draw(t, "rules"),
			Prefer:     rapid.SliceOfNDistinct(rapid.SampledFrom(someRules), 0, 1, scheduler.LabelRule.String).Draw(t, "prefer"),
			Place:      rapid.SampledFrom([]scheduler.Strategy{scheduler.Spread, scheduler.Spread, scheduler.Pack, scheduler.Random}).Draw(t, "place"),
			Namespace:  rapid.SampledFrom([]string{"", "", "", "etl", "ml"}).Draw(t, "namespace"),
			Type:       rapid.SampledFrom([]string{"", "", "command", "noop"}).Draw(t, "type"),
			Queue:      rapid.SampledFrom(queueNames).Draw(t, "queue"),
			Owner:      rapid.SampledFrom([]string{"", "", "alice", "bob"}).Draw(t, "owner"),
			NoPrefetch: rapid.Bool().Draw(t, "prompt"),
			Limit:      rapid.Uint32Range(0, 3).Draw(t, "limit"),
			Group:      scheduler.TaskRef{Job: 1, Index: rapid.Uint32Range(0, 1).Draw(t, "group")},
			Uses:       rapid.SliceOfNDistinct(limitNames, 0, 2, rapid.ID[string]).Draw(t, "uses"),

			Alternatives: rapid.SliceOfN(quantities(5), 0, 2).Draw(t, "alternatives"),
		})
	})
}

// A pair is a Scheduler and its reference model, driven by the same calls.
type pair struct {
	s         *scheduler.Scheduler
	model     model
	pushed    uint32
	cancelled map[scheduler.TaskRef]bool
	assigned  map[scheduler.TaskRef]bool
}

func newPair(t *rapid.T) *pair {
	p := newPairOf(t, rapid.SliceOfN(demands(), 1, 5).Draw(t, "demands"))
	// In half of the runs, many idle workers with only a slot come before those
	// that the test uses.
	crowd := scheduler.WorkerID(rapid.SampledFrom([]int{0, 50}).Draw(t, "crowd"))
	for id := scheduler.WorkerID(100); id < 100+crowd; id++ {
		p.addNew(id, scheduler.Capacity{Slots: 1})
	}
	return p
}

// newPairOf returns a pair without workers whose classes are these.
func newPairOf(t *rapid.T, demands []scheduler.Demand) *pair {
	p := &pair{
		s: scheduler.New(rapid.Uint64().Draw(t, "seed")),
		model: model{
			workers: map[scheduler.WorkerID]*modelWorker{}, demands: []scheduler.Demand{{}}, first: []scheduler.ClassID{0},
			limits: map[string]int{}, tokens: map[string]int{}, queues: map[string]scheduler.Queue{}, turns: map[string]int{}, served: map[any]int{},
		},
		cancelled: map[scheduler.TaskRef]bool{},
		assigned:  map[scheduler.TaskRef]bool{},
	}
	p.s.SetWaits(rapid.IntRange(0, 16).Draw(t, "listed waits"), rapid.IntRange(0, 16).Draw(t, "open parts"))
	for _, d := range demands {
		c := p.s.Class(d)
		if int(c) == len(p.model.demands) {
			p.model.addClass(p.s, c, d)
		}
	}
	return p
}

// addNew adds a worker that is not known.
func (p *pair) addNew(id scheduler.WorkerID, c scheduler.Capacity) {
	p.s.AddWorker(id, c)
	p.model.workers[id] = &modelWorker{capacity: c, accepting: true}
}

// class returns a class, which may be an alternative.
func (p *pair) class(t *rapid.T) scheduler.ClassID {
	return scheduler.ClassID(rapid.IntRange(0, len(p.model.demands)-1).Draw(t, "class"))
}

// classOfTask returns the class of a task.
func (p *pair) classOfTask(t *rapid.T) scheduler.ClassID { return p.model.first[p.class(t)] }

func drawPriority(t *rapid.T) scheduler.Priority {
	return scheduler.Priority(rapid.IntRange(int(scheduler.Low), int(scheduler.Urgent)).Draw(t, "priority"))
}

func (p *pair) setQueue(t *rapid.T) {
	name := rapid.SampledFrom(queueNames).Draw(t, "queue")
	before := p.model.queues[name]
	if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
		p.s.RemoveQueue(name)
		delete(p.model.queues, name)
	} else {
		q := queues().Draw(t, "settings")
		p.s.SetQueue(name, q)
		p.model.queues[name] = q
	}
	now := p.model.queues[name]
	if now.MaxRunning != before.MaxRunning || now.Paused != before.Paused || !slices.Equal(now.Max, before.Max) {
		p.model.release(func(k scheduler.Kept) bool { return k.Queue == name })
	}
	p.model.saved = slices.DeleteFunc(p.model.saved, func(k scheduler.Saved) bool {
		return k.Queue == name && (now.Paused || now.MaxRunning == 0 && len(now.Max) == 0 || !p.model.mayAllow(now, k.Class))
	})
}

func (p *pair) valid(ref scheduler.TaskRef) bool { return !p.cancelled[ref] }

func (p *pair) addWorker(t *rapid.T) {
	id, c := workerIDs.Draw(t, "worker"), capacities().Draw(t, "capacity")
	p.s.AddWorker(id, c)
	if w := p.model.workers[id]; w != nil {
		w.capacity = c
		return
	}
	p.model.workers[id] = &modelWorker{capacity: c, accepting: true}
}

func (p *pair) setNamedLimit(t *rapid.T) {
	name, running := limitNames.Draw(t, "limit name"), rapid.Uint32Range(0, 3).Draw(t, "running")
	if slices.Contains(p.s.NamedLimits(), name) {
		p.model.limits[name] = int(running)
	}
	p.s.SetNamedLimit(name, running)
}

// setTokens gives a limit a rate, more tokens, or no rate.
func (p *pair) setTokens(t *rapid.T) {
	name, tokens := limitNames.Draw(t, "limit name"), rapid.Uint32Range(0, 3).Draw(t, "tokens")
	known := slices.Contains(p.s.NamedLimits(), name)
	if rapid.Bool().Draw(t, "rated") {
		if p.s.SetTokens(name, tokens); known {
			p.model.tokens[name] = int(tokens)
		}
		return
	}
	p.s.RemoveRate(name)
	delete(p.model.tokens, name)
}

func (p *pair) removeWorker(t *rapid.T) {
	id := workerIDs.Draw(t, "worker")
	p.s.RemoveWorker(id)
	delete(p.model.workers, id)
}

func (p *pair) setAccepting(t *rapid.T) {
	id, on := workerIDs.Draw(t, "worker"), rapid.Bool().Draw(t, "accepting")
	p.s.SetAccepting(id, on)
	if w := p.model.workers[id]; w != nil {
		w.accepting = on
	}
}

func (p *pair) setPrefetch(t *rapid.T) {
	id, n := workerIDs.Draw(t, "worker"), rapid.IntRange(0, 3).Draw(t, "prefetch")
	p.s.SetPrefetch(id, n)
	if w := p.model.workers[id]; w != nil {
		w.ahead = n
	}
}

func (p *pair) occupy(t *rapid.T) {
	id, c := workerIDs.Draw(t, "worker"), p.class(t)
	priority := drawPriority(t)
	p.s.Occupy(id, c, priority)
	if w := p.model.workers[id]; w != nil {
		w.held = append(w.held, modelHeld{c, priority})
	}
}

func (p *pair) release(t *rapid.T) {
	id, c, priority := workerIDs.Draw(t, "worker"), p.class(t), drawPriority(t)
	// Mostly an attempt that the worker holds.
	if w := p.model.workers[id]; w != nil && len(w.held) > 0 && rapid.IntRange(0, 9).Draw(t, "unknown") > 0 {
		held := w.held[rapid.IntRange(0, len(w.held)-1).Draw(t, "attempt")]
		c, priority = held.class, held.priority
	} else if w != nil && slices.ContainsFunc(w.held, func(h modelHeld) bool { return h.class == c }) {
		return // the scheduler counts classes and priorities separately
	}
	want := false
	if w := p.model.workers[id]; w != nil {
		if i := slices.Index(w.held, modelHeld{c, priority}); i >= 0 {
			want, w.held = true, slices.Delete(w.held, i, i+1)
		}
	}
	if got := p.s.Release(id, c, priority); got != want {
		t.Fatalf("releasing class %d on worker %d: got %v, want %v", c, id, got, want)
	}
}

func (p *pair) push(t *rapid.T) {
	p.pushed++
	task := modelTask{
		ref:      scheduler.TaskRef{Job: uint64(p.pushed % 3), Index: p.pushed},
		class:    p.classOfTask(t),
		priority: drawPriority(t),
		avoid:    scheduler.WorkerID(rapid.IntRange(0, 8).Draw(t, "avoid")),
	}
	p.s.Push(task.ref, task.class, task.priority, task.avoid)
	p.model.push(task, 1)
}

// pushRun pushes consecutive tasks, as one run or separately.
func (p *pair) pushRun(t *rapid.T) {
	run := modelTask{
		ref:      scheduler.TaskRef{Job: uint64(p.pushed % 2), Index: p.pushed + 1},
		class:    p.classOfTask(t),
		priority: drawPriority(t),
	}
	n, whole := rapid.Uint32Range(0, 6).Draw(t, "n"), rapid.Bool().Draw(t, "whole")
	p.pushed += n
	if whole {
		p.s.PushRun(run.ref, n, run.class, run.priority)
		p.model.push(run, n)
		return
	}
	for range n {
		p.s.Push(run.ref, run.class, run.priority, 0)
		p.model.push(run, 1)
		run.ref.Index++
	}
}

func (p *pair) cancel(t *rapid.T) {
	if len(p.model.ready) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.model.ready)-1).Draw(t, "task")
	ref := p.model.ready[i].ref
	p.cancelled[ref] = true
	p.model.remove(ref)
}

// supersede moves a task to another priority, or removes it.
func (p *pair) supersede(t *rapid.T) {
	if len(p.model.ready) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.model.ready)-1).Draw(t, "task")
	task := p.model.ready[i]
	task.class = p.model.first[task.class]
	p.model.remove(task.ref)
	p.s.Supersede(task.ref)
	if rapid.Bool().Draw(t, "again") {
		task.priority = drawPriority(t)
		p.s.Push(task.ref, task.class, task.priority, task.avoid)
		p.model.push(task, 1)
	}
}

// supersedeJob moves the tasks of a job to another class and priority, as a change of its queue
// does, or removes them. Some keep their place.
func (p *pair) supersedeJob(t *rapid.T) {
	job := uint64(rapid.IntRange(0, 2).Draw(t, "job"))
	every := rapid.Uint32Range(0, 3).Draw(t, "except every")
	var tasks []modelTask
	var except []uint32
	for _, task := range p.model.ready {
		switch {
		case task.ref.Job != job || task.class != p.model.first[task.class]:
		case every > 0 && task.ref.Index%every == 0:
			except = append(except, task.ref.Index)
		default:
			tasks = append(tasks, task)
		}
	}
	p.s.SupersedeJob(job, except)
	for _, task := range tasks {
		p.model.remove(task.ref)
	}
	class, priority, again := p.classOfTask(t), drawPriority(t), rapid.IntRange(0, 3).Draw(t, "again") > 0
	for _, task := range tasks {
		if task.class, task.priority = class, priority; again {
			p.s.Push(task.ref, task.class, task.priority, task.avoid)
			p.model.push(task, 1)
		}
	}
}

// sweepSuperseded changes no decision.
func (p *pair) sweepSuperseded(t *rapid.T) {
	if before, dropped := p.s.Len(), p.s.SweepSuperseded(); p.s.Len() != before-dropped {
		t.Fatalf("%d entries after dropping %d of %d", p.s.Len(), dropped, before)
	}
}

func (p *pair) sweep(t *rapid.T) {
	before, tasks := p.s.Len(), map[scheduler.TaskRef]bool{}
	for _, task := range p.model.ready {
		tasks[task.ref] = true
	}
	dropped := p.s.Sweep(p.valid)
	if p.s.Len() != before-dropped || p.s.Len() != len(tasks) {
		t.Fatalf("%d entries after dropping %d of %d, want %d", p.s.Len(), dropped, before, len(tasks))
	}
}

// next compares one decision, and reports whether there was one.
func (p *pair) next(t *rapid.T) bool {
	p.model.settle()
	got, ok := p.s.Next(p.valid)
	for id, w := range p.model.workers {
		was := w.reserved
		if w.reserved = p.s.Reserved(id); was != w.reserved && (was || !p.model.mayBeReserved(w)) { // by a task before the assigned one
			t.Fatalf("worker %d became reserved: %v", id, w.reserved)
		}
	}
	at, workers := p.model.next()
	if ok != (at >= 0) {
		t.Fatalf("got %+v, %v; the model wants task %d on workers %v", got, ok, at, workers)
	}
	if !ok {
		return false
	}
	want := p.model.ready[at]
	if got.Task != want.ref || got.Class != want.class || got.Priority != want.priority || p.s.Alternative(p.model.first[got.Class], p.s.AlternativeOf(got.Class)) != got.Class {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	if !slices.Contains(workers, got.Worker) {
		t.Fatalf("task %+v: got worker %d, want one of %v", want, got.Worker, workers)
	}
	if p.assigned[got.Task] {
		t.Fatalf("task %+v is assigned a second time", got.Task)
	}
	p.assigned[got.Task] = true
	p.saveAtTurn(t, want)
	rest := p.keepAtTurn(t, want)
	p.take(t, got.Class)
	w := p.model.workers[got.Worker]
	w.held = append(w.held, modelHeld{got.Class, got.Priority})
	if p.model.overfull(w, got.Class, got.Priority) {
		t.Fatalf("worker %d holds %v with capacity %+v", got.Worker, w.held, w.capacity)
	}
	p.model.release(func(k scheduler.Kept) bool { return p.model.isKeptFor(k, got.Task) })
	p.model.saved = slices.DeleteFunc(p.model.saved, func(k scheduler.Saved) bool { return p.model.hasSeq(got.Task, k.Seq) })
	p.model.remove(got.Task)
	if _, err := p.model.keep(rest); err != nil {
		t.Fatalf("after the start of %+v, a worker is kept: %v", want, err)
	}
	return true
}

// keepAtTurn compares the workers that are kept from the start of a task on, before it takes
// its slot: at a turn by age. It returns those that may be kept after that.
func (p *pair) keepAtTurn(t *rapid.T, started modelTask) []scheduler.Kept {
	m := &p.model
	now := p.s.Kept()
	var list []scheduler.Kept // new ones
	for _, k := range now {
		if !slices.ContainsFunc(m.kept, func(o scheduler.Kept) bool { return o.Queue == k.Queue && o.Seq == k.Seq }) {
			list = append(list, k)
		}
	}
	if !m.aged {
		return list
	}
	queue := m.demands[started.class].Queue
	oldest, waits := m.oldestWaiting(queue)
	// Else, others may come first. The task that starts may itself wait as another alternative.
	must := waits && oldest.seq < started.seq && oldest.ref != started.ref && len(m.kept) == 0
	rest, _ := m.keep(list)
	if must && len(m.keepable(oldest.class)) > 0 && !slices.ContainsFunc(now, func(k scheduler.Kept) bool { return k.Queue == queue && k.Seq == oldest.seq }) {
		t.Fatalf("no worker is kept for %+v at a turn by age, of %v: %+v", oldest, m.keepable(oldest.class), now)
	}
	return rest
}

// take takes the tokens of a start, and compares what is left.
func (p *pair) take(t *rapid.T, c scheduler.ClassID) {
	spent := map[string]int{}
	p.s.Spent(func(name string, taken, left uint32) {
		spent[name] = int(taken)
		if p.model.tokens[name] -= int(taken); p.model.tokens[name] != int(left) {
			t.Fatalf("limit %s has %d tokens, want %d", name, left, p.model.tokens[name])
		}
	})
	for _, name := range p.model.demands[c].Uses {
		if _, rated := p.model.tokens[name]; rated && spent[name] != 1 {
			t.Fatalf("%d tokens of limit %s were taken, want 1", spent[name], name)
		}
	}
}

func (p *pair) check(t *rapid.T) {
	if err := p.s.Check(); err != nil {
		t.Fatal(err)
	}
	p.model.settle()
	if got := p.s.Kept(); !slices.Equal(got, p.model.kept) {
		t.Fatalf("workers are kept: %+v, want %+v", got, p.model.kept)
	}
	if got := p.s.Saved(); !slices.Equal(got, p.model.saved) {
		t.Fatalf("quotas are saved for %+v, want %+v", got, p.model.saved)
	}
	for id, w := range p.model.workers {
		if got := p.s.Reserved(id); got != w.reserved {
			t.Fatalf("worker %d is reserved: %v, want %v", id, got, w.reserved)
		}
	}
	for c := range p.model.demands {
		fits := p.s.View(scheduler.TaskRef{}, scheduler.ClassID(c), scheduler.Normal, 0, nil).Workers()
		if len(fits) != len(p.model.workers) {
			t.Fatalf("class %d: %d workers explained, want %d", c, len(fits), len(p.model.workers))
		}
		for _, v := range fits {
			if want := p.model.fits(p.model.workers[v.Worker], scheduler.ClassID(c), scheduler.Normal); v.Fits() != want {
				t.Fatalf("class %d on worker %d: explained as %v, want fits %v", c, v.Worker, v.Obstacles, want)
			}
		}
	}
}

// Safety: the model allows every decision, in any state.
func TestEveryDecisionMatchesTheReferenceModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t)
		t.Repeat(map[string]func(*rapid.T){
			"add worker":    p.addWorker,
			"remove worker": p.removeWorker,
			"set accepting": p.setAccepting,
			"set a limit":   p.setNamedLimit,
			"set tokens":    p.setTokens,
			"set prefetch":  p.setPrefetch,
			"occupy":        p.occupy,
			"release":       p.release,
			"push":          p.push,
			"push again":    p.push,
			"push a run":    p.pushRun,
			"cancel":        p.cancel,
			"supersede":     p.supersede,
			"supersede job": p.supersedeJob,
			"sweep jobs":    p.sweepSuperseded,
			"sweep":         p.sweep,
			"set queue":     p.setQueue,
			"next":          func(t *rapid.T) { p.next(t) },
			"next again":    func(t *rapid.T) { p.next(t) },
			"":              p.check,
		})
	})
}

// Liveness: if a worker that fits everything is added and attempts end, every
// valid task is assigned exactly once.
func TestEveryValidTaskIsAssigned(t *testing.T) {
	t.Parallel()
	everything := scheduler.Capacity{
		Slots:     2,
		Resources: []scheduler.Quantity{{Name: "cpu", Amount: 8}, {Name: "gpu", Amount: 8}, {Name: "memory", Amount: 8}},
	}
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t)
		t.Repeat(map[string]func(*rapid.T){
			"add worker": p.addWorker,
			"push":       p.push,
			"cancel":     p.cancel,
			"next":       func(t *rapid.T) { p.next(t) },
		})
		for i, labels := range labelSets {
			id, c := scheduler.WorkerID(9+i), everything //nolint:gosec // small
			c.Labels = labels
			p.s.AddWorker(id, c)
			p.model.workers[id] = &modelWorker{capacity: c, accepting: true}
		}
		for again := true; again; again = len(p.model.ready) > 0 {
			for p.next(t) {
				p.check(t)
			}
			for id, w := range p.model.workers { // all attempts end
				for len(w.held) > 0 {
					p.s.Release(id, w.held[0].class, w.held[0].priority)
					w.held = w.held[1:]
				}
			}
		}
		if _, ok := p.s.Next(p.valid); ok || p.s.Len() != 0 {
			t.Fatalf("%d entries are left, Next assigned one: %v", p.s.Len(), ok)
		}
		if got, want := len(p.assigned)+len(p.cancelled), int(p.pushed); got != want {
			t.Fatalf("%d tasks were assigned or cancelled, %d were pushed", got, want)
		}
	})
}
