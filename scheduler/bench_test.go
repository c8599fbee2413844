package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/dtask/dtask/scheduler"
)

// A steady is a cluster of 1,000 workers with 8 slots, of which 7 are taken.
// Each step ends the oldest attempt, pushes a task and assigns one.
type steady struct {
	s       *scheduler.Scheduler
	class   scheduler.ClassID
	running []scheduler.Assignment // ring buffer
	at      int
	pushed  int
}

func newSteady(d scheduler.Demand, offer scheduler.Capacity) *steady {
	offer.Slots = 8
	return newSteadyFleet(1_000, d, offer)
}

// newSteadyFleet is newSteady with other workers, of whose slots an eighth is free.
func newSteadyFleet(workers int, d scheduler.Demand, offer scheduler.Capacity) *steady {
	st := &steady{s: scheduler.New(1), running: make([]scheduler.Assignment, workers*(offer.Slots-offer.Slots/8))}
	st.class = st.s.Class(d)
	for id := range scheduler.WorkerID(workers) { //nolint:gosec // small
		st.s.AddWorker(id+1, offer)
	}
	for range 10_000 { // waiting tasks
		st.push()
	}
	for i := range st.running {
		st.push()
		st.running[i], _ = st.s.Next(st.valid)
	}
	return st
}

func (st *steady) push() {
	st.pushed++
	st.s.Push(task(st.pushed), st.class, scheduler.Normal, 0)
}

func (st *steady) valid(scheduler.TaskRef) bool { return true }

// step reports whether a task was assigned.
func (st *steady) step() (ok bool) {
	ended := &st.running[st.at]
	st.s.Release(ended.Worker, ended.Class, ended.Priority)
	st.push()
	*ended, ok = st.s.Next(st.valid)
	st.at = (st.at + 1) % len(st.running)
	return ok
}

func TestASteadyClusterAllocatesNothing(t *testing.T) {
	// Not parallel: AllocsPerRun counts the allocations of all goroutines.
	plain := newSteady(scheduler.Demand{}, scheduler.Capacity{})
	cpu := []scheduler.Quantity{{Name: "cpu", Amount: 1000}}
	demanding := newSteady(scheduler.Demand{Resources: cpu}, scheduler.Capacity{Resources: []scheduler.Quantity{{Name: "cpu", Amount: 8000}}})
	wide := newCrowded(10, 10, 10_000)
	for range 10 * len(wide.running) {
		wide.step()
	}
	if allocs := testing.AllocsPerRun(10_000, func() { wide.step() }); allocs != 0 {
		t.Errorf("with queues: %v allocations per task, want 0", allocs)
	}
	gpu := scheduler.Demand{Resources: []scheduler.Quantity{{Name: "gpu", Amount: 1000}}, Alternatives: [][]scheduler.Quantity{cpu}}
	either := newSteady(gpu, scheduler.Capacity{Resources: []scheduler.Quantity{{Name: "cpu", Amount: 8000}}})
	all := map[string]*steady{"plain": plain, "with alternatives": either, "with resources": demanding, "with limits": newSteady(uses("api", "db"), scheduler.Capacity{})}
	for name, d := range otherChoices {
		all[name] = newSteady(d, scheduler.Capacity{Labels: []scheduler.Label{{Name: "zone", Value: "eu"}}})
	}
	for name, st := range all {
		for range 2 * len(st.running) { // so that every slice has its final size
			st.step()
		}
		if allocs := testing.AllocsPerRun(10_000, func() { st.step() }); allocs != 0 {
			t.Errorf("%s: %v allocations per task, want 0", name, allocs)
		}
	}
}

// otherChoices are demands that choose among workers in another way than plain ones.
var otherChoices = map[string]scheduler.Demand{
	"rules":  {Rules: []scheduler.LabelRule{{Name: "zone", Values: []string{"eu", "us"}}}},
	"prefer": {Prefer: []scheduler.LabelRule{{Name: "zone", Values: []string{"eu"}}}},
	"pack":   {Place: scheduler.Pack},
	"random": {Place: scheduler.Random},
}

