package scheduler_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler"
)

// A preemptTest is a Scheduler with preemptible attempts, and a slow and obvious account of who
// holds what. What is kept and saved is read from the Scheduler: other models know that.
type preemptTest struct {
	s     *scheduler.Scheduler
	model model
	now   int64
	old   uint64 // what was pushed until this seq has waited for a second

	pushed    uint32
	urgent    int // tasks that were pushed as urgent
	found     int // preemptions
	disturbed int // of them, those whose task may not start because something else has changed
	cancelled map[scheduler.TaskRef]bool
	attempts  []*preemptAttempt
	pending   []*pendingStart
}

type preemptAttempt struct {
	task     scheduler.TaskRef
	worker   scheduler.WorkerID
	class    scheduler.ClassID
	priority scheduler.Priority
	yields   bool // it may end for an urgent task
	ending   bool // it ends for one
}

// A pendingStart is a task for which attempts end.
type pendingStart struct {
	task   modelTask
	worker scheduler.WorkerID
	ends   []*preemptAttempt
	lost   bool // it may not start there
}

var preemptQueues = []string{"etl", "ml"}

func preemptDemands() *rapid.Generator[scheduler.Demand] {
	return rapid.Custom(func(t *rapid.T) scheduler.Demand {
		d := scheduler.Demand{
			Queue:       rapid.SampledFrom([]string{"ml", "ml", "etl"}).Draw(t, "queue"),
			Resources:   preemptCPU(rapid.Int64Range(0, 3).Draw(t, "cpu")),
			Preemptible: rapid.IntRange(0, 3).Draw(t, "preemptible") > 0,
			Owner:       rapid.SampledFrom([]string{"", "", "alice"}).Draw(t, "owner"),
			NoPrefetch:  rapid.Bool().Draw(t, "prompt"),
		}
		switch rapid.IntRange(0, 9).Draw(t, "more") {
		case 0, 1:
			d.Affinity = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
		case 2:
			d.Limit, d.Group = rapid.Uint32Range(1, 2).Draw(t, "limit"), scheduler.TaskRef{Job: 1}
		case 3:
			d.Queue, d.Uses = "ml", []string{"db"}
		case 4:
			d.Resources = append(d.Resources, scheduler.Quantity{Name: "gpu", Amount: rapid.Int64Range(1, 2).Draw(t, "gpu")})
		}
		return d
	})
}

// preemptCPU returns n CPUs, or nothing.
func preemptCPU(n int64) []scheduler.Quantity {
	if n == 0 {
		return nil
	}
	return cpus(n)
}

func preemptCapacity(t *rapid.T) scheduler.Capacity {
	return scheduler.Capacity{
		Slots:     rapid.IntRange(1, 3).Draw(t, "slots"),
		Resources: append(preemptCPU(rapid.Int64Range(0, 4).Draw(t, "cpu")), scheduler.Quantity{Name: "gpu", Amount: rapid.Int64Range(0, 3).Draw(t, "gpu")}),
	}
}

func newPreemptTest(t *rapid.T) *preemptTest {
	p := newPairOf(t, rapid.SliceOfN(preemptDemands(), 2, 6).Draw(t, "demands"))
	x := &preemptTest{s: p.s, model: p.model, cancelled: map[scheduler.TaskRef]bool{}}
	for id := range scheduler.WorkerID(rapid.IntRange(1, 3).Draw(t, "workers")) { //nolint:gosec // small
		c := preemptCapacity(t)
		x.s.AddWorker(id+1, c)
		x.model.workers[id+1] = &modelWorker{capacity: c, accepting: true}
	}
	x.s.Advance(0)
	return x
}

func (x *preemptTest) valid(ref scheduler.TaskRef) bool { return !x.cancelled[ref] }

// count brings what the model knows of attempts up to date, without those that are left out.
func (x *preemptTest) count(without []*preemptAttempt) {
	for _, w := range x.model.workers {
		w.held = nil
	}
	for _, a := range x.attempts {
		if w := x.model.workers[a.worker]; w != nil && !slices.Contains(without, a) {
			w.held = append(w.held, modelHeld{a.class, a.priority})
		}
	}
}

