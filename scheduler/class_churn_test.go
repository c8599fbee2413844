package scheduler_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dtask/dtask/scheduler"
)

// A churn is jobs that come, move to other queues and end, as a sequencer tells the Scheduler.
type churn struct {
	s      *scheduler.Scheduler
	jobs   []*churnJob
	pushed uint32
}

type churnJob struct {
	number  uint64
	demand  scheduler.Demand
	class   scheduler.ClassID
	waiting []uint32 // indexes of its ready tasks
	held    []scheduler.Assignment
	ended   bool
}

func (x *churn) pick(t *rapid.T, which func(*churnJob) bool) *churnJob {
	list := slices.DeleteFunc(slices.Clone(x.jobs), func(j *churnJob) bool { return !which(j) })
	if len(list) == 0 {
		return nil
	}
	return rapid.SampledFrom(list).Draw(t, "job")
}

func isOpen(j *churnJob) bool { return !j.ended }

func (x *churn) submit(t *rapid.T) {
	j := &churnJob{number: uint64(len(x.jobs) + 1), demand: demands().Draw(t, "demand")}
	if j.demand.Limit > 0 {
		j.demand.Group = scheduler.TaskRef{Job: j.number}
	}
	j.class = x.s.Class(j.demand)
	x.jobs = append(x.jobs, j)
	x.push(t, j)
}

func (x *churn) push(t *rapid.T, j *churnJob) {
	p := drawPriority(t)
	for range rapid.IntRange(1, 3).Draw(t, "tasks") {
		x.pushed++
		j.waiting = append(j.waiting, x.pushed)
		x.s.Push(scheduler.TaskRef{Job: j.number, Index: x.pushed}, j.class, p, 0)
	}
}

func (x *churn) pushMore(t *rapid.T) {
	if j := x.pick(t, isOpen); j != nil {
		x.push(t, j)
	}
}

// end ends a job; what it holds is released later.
func (x *churn) end(t *rapid.T) {
	if j := x.pick(t, isOpen); j != nil {
		j.ended, j.waiting = true, nil
		x.s.Retire(j.class)
	}
}

// move moves a job to another queue.
func (x *churn) move(t *rapid.T) {
	j := x.pick(t, isOpen)
	if j == nil {
		return
	}
	j.demand.Queue = rapid.SampledFrom(queueNames).Draw(t, "queue")
	before := j.class
	j.class = x.s.Class(j.demand)
	for i := range j.held {
		a := &j.held[i]
		to := x.s.Alternative(j.class, x.s.AlternativeOf(a.Class))
		x.s.Occupy(a.Worker, to, a.Priority)
		x.s.Release(a.Worker, a.Class, a.Priority)
		a.Class = to
	}
	x.s.Retire(before)
	p := drawPriority(t)
	for _, i := range j.waiting {
		ref := scheduler.TaskRef{Job: j.number, Index: i}
		x.s.Supersede(ref)
		x.s.Push(ref, j.class, p, 0)
	}
}

func (x *churn) release(t *rapid.T) {
	j := x.pick(t, func(j *churnJob) bool { return len(j.held) > 0 })
	if j == nil {
		return
	}
	a := j.held[0]
	j.held = j.held[1:]
	if !x.s.Release(a.Worker, a.Class, a.Priority) {
		t.Fatalf("%+v is not held", a)
	}
}

func (x *churn) valid(ref scheduler.TaskRef) bool {
	return slices.Contains(x.jobs[ref.Job-1].waiting, ref.Index)
}

func (x *churn) next(t *rapid.T) bool {
	a, ok := x.s.Next(x.valid)
	if !ok {
		return false
	}
	j := x.jobs[a.Task.Job-1]
	at := slices.Index(j.waiting, a.Task.Index)
	if at < 0 || a.Class != x.s.Alternative(j.class, x.s.AlternativeOf(a.Class)) {
		t.Fatalf("%+v was assigned; its job has class %d and waits for %v", a, j.class, j.waiting)
	}
	j.waiting = slices.Delete(j.waiting, at, at+1)
	j.held = append(j.held, a)
	return true
}