// BenchmarkNext pushes, assigns and releases one task.
func BenchmarkNext(b *testing.B) {
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	b.Run("plain", func(b *testing.B) {
		benchmark(b, newSteady(scheduler.Demand{}, scheduler.Capacity{}))
	})
	b.Run("few_workers", func(b *testing.B) {
		benchmark(b, newSteadyFleet(4, scheduler.Demand{}, scheduler.Capacity{Slots: 1024}))
	})
	b.Run("resources", func(b *testing.B) {
		benchmark(b, newSteady(scheduler.Demand{Resources: cpu(1000)}, scheduler.Capacity{Resources: cpu(8000)}))
	})
	b.Run("alternatives", func(b *testing.B) { // none of the first ones fits
		d := scheduler.Demand{Resources: []scheduler.Quantity{{Name: "gpu", Amount: 1000}}, Alternatives: [][]scheduler.Quantity{cpu(1000)}}
		benchmark(b, newSteady(d, scheduler.Capacity{Resources: cpu(8000)}))
	})
	for name, d := range otherChoices {
		b.Run(name, func(b *testing.B) {
			benchmark(b, newSteady(d, scheduler.Capacity{Labels: []scheduler.Label{{Name: "zone", Value: "eu"}}}))
		})
	}
	b.Run("one_in_a_thousand_fits", func(b *testing.B) {
		st := newSteady(scheduler.Demand{}, scheduler.Capacity{})
		special := scheduler.Capacity{Slots: 8, Labels: []scheduler.Label{{Name: "zone", Value: "eu"}}}
		st.s.AddWorker(500, special)
		c := st.s.Class(scheduler.Demand{Labels: special.Labels})
		for i := range st.running {
			st.s.Release(st.running[i].Worker, st.running[i].Class, st.running[i].Priority)
		}
		st.s.Sweep(func(scheduler.TaskRef) bool { return false })
		b.ReportAllocs()
		for b.Loop() {
			st.s.Push(task(0), c, scheduler.Normal, 0)
			a, ok := st.s.Next(st.valid)
			if !ok {
				b.Fatal("nothing was assigned")
			}
			st.s.Release(a.Worker, a.Class, a.Priority)
		}
	})
}

// A crowded is a steady cluster at full width: 100 queues with 100 owners each, 4
// priorities and 3 classes, in which a million tasks wait.
type crowded struct {
	s       *scheduler.Scheduler
	classes []scheduler.ClassID
	running []scheduler.Assignment // ring buffer
	at      int
	pushed  int
}

func newCrowded(queues, owners, waiting int) *crowded {
	const workers = 1_000
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	st := &crowded{s: scheduler.New(1), running: make([]scheduler.Assignment, workers*7)}
	for id := range scheduler.WorkerID(workers) {
		st.s.AddWorker(id+1, scheduler.Capacity{Slots: 8, Resources: cpu(80_000)})
	}
	demands := []scheduler.Demand{{}, {Resources: cpu(1000)}, {NoPrefetch: true}}
	for q := range queues {
		name := fmt.Sprint("q", q)
		st.s.SetQueue(name, scheduler.Queue{Weight: uint32(1 + q%7)}) //nolint:gosec // small
		for o := range owners {
			for _, d := range demands {
				d.Queue, d.Owner = name, fmt.Sprint("o", o)
				st.classes = append(st.classes, st.s.Class(d))
			}
		}
	}
	for range waiting {
		st.push()
	}
	for i := range st.running {
		st.push()
		st.running[i], _ = st.s.Next(st.valid)
	}
	return st
}

func (st *crowded) push() {
	st.pushed++
	at := st.pushed * 7919 % (4 * len(st.classes)) // each class and priority in turn
	st.s.Push(task(st.pushed), st.classes[at/4], scheduler.Priority(1+at%4), 0)
}

func (st *crowded) valid(scheduler.TaskRef) bool { return true }

func (st *crowded) step() (ok bool) {
	ended := &st.running[st.at]
	st.s.Release(ended.Worker, ended.Class, ended.Priority)
	st.push()
	*ended, ok = st.s.Next(st.valid)
	st.at = (st.at + 1) % len(st.running)
	return ok
}