// check compares what the Scheduler maintains, and adopts what is kept, saved and reserved.
func (x *preemptTest) check(t *rapid.T) {
	if err := x.s.Check(); err != nil {
		t.Fatal(err)
	}
	x.model.kept, x.model.saved = x.s.Kept(), x.s.Saved()
	for id, w := range x.model.workers {
		w.reserved = x.s.Reserved(id)
	}
	x.count(nil)
	for _, p := range x.pending { // another task may take what a limit allows
		if x.model.limitFull(p.task.class) {
			p.lost = true
		}
	}
}

func (x *preemptTest) push(t *rapid.T) {
	c := scheduler.ClassID(rapid.IntRange(1, len(x.model.demands)-1).Draw(t, "class")) //nolint:gosec // small
	x.pushOf(c, rapid.SampledFrom([]scheduler.Priority{scheduler.Low, scheduler.Low, scheduler.Normal, scheduler.High, scheduler.Urgent}).Draw(t, "priority"))
}

func (x *preemptTest) pushOf(c scheduler.ClassID, p scheduler.Priority) {
	x.pushed++
	x.pushTask(modelTask{ref: scheduler.TaskRef{Index: x.pushed}, class: c, priority: p})
}

func (x *preemptTest) pushTask(task modelTask) {
	if task.priority == scheduler.Urgent {
		x.urgent++
	}
	x.s.Push(task.ref, task.class, task.priority, 0)
	x.model.push(task, 1)
}

// next starts the next task, and reports whether there was one.
func (x *preemptTest) next(t *rapid.T) bool {
	a, ok := x.s.Next(x.valid)
	if !ok {
		return false
	}
	i := slices.IndexFunc(x.model.ready, func(m modelTask) bool { return m.ref == a.Task })
	if i < 0 {
		t.Fatalf("%+v starts, and does not wait", a)
	}
	for _, p := range x.pending {
		switch {
		case p.task.ref == a.Task:
			if p.lost || a.Worker != p.worker {
				x.disturbed++
			}
			p.lost = true // it waits no longer
		case p.worker == a.Worker && !p.lost:
			t.Fatalf("%+v starts where attempts end for %+v", a, p.task)
		}
	}
	x.pending = slices.DeleteFunc(x.pending, func(p *pendingStart) bool { return p.task.ref == a.Task })
	x.model.remove(a.Task)
	at := &preemptAttempt{task: a.Task, worker: a.Worker, class: a.Class, priority: a.Priority}
	at.yields = a.Priority < scheduler.Urgent && x.s.IsPreemptible(a.Class) && rapid.IntRange(0, 9).Draw(t, "keeps its place") > 0
	if at.yields {
		x.s.Yields(a.Worker, a.Class, a.Priority, 1)
	}
	x.attempts = append(x.attempts, at)
	return true
}

func (x *preemptTest) fill(t *rapid.T) {
	for x.next(t) {
		x.check(t)
	}
	x.check(t)
}

func (x *preemptTest) wait(*rapid.T) {
	x.s.Advance(x.now + 100)
	x.now += 1100
	x.s.Advance(x.now)
	x.old = x.model.seq
}

// end ends an attempt. again: its task is ready again.
func (x *preemptTest) end(a *preemptAttempt, again bool) {
	x.keepsPlace(a)
	x.s.Release(a.worker, a.class, a.priority)
	x.attempts = slices.DeleteFunc(x.attempts, func(o *preemptAttempt) bool { return o == a })
	if again {
		x.pushTask(modelTask{ref: a.task, class: a.class, priority: a.priority})
	}
	x.count(nil)
}

func (x *preemptTest) keepsPlace(a *preemptAttempt) {
	if a.yields {
		a.yields = false
		x.s.Yields(a.worker, a.class, a.priority, -1)
	}
}

func (x *preemptTest) release(t *rapid.T) {
	if len(x.attempts) > 0 {
		a := x.attempts[rapid.IntRange(0, len(x.attempts)-1).Draw(t, "attempt")]
		x.end(a, a.ending)
	}
}