func (x *churn) addWorker(t *rapid.T) {
	id := workerIDs.Draw(t, "worker")
	x.s.AddWorker(id, capacities().Draw(t, "capacity"))
	x.s.SetPrefetch(id, rapid.IntRange(0, 2).Draw(t, "prefetch"))
}

func (x *churn) removeWorker(t *rapid.T) {
	id := workerIDs.Draw(t, "worker")
	x.s.RemoveWorker(id)
	for _, j := range x.jobs {
		j.held = slices.DeleteFunc(j.held, func(a scheduler.Assignment) bool { return a.Worker == id })
	}
}

func (x *churn) setQueue(t *rapid.T) {
	name := rapid.SampledFrom(queueNames).Draw(t, "queue")
	if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
		x.s.RemoveQueue(name)
		return
	}
	x.s.SetQueue(name, queues().Draw(t, "settings"))
}

func (x *churn) check(t *rapid.T) {
	if err := x.s.Check(); err != nil {
		t.Fatal(err)
	}
	held := map[string]int{}
	for _, j := range x.jobs {
		held[j.demand.Queue] += len(j.held)
	}
	for name, l := range x.s.Loads() {
		if l.Running != held[name] {
			t.Fatalf("queue %q counts %d attempts, want %d", name, l.Running, held[name])
		}
	}
}

// Whatever came and went before, every task that waits starts when quotas leave it enough, and
// nothing is left of jobs that have ended.
func TestClassesComeAndGo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := &churn{s: scheduler.New(rapid.Uint64().Draw(t, "seed"))}
		t.Repeat(map[string]func(*rapid.T){
			"submit":        x.submit,
			"push more":     x.pushMore,
			"end":           x.end,
			"move":          x.move,
			"release":       x.release,
			"release again": x.release,
			"add worker":    x.addWorker,
			"remove worker": x.removeWorker,
			"set queue":     x.setQueue,
			"sweep":         func(*rapid.T) { x.s.Sweep(x.valid) },
			"next":          func(t *rapid.T) { x.next(t) },
			"next again":    func(t *rapid.T) { x.next(t) },
			"":              x.check,
		})
		enough := scheduler.Queue{MaxRunning: 3, Max: []scheduler.Quantity{{Name: "gpu", Amount: 5}, {Name: "cpu", Amount: 7}}}
		for _, name := range queueNames {
			x.s.SetQueue(name, enough)
		}
		for i, labels := range labelSets {
			x.s.AddWorker(scheduler.WorkerID(9+i), scheduler.Capacity{ //nolint:gosec // small
				Slots: 2, Labels: labels, Resources: []scheduler.Quantity{{Name: "cpu", Amount: 8}, {Name: "gpu", Amount: 8}, {Name: "memory", Amount: 8}},
			})
		}
		x.drain(t)
		if flows, classes := x.s.Flows(); flows != 1 || classes != 1 {
			t.Fatalf("%d flows and %d classes are left", flows, classes)
		}
		if known, blocked := x.s.Shapes(); known != 1 || blocked != 0 {
			t.Fatalf("%d shapes are left, %d of them blocked", known, blocked)
		}
	})
}

// drain starts and ends everything that waits, and ends the jobs.
func (x *churn) drain(t *rapid.T) {
	left := func(j *churnJob) bool { return len(j.waiting)+len(j.held) > 0 }
	for slices.ContainsFunc(x.jobs, left) {
		started := false
		for x.next(t) {
			started = true
			x.check(t)
		}
		for _, j := range x.jobs {
			for len(j.held) > 0 {
				x.s.Release(j.held[0].Worker, j.held[0].Class, j.held[0].Priority)
				j.held = j.held[1:]
				started = true
			}
		}
		if !started {
			t.Fatal("tasks wait, and none starts")
		}
	}
	for _, j := range x.jobs {
		if !j.ended {
			x.s.Retire(j.class)
		}
	}
	for _, name := range queueNames {
		x.s.RemoveQueue(name)
	}
	a := scheduler.Assignment{Worker: 9, Priority: scheduler.Normal} // a change of capacity
	x.s.Occupy(a.Worker, a.Class, a.Priority)
	x.s.Release(a.Worker, a.Class, a.Priority)
}
