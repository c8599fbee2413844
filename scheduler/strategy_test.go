package scheduler_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// assignAll pushes tasks with these demands, and returns how many each worker got.
func assignAll(t *testing.T, s *scheduler.Scheduler, demands ...scheduler.Demand) map[scheduler.WorkerID]int {
	t.Helper()
	got := map[scheduler.WorkerID]int{}
	for i, d := range demands {
		s.Push(task(i), s.Class(d), scheduler.Normal, 0)
	}
	for range demands {
		a, ok := s.Next(nil)
		if !ok {
			t.Fatal("a task was not assigned")
		}
		got[a.Worker]++
	}
	return got
}

func TestPreferredWorkersAreUsedUntilTheyAreFull(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	eu := []scheduler.Label{{Name: "zone", Value: "eu"}}
	for id := range scheduler.WorkerID(100) { // more than are visited before a scan
		c := scheduler.Capacity{Slots: 2}
		if id%50 == 0 {
			c.Labels = eu
		}
		s.AddWorker(id+1, c)
	}
	d := scheduler.Demand{Prefer: []scheduler.LabelRule{{Name: "zone", Values: []string{"eu"}}}}
	got := assignAll(t, s, slices.Repeat([]scheduler.Demand{d}, 54)...)
	if got[1] != 2 || got[51] != 2 || len(got) != 52 {
		t.Errorf("got %v, want two tasks on each of the workers 1 and 51, and one on 50 others", got)
	}
}

// It needs few workers more than a packing that knows all tasks beforehand (first fit
// decreasing).
func TestPackUsesFewWorkers(t *testing.T) {
	t.Parallel()
	const cpu = 1000
	s := scheduler.New(1)
	for id := range scheduler.WorkerID(400) {
		s.AddWorker(id+1, scheduler.Capacity{Slots: 64, Resources: []scheduler.Quantity{{Name: "cpu", Amount: cpu}}})
	}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	var demands []scheduler.Demand
	var sizes []int64
	for range 500 {
		n := 1 + r.Int64N(cpu)
		sizes = append(sizes, n)
		demands = append(demands, scheduler.Demand{Place: scheduler.Pack, Resources: []scheduler.Quantity{{Name: "cpu", Amount: n}}})
	}
	slices.Sort(sizes)
	var bins []int64
	for _, n := range slices.Backward(sizes) {
		at := slices.IndexFunc(bins, func(taken int64) bool { return taken+n <= cpu })
		if at < 0 {
			at, bins = len(bins), append(bins, 0)
		}
		bins[at] += n
	}
	got := len(assignAll(t, s, demands...))
	t.Logf("%d workers, first fit decreasing: %d", got, len(bins))
	if got*10 > len(bins)*11 {
		t.Errorf("%d workers are used, want at most 1.1 times %d", got, len(bins))
	}
}

// The order of Pack is dropped when nothing uses it, and built again.
func TestTheOrderOfPackExistsOnlyWhileItIsUsed(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	for id := range scheduler.WorkerID(50) {
		s.AddWorker(id+1, scheduler.Capacity{Slots: 4})
	}
	pack, plain := s.Class(scheduler.Demand{Place: scheduler.Pack}), s.Class(scheduler.Demand{})
	for round := range 3 {
		if s.HasPackOrder() {
			t.Fatalf("round %d: the order exists before it is used", round)
		}
		s.Push(task(0), pack, scheduler.Normal, 0)
		a, _ := s.Next(nil)
		if !s.HasPackOrder() {
			t.Fatalf("round %d: the order does not exist", round)
		}
		s.Release(a.Worker, a.Class, a.Priority)
		for range 2000 {
			s.Push(task(1), plain, scheduler.Normal, 0)
			a, _ := s.Next(nil)
			s.Release(a.Worker, a.Class, a.Priority)
		}
	}
}

// Two draws spread tasks far better than one would: with one, some of 100 workers gets 20
// tasks or more of 1,000.
func TestRandomTakesTheLessLoadedOfTwo(t *testing.T) {
	t.Parallel()
	for _, labels := range [][]scheduler.Label{nil, {{Name: "zone", Value: "eu"}}} {
		s := scheduler.New(1)
		for id := range scheduler.WorkerID(100) {
			s.AddWorker(id+1, scheduler.Capacity{Slots: 1000, Labels: labels})
		}
		got := assignAll(t, s, slices.Repeat([]scheduler.Demand{{Place: scheduler.Random, Labels: labels}}, 1000)...)
		most, least := 0, 1000
		for id := range scheduler.WorkerID(100) {
			most, least = max(most, got[id+1]), min(least, got[id+1])
		}
		if most > 14 || most-least < 2 {
			t.Errorf("the workers got %d to %d tasks, want about 10 with a spread of some", least, most)
		}
	}
}

// A worker with most of its CPUs taken is fuller than one with many small attempts.
func TestPackMeasuresTheScarcestResource(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	cpu := func(n int64) scheduler.Demand {
		return scheduler.Demand{Place: scheduler.Pack, Resources: []scheduler.Quantity{{Name: "cpu", Amount: n}}}
	}
	for id := range scheduler.WorkerID(2) {
		s.AddWorker(id+1, scheduler.Capacity{Slots: 64, Resources: cpu(1000).Resources})
	}
	s.Occupy(1, s.Class(cpu(800)), scheduler.Normal)
	for range 5 {
		s.Occupy(2, s.Class(cpu(10)), scheduler.Normal)
	}
	if got := assignAll(t, s, cpu(50), cpu(50), cpu(50), cpu(100)); got[1] != 3 || got[2] != 1 {
		t.Errorf("got %v tasks by worker, want 3 on worker 1, which is full then, and 1 on worker 2", got)
	}
}

// A worker that was full is the fullest one with a free slot as soon as an attempt there ends.
func TestPackFillsAWorkerAgainOnWhichAnAttemptEnds(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	for id := range scheduler.WorkerID(50) { // more than are scanned without the order
		s.AddWorker(id+1, scheduler.Capacity{Slots: 4})
	}
	pack := s.Class(scheduler.Demand{Place: scheduler.Pack})
	s.PushRun(task(0), 5, pack, scheduler.Normal)
	var full scheduler.WorkerID
	for range 4 {
		a, _ := s.Next(nil)
		full = a.Worker
	}
	s.Release(full, pack, scheduler.Normal)
	if a, ok := s.Next(nil); !ok || a.Worker != full {
		t.Errorf("got %+v, %v; want worker %d", a, ok, full)
	}
}

// A task does not wait at a preferred worker if another one has a free slot.
func TestAFreeSlotComesBeforeAPreference(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 1, Labels: []scheduler.Label{{Name: "zone", Value: "eu"}}})
	s.AddWorker(2, scheduler.Capacity{Slots: 1})
	s.SetPrefetch(1, 5)
	s.SetPrefetch(2, 5)
	d := scheduler.Demand{Prefer: []scheduler.LabelRule{{Name: "zone", Values: []string{"eu"}}}}
	if got := assignAll(t, s, d, d); got[1] != 1 || got[2] != 1 {
		t.Errorf("got %v tasks by worker, want one each", got)
	}
	if got := assignAll(t, s, d, d); got[1] != 2 {
		t.Errorf("got %v waiting tasks by worker, want both where they prefer it", got)
	}
}
