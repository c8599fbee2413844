package scheduler_test

import (
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

var estimateLoads = flag.Int("estimate.loads", 24, "simulated loads of TestStartsAreInTheRangeThatIsEstimated")

// A kind has tasks that are alike.
type kind struct {
	class scheduler.ClassID
	run   func(r *rand.Rand) int64
	last  []int64 // run times, the latest last
}

// runTimes are distributions of run times, in ms, with a mean of about 10 s.
var runTimes = []func(r *rand.Rand) int64{
	func(r *rand.Rand) int64 { return 9_500 + r.Int64N(1_000) },
	func(r *rand.Rand) int64 { return 5_000 + r.Int64N(10_000) },
	func(r *rand.Rand) int64 { return 1 + int64(10_000*r.ExpFloat64()) },
	func(r *rand.Rand) int64 { return 1 + int64(8_800*math.Exp(0.5*r.NormFloat64())) },
}

// A virtual is a cluster in virtual time, under a stationary load: batches of tasks arrive
// at random.
type virtual struct {
	s       *scheduler.Scheduler
	r       *rand.Rand
	now     int64 // ms
	workers int
	kinds   []*kind
	kindOf  map[uint32]*kind
	pushed  uint32
	arrival int64 // of the next batch
	between float64
	running []virtualAttempt
	waiting []uint32
	started map[uint32]int64 // when a task that was asked about has started; -1: not yet
}

type virtualAttempt struct {
	scheduler.Assignment

	began, ends int64
}

func newVirtual(seed uint64) *virtual {
	r := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // reproducible
	v := &virtual{s: scheduler.New(seed), r: r, workers: 1 + r.IntN(6), kindOf: map[uint32]*kind{}, started: map[uint32]int64{}}
	slots := 0
	for id := range v.workers {
		n := 1 + r.IntN(4)
		slots += n
		v.s.AddWorker(scheduler.WorkerID(id+1), scheduler.Capacity{Slots: n, Resources: []scheduler.Quantity{{Name: "cpu", Amount: int64(n) * 1000}}}) //nolint:gosec // small
	}
	if seed%2 == 1 { // its tasks are those of several owners and queues
		v.s.SetQueue("etl", scheduler.Queue{Weight: 3})
		v.s.SetQueue("ml", scheduler.Queue{Weight: 1})
	}
	for i := range 1 + r.IntN(3) {
		d := scheduler.Demand{NoPrefetch: i == 1}
		if seed%2 == 1 {
			d.Queue, d.Owner = []string{"etl", "ml"}[r.IntN(2)], []string{"alice", "bob"}[r.IntN(2)]
		}
		if i == 2 {
			d.Resources = []scheduler.Quantity{{Name: "cpu", Amount: 1000}}
		}
		k := &kind{class: v.s.Class(d), run: runTimes[r.IntN(len(runTimes))]}
		for range 5 + r.IntN(16) {
			k.last = append(k.last, k.run(r))
		}
		v.kinds = append(v.kinds, k)
	}
	v.between = 10_000 * 25 / (0.9 * float64(slots)) // for batches of 25 tasks on average
	return v
}

// step proceeds to the next event.
func (v *virtual) step() {
	next := -1
	for i := range v.running {
		if next < 0 || v.running[i].ends < v.running[next].ends {
			next = i
		}
	}
	if next < 0 || v.arrival < v.running[next].ends {
		v.now = v.arrival
		v.arrival += 1 + int64(v.between*v.r.ExpFloat64())
		k := v.kinds[v.r.IntN(len(v.kinds))]
		for range 10 + v.r.IntN(31) {
			v.kindOf[v.pushed] = k
			v.s.Push(scheduler.TaskRef{Job: 1, Index: v.pushed}, k.class, scheduler.Normal, 0)
			v.waiting = append(v.waiting, v.pushed)
			v.pushed++
		}
	} else {
		a := v.running[next]
		v.running = slices.Delete(v.running, next, next+1)
		v.now = a.ends
		v.s.Release(a.Worker, a.Class, a.Priority)
		k := v.kindOf[a.Task.Index]
		k.last = append(k.last[max(len(k.last)-19, 0):], a.ends-a.began)
	}
	for {
		a, ok := v.s.Next(nil)
		if !ok {
			return
		}
		i := a.Task.Index
		v.waiting = slices.DeleteFunc(v.waiting, func(w uint32) bool { return w == i })
		if _, asked := v.started[i]; asked {
			v.started[i] = v.now
		}
		v.running = append(v.running, virtualAttempt{a, v.now, v.now + v.kindOf[i].run(v.r)})
	}
}

// estimate asks about a task that waits.
func (v *virtual) estimate(i uint32) scheduler.Estimate {
	view := v.s.View(scheduler.TaskRef{Job: 1, Index: i}, v.kindOf[i].class, scheduler.Normal, 0, nil)
	var list []scheduler.RunningAttempt
	ids, _, _ := view.Busy(0)
	for _, id := range ids {
		for _, a := range v.running {
			if a.Worker == id {
				list = append(list, scheduler.RunningAttempt{Worker: id, Class: a.Class, Task: a.Task, RanMS: v.now - a.began})
			}
		}
	}
	v.s.ViewRunning(view, list)
	return view.Estimate(uint64(i), func(t scheduler.TaskRef) []int64 { return v.kindOf[t.Index].last })
}

// Under stationary loads a task starts in the range that is stated at least 80 % of the
// time, and the range ends at no more than three times its beginning at the median.
func TestStartsAreInTheRangeThatIsEstimated(t *testing.T) {
	t.Parallel()
	asked, hits, early, late, ratios := 0, 0, 0, 0, []float64(nil)
	for seed := range uint64(*estimateLoads) { //nolint:gosec // not negative
		v := newVirtual(seed)
		for range 500 {
			v.step()
		}
		for range 25 {
			for range 40 {
				v.step()
			}
			if len(v.waiting) == 0 {
				continue
			}
			i := v.waiting[v.r.IntN(len(v.waiting))]
			e, now := v.estimate(i), v.now
			if e.Doubt != 0 {
				t.Fatalf("seed %d, task %d: no estimate: %d", seed, i, e.Doubt)
			}
			for v.started[i] = -1; v.started[i] < 0; {
				v.step()
			}
			asked++
			if waited := v.started[i] - now; waited < e.FromMS {
				early++
			} else if waited > e.ToMS {
				late++
			}
			if waited := v.started[i] - now; e.FromMS <= waited && waited <= e.ToMS {
				hits++
			}
			ratios = append(ratios, float64(e.ToMS)/float64(max(e.FromMS, 1)))
		}
	}
	slices.Sort(ratios)
	median := ratios[len(ratios)/2]
	t.Logf("%d of %d starts are in the range, %d before and %d after it; its end is %.2f times its beginning at the median", hits, asked, early, late, median)
	if asked < 10**estimateLoads || hits*100 < 80*asked || median > 3 {
		t.Errorf("%d of %d starts are in the range, ratio %.2f; want 80 %%, and at most 3", hits, asked, median)
	}
}

// full is a worker with one slot that runs task 0, and a task 1 that waits.
func full(t *testing.T) (*scheduler.Scheduler, *scheduler.TaskView) {
	t.Helper()
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 1})
	s.Push(task(0), 0, scheduler.Normal, 0)
	s.Push(task(1), 0, scheduler.Normal, 0)
	if _, ok := s.Next(nil); !ok {
		t.Fatal("nothing was assigned")
	}
	v := s.View(task(1), 0, scheduler.Normal, 0, nil)
	return s, v
}