// flow pushes a task for each attempt that ends: at the turn by age of its queue, a worker may be kept
// for a larger task.
func (x *preemptTest) flow(t *rapid.T) {
	c := scheduler.ClassID(rapid.IntRange(1, len(x.model.demands)-1).Draw(t, "class")) //nolint:gosec // small
	for range rapid.IntRange(1, 24).Draw(t, "ends") {
		x.pushOf(c, scheduler.Low)
		x.release(t)
		x.fill(t)
	}
}

// crowd fills the workers, and preempts what runs there for urgent tasks.
func (x *preemptTest) crowd(t *rapid.T) {
	classes := rapid.SliceOfN(rapid.IntRange(1, len(x.model.demands)-1), 1, 9).Draw(t, "crowd")
	most := rapid.SampledFrom([]scheduler.Priority{scheduler.Low, scheduler.Low, scheduler.High}).Draw(t, "at most")
	for i, c := range classes {
		x.pushOf(scheduler.ClassID(c), min(scheduler.Low+scheduler.Priority(i%3), most)) //nolint:gosec // small
	}
	x.fill(t)
	for range rapid.IntRange(1, 3).Draw(t, "urgent") {
		x.pushOf(scheduler.ClassID(rapid.IntRange(1, len(x.model.demands)-1).Draw(t, "class")), scheduler.Urgent) //nolint:gosec // small
	}
	x.wait(t)
	x.preemptAll(t)
}

func (x *preemptTest) cancel(t *rapid.T) {
	if len(x.model.ready) == 0 {
		return
	}
	ref := x.model.ready[rapid.IntRange(0, len(x.model.ready)-1).Draw(t, "task")].ref
	x.cancelled[ref] = true
	x.model.remove(ref)
	x.lose(func(p *pendingStart) bool { return p.task.ref == ref })
}

// lose notes that something has changed for tasks that are to start.
func (x *preemptTest) lose(which func(*pendingStart) bool) {
	for _, p := range x.pending {
		p.lost = p.lost || which(p)
	}
}

func (x *preemptTest) worker(t *rapid.T) scheduler.WorkerID {
	return scheduler.WorkerID(rapid.IntRange(1, 3).Draw(t, "worker")) //nolint:gosec // small
}

func (x *preemptTest) addWorker(t *rapid.T) {
	id, c := x.worker(t), preemptCapacity(t)
	x.s.AddWorker(id, c)
	if w := x.model.workers[id]; w != nil {
		w.capacity = c
	} else {
		x.model.workers[id] = &modelWorker{capacity: c, accepting: true}
	}
	x.fleetChanged(id)
}

// fleetChanged notes that keys may have moved, too.
func (x *preemptTest) fleetChanged(id scheduler.WorkerID) {
	x.lose(func(p *pendingStart) bool { return p.worker == id || x.model.demands[p.task.class].Affinity != "" })
}

func (x *preemptTest) removeWorker(t *rapid.T) {
	id := x.worker(t)
	x.s.RemoveWorker(id)
	delete(x.model.workers, id)
	x.fleetChanged(id)
	for _, a := range slices.Clone(x.attempts) {
		if a.worker == id {
			x.attempts = slices.DeleteFunc(x.attempts, func(o *preemptAttempt) bool { return o == a })
			x.pushTask(modelTask{ref: a.task, class: a.class, priority: a.priority})
		}
	}
}

func (x *preemptTest) setAccepting(t *rapid.T) {
	id, on := x.worker(t), rapid.IntRange(0, 3).Draw(t, "accepting") > 0
	x.s.SetAccepting(id, on)
	if w := x.model.workers[id]; w != nil {
		w.accepting = on
	}
	x.fleetChanged(id)
}

func (x *preemptTest) setPrefetch(t *rapid.T) {
	id, n := x.worker(t), rapid.IntRange(0, 2).Draw(t, "prefetch")
	x.s.SetPrefetch(id, n)
	if w := x.model.workers[id]; w != nil {
		w.ahead = n
	}
	x.fleetChanged(id)
}

