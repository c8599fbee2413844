package scheduler_test

import (
	"testing"

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
	const workers = 1_000
	offer.Slots = 8
	st := &steady{s: scheduler.New(1), running: make([]scheduler.Assignment, workers*7)}
	st.class = st.s.Class(d)
	for id := range scheduler.WorkerID(workers) {
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
	all := map[string]*steady{"plain": plain, "with resources": demanding}
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
	b.Run("resources", func(b *testing.B) {
		benchmark(b, newSteady(scheduler.Demand{Resources: cpu(1000)}, scheduler.Capacity{Resources: cpu(8000)}))
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

func benchmark(b *testing.B, st *steady) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		if !st.step() {
			b.Fatal("nothing was assigned")
		}
	}
}