func TestAnEstimateNeedsFiveSamplesOfEachTask(t *testing.T) {
	t.Parallel()
	s, v := full(t)
	s.ViewRunning(v, []scheduler.RunningAttempt{{Worker: 1, Task: task(0), RanMS: 1_000}})
	samples := []int64{5_000, 5_000, 5_000, 5_000}
	of := func(scheduler.TaskRef) []int64 { return samples }
	if e := v.Estimate(1, of); e.Doubt != scheduler.FewSamples || e.Task != task(0) {
		t.Errorf("from 4 samples: got %+v", e)
	}
	samples = append(samples, 5_000)
	if e := v.Estimate(1, of); e.Doubt != 0 || e.FromMS != 4_000 || e.ToMS != 4_000 {
		t.Errorf("from 5 samples: got %+v, want 4000 ms", e)
	}
}

func TestAnAttemptThatWaitsForASlotRunsBefore(t *testing.T) {
	t.Parallel()
	s, _ := full(t)
	s.SetPrefetch(1, 1)
	s.Push(task(2), 0, scheduler.Normal, 0)
	if a, ok := s.Next(nil); !ok || a.Task != task(1) {
		t.Fatalf("got %+v", a)
	}
	v := s.View(task(2), 0, scheduler.Normal, 0, nil)
	s.ViewRunning(v, []scheduler.RunningAttempt{{Worker: 1, Task: task(0), RanMS: 1_000}, {Worker: 1, Task: task(1), RanMS: -1}})
	samples := slices.Repeat([]int64{5_000}, 5)
	if e := v.Estimate(1, func(scheduler.TaskRef) []int64 { return samples }); e.Doubt != 0 || e.FromMS != 9_000 || e.ToMS != 9_000 {
		t.Errorf("got %+v, want 9000 ms", e)
	}
}

func TestATaskThatFitsNowhereNeverStarts(t *testing.T) {
	t.Parallel()
	s, _ := full(t)
	c := s.Class(scheduler.Demand{Labels: []scheduler.Label{{Name: "zone", Value: "eu"}}})
	v := s.View(task(9), c, scheduler.Normal, 0, nil)
	s.ViewRunning(v, nil)
	if e := v.Estimate(1, func(scheduler.TaskRef) []int64 { return slices.Repeat([]int64{5_000}, 5) }); e.Doubt != scheduler.NeverStarts {
		t.Errorf("got %+v", e)
	}
}