// BenchmarkNextWithQueues is BenchmarkNext with queues and owners.
func BenchmarkNextWithQueues(b *testing.B) {
	for _, x := range []struct {
		name                    string
		queues, owners, waiting int
	}{
		{"10_queues", 10, 1, 10_000}, {"1_queue_1000_owners", 1, 1000, 100_000}, {"100_queues_100_owners_1M_waiting", 100, 100, 1_000_000},
	} {
		b.Run(x.name, func(b *testing.B) {
			plain, crowded := newSteady(scheduler.Demand{}, scheduler.Capacity{}), newCrowded(x.queues, x.owners, x.waiting)
			for range x.waiting / 2 { // until what was pushed first has started, page by page
				crowded.step()
			}
			benchmarkPair(b, "queues", plain.step, crowded.step)
		})
	}
}

// BenchmarkDependentLoads is one load from memory whose address the one before has read. It goes
// through twice as much as the scheduler keeps at full width, in random order. Most of the time of
// BenchmarkNextWithQueues at full width is the wait for such loads.
func BenchmarkDependentLoads(b *testing.B) {
	type line struct {
		next *line
		_    [56]byte // as long as a line of the cache
	}
	all := make([]line, 200<<20/unsafe.Sizeof(line{}))
	order := rand.New(rand.NewPCG(1, 1)).Perm(len(all)) //nolint:gosec // any order will do
	for i, at := range order {
		all[at].next = &all[order[(i+1)%len(order)]]
	}
	at := &all[0]
	for b.Loop() {
		at = at.next
	}
	runtime.KeepAlive(at)
}

// benchmarkPair compares the steps of two clusters. Each block of one follows a block of the
// other, so that both figures are of the same moment.
func benchmarkPair(b *testing.B, what string, without, with func() bool) {
	b.Helper()
	const block = 1_000
	var took [2]time.Duration
	n := 0
	for b.Loop() {
		for i, step := range []func() bool{without, with} {
			began := time.Now()
			for range block {
				if !step() {
					b.Fatal("nothing was assigned")
				}
			}
			took[i] += time.Since(began)
		}
		n += block
	}
	b.ReportMetric(float64(took[0].Nanoseconds())/float64(n), "ns-without-"+what)
	b.ReportMetric(float64(took[1].Nanoseconds())/float64(n), "ns-with-"+what)
}

// BenchmarkNextFull is a full cluster: each end of an attempt makes room for one task of
// one of 100 queues, and the next call finds nothing.
func BenchmarkNextFull(b *testing.B) {
	st := newCrowded(100, 10, 100_000)
	for a, ok := st.s.Next(st.valid); ok; a, ok = st.s.Next(st.valid) {
		st.running = append(st.running, a)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !st.step() {
			b.Fatal("nothing was assigned")
		}
		if _, ok := st.s.Next(st.valid); ok {
			b.Fatal("the cluster is not full")
		}
	}
}

// BenchmarkNextBesideBlocked is a full cluster of two shapes: one task of each ends and the next
// ones start. 10,000 owners wait for the few workers with a GPU, and hold less than the owner of
// the other tasks: all of them are before it.
func BenchmarkNextBesideBlocked(b *testing.B) {
	const owners = 10_000
	gpu := []scheduler.Quantity{{Name: "gpu", Amount: 1000}}
	s := scheduler.New(1)
	for id := range scheduler.WorkerID(10) {
		s.AddWorker(id+1, scheduler.Capacity{Slots: 8, Resources: gpu})
	}
	small := s.Class(scheduler.Demand{Owner: "small"})
	s.PushRun(task(0), 1<<30, small, scheduler.Normal)
	for i := range owners {
		s.PushRun(scheduler.TaskRef{Job: uint64(i + 2)}, 1<<20, s.Class(scheduler.Demand{Owner: fmt.Sprint(i), Resources: gpu}), scheduler.Normal) //nolint:gosec // small
	}
	running := map[bool][]scheduler.Assignment{} // by whether they are small
	fill := func() (started int) {
		for a, ok := s.Next(nil); ok; a, ok = s.Next(nil) {
			running[a.Class == small] = append(running[a.Class == small], a)
			started++
		}
		return started
	}
	fill()
	b.ReportAllocs()
	for b.Loop() {
		for _, which := range []bool{false, true} {
			ended := running[which][0]
			running[which] = running[which][1:]
			s.Release(ended.Worker, ended.Class, ended.Priority)
		}
		if fill() != 2 {
			b.Fatal("not one task of each shape has started")
		}
	}
}

func benchmark(b *testing.B, st *steady) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		if !st.step() {
			b.Fatal("nothing was assigned")
		}
	}
}
