package scheduler_test

import (
	"math/rand/v2"
	"testing"

	"github.com/dtask/dtask/scheduler"
)

// A quota of a queue is seldom the only obstacle in the states of TestChangesAreSoundAndComplete.
func TestChangesKnowHowFarAQuotaIsToBeRaised(t *testing.T) {
	t.Parallel()
	// A change was wrong: the worker of a task before was random, or that of an alternative was not known.
	seeds := []uint64{1_002_656, 1_002_183}
	var total changeCounts
	for _, seed := range seeds {
		if !checkChanges(t, newQuotaState(seed, true), &total) {
			return
		}
	}
	for n := range *changeStates {
		if !checkChanges(t, newQuotaState(*changeSeed+uint64(n), false), &total) { //nolint:gosec // not negative
			return
		}
	}
	total.check(t)
	if n := total.kinds[scheduler.RaiseMax]; *changeStates >= 60 && n < 5 {
		t.Errorf("%d quotas are to be raised, want more", n)
	}
}

// newQuotaState returns a random state in which the quota of a queue on a resource is often the
// only obstacle: workers have more of it than the queue may use.
func newQuotaState(seed uint64, former bool) *randomState {
	st := &randomState{recipe: recipe{seed: seed}, former: former, r: rand.New(rand.NewPCG(seed, 3))} //nolint:gosec // reproducible
	r := st.r
	amount := func(name string, least, n int) scheduler.Quantity {
		return scheduler.Quantity{Name: name, Amount: int64(least + r.IntN(n))}
	}
	for range 2 + r.IntN(3) {
		d := st.demand()
		d.Queue, d.Namespace, d.Type, d.Limit, d.Uses, d.Resources = "ml", "", "", 0, nil, []scheduler.Quantity{amount("gpu", 1, 5)}
		if r.IntN(3) > 0 {
			d.Labels, d.Rules, d.Affinity = nil, nil, ""
		}
		if r.IntN(3) > 0 {
			d.Alternatives = nil
		}
		if r.IntN(3) == 0 {
			d.Resources = []scheduler.Quantity{amount("cpu", 1, 4), d.Resources[0]}
		}
		st.demands = append(st.demands, d)
	}
	classes := make([]scheduler.ClassID, len(st.demands))
	for i, d := range st.demands {
		st.steps = append(st.steps, func(f *fork) { classes[i] = f.Class(d) })
	}
	st.fork() // so that classes is known
	q := scheduler.Queue{Weight: 1, Max: []scheduler.Quantity{amount("gpu", 1, 12)}}
	if r.IntN(4) == 0 {
		q.Max = append([]scheduler.Quantity{amount("cpu", 1, 8)}, q.Max...)
	}
	st.steps = append(st.steps, func(f *fork) { f.setQueue("ml", q) })
	for id := range scheduler.WorkerID(1 + r.IntN(3)) { //nolint:gosec // small
		c := scheduler.Capacity{Slots: 1 + r.IntN(5), Labels: subset(r, someLabels, 0.6), Resources: []scheduler.Quantity{amount("cpu", 4, 9), amount("gpu", 4, 9)}}
		st.steps = append(st.steps, func(f *fork) { f.addWorker(id+1, c) })
	}
	for range 3 + r.IntN(12) {
		st.step(classes)
	}
	st.steps = append(st.steps, (*fork).settle)
	return st
}

// After a change of the queue, a task before this one goes to another worker than the one on which
// it failed: that leaves the slot which this one needs.
func TestAChangeOfAQueueKnowsWhichWorkersTasksAvoid(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	s.SetQueue("q", scheduler.Queue{Weight: 1, MaxRunning: 1})
	zone := []scheduler.Label{{Name: "zone", Value: "eu"}}
	plain := s.Class(scheduler.Demand{Queue: "q", NoPrefetch: true})
	inZone := s.Class(scheduler.Demand{Queue: "q", NoPrefetch: true, Labels: zone})
	s.AddWorker(1, scheduler.Capacity{Slots: 1, Labels: zone}) // the least loaded one
	s.AddWorker(2, scheduler.Capacity{Slots: 2})
	s.Occupy(2, plain, scheduler.Normal)
	s.Push(task(1), plain, scheduler.Normal, 1)
	s.Push(task(2), inZone, scheduler.Normal, 0)
	if a, ok := s.Next(nil); ok {
		t.Fatalf("%+v starts, want nothing", a)
	}
	changes, complete := s.View(task(2), inZone, scheduler.Normal, 0, nil).Changes()
	if len(changes) != 1 || changes[0].Kind != scheduler.RaiseMaxRunning || changes[0].Amount != 3 || !complete {
		t.Errorf("got %+v, complete: %v; want three running tasks of the queue", changes, complete)
	}
}

// A fork draws other workers than the leader would: the answer is not complete, unless it does not
// matter which ones.
func TestAChangeOfAQueueDoesNotGuessRandomWorkers(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		before, own scheduler.Demand
		decided     bool
	}{
		"random before":         {scheduler.Demand{Place: scheduler.Random}, scheduler.Demand{}, false},
		"not random before":     {scheduler.Demand{NoPrefetch: true}, scheduler.Demand{}, true},
		"random, and all alike": {scheduler.Demand{Place: scheduler.Random}, scheduler.Demand{Place: scheduler.Random}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scheduler.New(1)
			s.SetQueue("q", scheduler.Queue{Weight: 1, Paused: true})
			x.before.Queue, x.own.Queue = "q", "q"
			before, own := s.Class(x.before), s.Class(x.own)
			s.AddWorker(1, scheduler.Capacity{Slots: 1})
			s.AddWorker(2, scheduler.Capacity{Slots: 1})
			s.Push(task(1), before, scheduler.Normal, 0)
			s.Push(task(2), own, scheduler.Normal, 0)
			changes, complete := s.View(task(2), own, scheduler.Normal, 0, nil).Changes()
			if complete != x.decided || (len(changes) == 1) != x.decided {
				t.Errorf("got %+v, complete: %v; want decided: %v", changes, complete, x.decided)
			}
		})
	}
}