// A task behind the quota of its queue starts when an attempt of that queue ends, whatever
// ends before on other slots. A paused queue starts nothing.
func TestAnEstimateWaitsForTheQuotaOfItsQueue(t *testing.T) {
	t.Parallel()
	for _, paused := range []bool{false, true} {
		s := scheduler.New(1)
		s.SetQueue("ml", scheduler.Queue{MaxRunning: 1, Paused: paused})
		s.AddWorker(1, scheduler.Capacity{Slots: 2})
		ml, other := s.Class(scheduler.Demand{Queue: "ml"}), s.Class(scheduler.Demand{Queue: "etl"})
		s.Occupy(1, ml, scheduler.Normal)
		s.Occupy(1, other, scheduler.Normal)
		s.Push(task(9), ml, scheduler.Normal, 0)
		v := s.View(task(9), ml, scheduler.Normal, 0, nil)
		s.ViewRunning(v, []scheduler.RunningAttempt{{Worker: 1, Class: ml, Task: task(1)}, {Worker: 1, Class: other, Task: task(2)}})
		slow, fast := slices.Repeat([]int64{9_000}, 5), slices.Repeat([]int64{1_000}, 5)
		e := v.Estimate(1, func(t scheduler.TaskRef) []int64 {
			if t == task(2) {
				return fast
			}
			return slow
		})
		if want := (scheduler.Estimate{FromMS: 9_000, ToMS: 9_000}); !paused && e != want || paused && e.Doubt != scheduler.NeverStarts {
			t.Errorf("paused %v: got %+v", paused, e)
		}
	}
}

// A worker that is kept free for a task starts no other before.
func TestAnEstimateKnowsTheWorkerThatIsKeptForATask(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	cpu := func(n int64) []scheduler.Quantity { return []scheduler.Quantity{{Name: "cpu", Amount: n}} }
	s.AddWorker(1, scheduler.Capacity{Slots: 4, Resources: cpu(4_000)})
	small, large := s.Class(scheduler.Demand{Resources: cpu(1_000)}), s.Class(scheduler.Demand{Resources: cpu(4_000)})
	var running []scheduler.RunningAttempt
	next := func() {
		for a, ok := s.Next(nil); ok; a, ok = s.Next(nil) {
			running = append(running, scheduler.RunningAttempt{Worker: a.Worker, Class: a.Class, Task: a.Task})
		}
	}
	s.PushRun(scheduler.TaskRef{Job: 1}, 4, small, scheduler.Normal)
	next()
	s.Push(scheduler.TaskRef{Job: 2}, large, scheduler.Normal, 0)
	s.PushRun(scheduler.TaskRef{Job: 3}, 50, small, scheduler.Normal)
	for len(s.Reservations()) == 0 {
		s.Release(1, small, scheduler.Normal)
		running = running[1:]
		next()
	}
	samples := slices.Repeat([]int64{1_000}, 5)
	for ref, want := range map[scheduler.TaskRef]int64{{Job: 2}: 1_000, {Job: 3, Index: 49}: 2_000} {
		class := large
		if ref.Job == 3 {
			class = small
		}
		v := s.View(ref, class, scheduler.Normal, 0, nil)
		s.ViewRunning(v, running)
		if e := v.Estimate(1, func(scheduler.TaskRef) []int64 { return samples }); e.Doubt != 0 || e.FromMS < want {
			t.Errorf("task %v: got %+v, want a start after %d ms at the earliest", ref, e, want)
		}
	}
}

// Too many attempts are not copied, and too many tasks ahead are not simulated.
func TestAnEstimateIsBounded(t *testing.T) {
	t.Parallel()
	s, v := full(t)
	samples := slices.Repeat([]int64{5_000}, 5)
	of := func(scheduler.TaskRef) []int64 { return samples }
	if e := v.Estimate(1, of); e.Doubt != scheduler.TooLarge {
		t.Errorf("without what runs: got %+v", e)
	}
	s.PushRun(scheduler.TaskRef{Job: 2}, 20_000, 0, scheduler.High)
	v = s.View(task(99), 0, scheduler.Normal, 0, nil) // an older one would have a turn by age
	s.ViewRunning(v, []scheduler.RunningAttempt{{Worker: 1, Task: task(0)}})
	if e := v.Estimate(1, of); e.Doubt != scheduler.TooLarge {
		t.Errorf("behind 20,000 tasks: got %+v", e)
	}
	for id := range scheduler.WorkerID(101) {
		s.AddWorker(id+10, scheduler.Capacity{Slots: 100})
		for range 100 {
			s.Occupy(id+10, 0, scheduler.Normal)
		}
	}
	if _, n, ok := s.View(task(1), 0, scheduler.Normal, 0, nil).Busy(0); ok {
		t.Errorf("%d attempts are not too many", n)
	}
}