func (x *preemptTest) setQueue(t *rapid.T) {
	name := rapid.SampledFrom(preemptQueues).Draw(t, "queue")
	to := scheduler.Queue{
		MaxRunning: rapid.SampledFrom([]uint32{0, 0, 1, 2, 3}).Draw(t, "max running"),
		Max:        rapid.SampledFrom([][]scheduler.Quantity{nil, nil, cpus(2), cpus(4)}).Draw(t, "max"),
		Paused:     rapid.IntRange(0, 9).Draw(t, "paused") == 0,
	}
	x.s.SetQueue(name, to)
	x.model.queues[name] = to
	x.lose(func(p *pendingStart) bool { return x.model.demands[p.task.class].Queue == name })
}

func (x *preemptTest) setLimit(t *rapid.T) {
	n := rapid.Uint32Range(0, 3).Draw(t, "running")
	if x.s.SetNamedLimit("db", n); slices.Contains(x.s.NamedLimits(), "db") {
		x.model.limits["db"] = int(n)
	}
}

// isEnding reports whether attempts end on a worker for an urgent task.
func (x *preemptTest) isEnding(id scheduler.WorkerID) bool {
	return slices.ContainsFunc(x.attempts, func(a *preemptAttempt) bool { return a.worker == id && a.ending })
}

// offers returns the attempts on a worker that may end for a task of a queue, of these priorities.
func (x *preemptTest) offers(id scheduler.WorkerID, queue string, most scheduler.Priority) (list []*preemptAttempt) {
	for _, a := range x.attempts {
		if a.worker == id && a.yields && x.model.demands[a.class].Queue == queue && a.priority <= most {
			list = append(list, a)
		}
	}
	return list
}

// startsWithout reports whether a task could start on a worker if that is kept for it and some attempts
// have ended.
func (x *preemptTest) startsWithout(t modelTask, id scheduler.WorkerID, ends []*preemptAttempt) bool {
	x.count(ends)
	defer x.count(nil)
	w := x.model.workers[id]
	return len(w.held) < w.capacity.Slots && x.model.fitsWithSlot(w, t.class) && x.model.mayStart(t.class, t.priority)
}

// lacking returns how many things a task lacks on a worker, or of its quotas.
func (x *preemptTest) lacking(t modelTask, id scheduler.WorkerID) (n int) {
	w, d := x.model.workers[id], x.model.demands[t.class]
	q, running := x.model.queues[d.Queue], 0
	for _, a := range x.attempts {
		if x.model.demands[a.class].Queue == d.Queue {
			running++
		}
	}
	if len(w.held) >= w.capacity.Slots || q.MaxRunning > 0 && running >= int(q.MaxRunning) {
		n++
	}
	for _, r := range d.Resources {
		there, inQueue := r.Amount, r.Amount
		for _, a := range x.attempts {
			if a.worker == id {
				there += amount(x.model.demands[a.class].Resources, r.Name)
			}
			if x.model.demands[a.class].Queue == d.Queue {
				inQueue += amount(x.model.demands[a.class].Resources, r.Name)
			}
		}
		if most := amount(q.Max, r.Name); there > amount(w.capacity.Resources, r.Name) || most > 0 && inQueue > most {
			n++
		}
	}
	return n
}

// mayPreempt reports whether a task may take the place of others: nothing but capacity and quotas
// holds it back, and its queue waits for no earlier one.
func (x *preemptTest) mayPreempt(t modelTask) bool {
	m, queue := &x.model, x.model.demands[t.class].Queue
	q := m.queues[queue]
	if t.priority != scheduler.Urgent || t.seq > x.old || q.Paused || m.limitFull(t.class) || len(m.demands[t.class].Uses) > 0 || !m.mayAllow(q, t.class) {
		return false
	}
	if slices.ContainsFunc(m.saved, func(k scheduler.Saved) bool {
		return k.Queue == queue && (k.Class != t.class || k.Priority != t.priority)
	}) && !m.mayStart(t.class, t.priority) {
		return false
	}
	if slices.ContainsFunc(m.kept, func(k scheduler.Kept) bool { return k.Queue == queue && k.Preempts }) {
		return false
	}
	return !m.mayStart(t.class, t.priority) || !slices.ContainsFunc(x.ids(), func(id scheduler.WorkerID) bool { return m.hasRoom(m.workers[id], t.class) })
}

func (x *preemptTest) ids() (ids []scheduler.WorkerID) {
	for id := range scheduler.WorkerID(4) {
		if x.model.workers[id] != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// places returns the workers where attempts may end for a task: those that are kept for no other
// task, where nothing is prefetched.
func (x *preemptTest) places(t modelTask) (ids []scheduler.WorkerID) {
	var homes []scheduler.WorkerID
	for _, id := range x.ids() {
		if x.model.couldRun(x.model.workers[id], t.class) {
			homes = append(homes, id)
		}
	}
	key := x.model.demands[t.class].Affinity
	for _, id := range homes {
		w := x.model.workers[id]
		free := !slices.ContainsFunc(x.model.kept, func(k scheduler.Kept) bool { return k.Worker == id && k.Seq != t.seq })
		if free && len(w.held) <= w.capacity.Slots && (key == "" || id == scheduler.ChooseKeyWorker("", key, homes)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// lowest returns the lowest priority of which all attempts of a task's queue, with all lower ones,
// are enough on a worker.
func (x *preemptTest) lowest(t modelTask, id scheduler.WorkerID) (scheduler.Priority, bool) {
	for p := scheduler.Low; p < scheduler.Urgent; p++ {
		if list := x.offers(id, x.model.demands[t.class].Queue, p); len(list) > 0 && x.startsWithout(t, id, list) {
			return p, true
		}
	}
	return 0, false
}

// fewest returns how many of some attempts must end at least.
func (x *preemptTest) fewest(t modelTask, id scheduler.WorkerID, list []*preemptAttempt) int {
	best := math.MaxInt
	for set := range 1 << len(list) {
		var ends []*preemptAttempt
		for i, a := range list {
			if set>>i&1 > 0 {
				ends = append(ends, a)
			}
		}
		if len(ends) < best && x.startsWithout(t, id, ends) {
			best = len(ends)
		}
	}
	return best
}

// preempt compares one Preempt, and reports whether it has found anything.
func (x *preemptTest) preempt(t *rapid.T) *pendingStart {
	x.s.UnkeepPreempted(x.isEnding) // then tasks may start where a worker was kept
	x.fill(t)
	got, ok := x.s.PreemptOne(x.valid, x.isEnding)
	for _, task := range x.model.ready { // as pushed: the oldest first
		if ok && task.ref == got.Task || !x.mayPreempt(task) {
			continue
		}
		if at := slices.IndexFunc(x.model.ready, func(m modelTask) bool { return m.ref == got.Task }); ok && at >= 0 && x.model.ready[at].seq < task.seq {
			continue
		}
		for _, id := range x.places(task) {
			if _, enough := x.lowest(task, id); enough {
				t.Fatalf("got %+v, %v, although ends on worker %d are enough for %+v; kept %+v, saved %+v", got, ok, id, task, x.model.kept, x.model.saved)
			}
		}
	}
	if !ok {
		return nil
	}
	x.found++
	at := slices.IndexFunc(x.model.ready, func(m modelTask) bool { return m.ref == got.Task })
	if at < 0 {
		t.Fatalf("%+v: no such task waits", got)
	}
	task := x.model.ready[at]
	queue := x.model.demands[task.class].Queue
	if !x.mayPreempt(task) || !slices.Contains(x.places(task), got.Worker) {
		t.Fatalf("%+v for %+v, which must not take a place there, one of %v: %v", got, task, x.places(task), x.mayPreempt(task))
	}
	p := &pendingStart{task: task, worker: got.Worker}
	most := scheduler.Priority(0)
	for _, y := range got.Yields {
		most = max(most, y.Priority)
		for range y.N {
			list := x.offers(got.Worker, queue, scheduler.High)
			i := slices.IndexFunc(list, func(a *preemptAttempt) bool {
				return a.class == y.Class && a.priority == y.Priority && !slices.Contains(p.ends, a)
			})
			if i < 0 {
				t.Fatalf("%+v: worker %d has no such attempt of queue %q to end", y, got.Worker, queue)
			}
			p.ends = append(p.ends, list[i])
		}
	}
	if !x.startsWithout(task, got.Worker, p.ends) {
		t.Fatalf("%+v is not enough for %+v", got, task)
	}
	for i := range p.ends {
		if x.startsWithout(task, got.Worker, slices.Concat(p.ends[:i], p.ends[i+1:])) {
			t.Fatalf("%+v is more than %+v needs", got, task)
		}
	}
	for _, id := range x.places(task) {
		if lowest, enough := x.lowest(task, id); enough && lowest < most {
			t.Fatalf("%+v, although ends of %v are enough on worker %d", got, lowest, id)
		}
		// With more, the greedy choice is not the best one always.
		if list := x.offers(id, queue, most); x.lacking(task, id) == 1 && x.fewest(task, id, list) < len(p.ends) {
			t.Fatalf("%+v, although %d ends are enough on worker %d", got, x.fewest(task, id, list), id)
		}
	}
	for _, a := range p.ends {
		a.ending = true
		x.keepsPlace(a)
	}
	x.pending = append(x.pending, p)
	x.check(t)
	return p
}

// preemptAll calls Preempt as often as it finds anything, and ends some at once.
func (x *preemptTest) preemptAll(t *rapid.T) {
	x.fill(t)
	for p := x.preempt(t); p != nil; p = x.preempt(t) {
		if rapid.Bool().Draw(t, "at once") {
			x.finish(t, p, false)
		}
	}
}

// finish ends what ends for a task, which starts then. between: others may start before the last end.
func (x *preemptTest) finish(t *rapid.T, p *pendingStart, between bool) {
	for _, a := range p.ends {
		if between {
			x.fill(t)
		}
		if slices.Contains(x.attempts, a) {
			x.end(a, true)
		}
		x.check(t)
	}
	if x.fill(t); slices.Contains(x.pending, p) {
		if !p.lost {
			t.Fatalf("%+v does not start on worker %d, where attempts have ended for it; kept %+v, saved %+v", p.task, p.worker, x.s.Kept(), x.s.Saved())
		}
		x.disturbed++
		x.pending = slices.DeleteFunc(x.pending, func(o *pendingStart) bool { return o == p })
	}
}

func (x *preemptTest) finishSome(t *rapid.T) {
	if len(x.pending) > 0 {
		x.finish(t, x.pending[rapid.IntRange(0, len(x.pending)-1).Draw(t, "pending")], rapid.Bool().Draw(t, "between"))
	}
}

func TestPreemptionsAreThoseOfTheReferenceModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := newPreemptTest(t)
		t.Repeat(map[string]func(*rapid.T){
			"push":          x.push,
			"push again":    x.push,
			"push more":     x.push,
			"start":         func(t *rapid.T) { x.next(t) },
			"fill":          x.fill,
			"wait":          x.wait,
			"release":       x.release,
			"flow":          x.flow,
			"crowd":         x.crowd,
			"crowd again":   x.crowd,
			"crowd, too":    x.crowd,
			"cancel":        x.cancel,
			"add worker":    x.addWorker,
			"remove worker": x.removeWorker,
			"accepting":     x.setAccepting,
			"prefetch":      x.setPrefetch,
			"set queue":     x.setQueue,
			"set limit":     x.setLimit,
			"preempt":       x.preemptAll,
			"preempt again": x.preemptAll,
			"finish":        x.finishSome,
			"":              x.check,
		})
		// From here on, nothing else changes: each preemption starts its task.
		for again := true; again; {
			x.wait(t)
			x.preemptAll(t)
			again = len(x.pending) > 0
			for len(x.pending) > 0 {
				x.finish(t, x.pending[0], rapid.Bool().Draw(t, "between"))
			}
			if x.found > x.urgent+x.disturbed {
				t.Fatalf("%d preemptions for %d urgent tasks, %d of which were disturbed", x.found, x.urgent, x.disturbed)
			}
		}
	})
}
