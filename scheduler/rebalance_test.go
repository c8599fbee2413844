package scheduler

import (
	"slices"
	"testing"
)

func TestRebalanceStealsNoMoreThanFreeSlots(t *testing.T) {
	t.Parallel()
	s := New(1)
	zone := s.Class(Demand{Labels: []Label{{"zone", "a"}}})
	prompt := s.Class(Demand{NoPrefetch: true})
	for w, held := range map[WorkerID]int{1: 5, 2: 4, 3: 0} {
		s.AddWorker(w, Capacity{Slots: 2})
		for range held {
			s.Occupy(w, 0, Normal)
		}
	}
	all := func(WorkerID) bool { return true }
	if got, want := s.Rebalance(all), []StealRequest{{From: 1, Class: 0, N: 2}}; !s.Imbalanced() || !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := s.Rebalance(func(w WorkerID) bool { return w != 1 }), []StealRequest{{From: 2, Class: 0, N: 2}}; !slices.Equal(got, want) {
		t.Errorf("without the first: got %v, want %v", got, want)
	}
	s.SetAccepting(3, false)
	if s.Imbalanced() || s.Rebalance(all) != nil {
		t.Error("a worker that doesn't accept tasks counts as idle")
	}
	s.SetAccepting(3, true)
	s.Occupy(3, 0, Normal)
	s.Occupy(3, 0, Normal)
	if s.Imbalanced() {
		t.Error("imbalanced without a free slot")
	}
	s.RemoveWorker(3)
	s.RemoveWorker(2)

	// An attempt that no idle worker fits stays.
	s.AddWorker(4, Capacity{Slots: 3})
	for range 5 {
		s.Release(1, 0, Normal)
	}
	for range 3 {
		s.Occupy(1, zone, Normal)
	}
	s.Occupy(1, prompt, Normal)
	if got := s.Rebalance(all); len(got) > 0 {
		t.Errorf("got %v, want nothing: the attempt needs a label, or has a slot", got)
	}
	s.AddWorker(5, Capacity{Slots: 1, Labels: []Label{{"zone", "a"}}})
	if got, want := s.Rebalance(all), []StealRequest{{From: 1, Class: zone, N: 1}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s.RemoveWorker(1)
	if s.Imbalanced() || s.waiting != 0 {
		t.Errorf("%d attempts wait on no worker", s.waiting)
	}
}

// It equals the count over all workers, after any sequence of calls.
func TestTheCountOfWaitingAttemptsIsExact(t *testing.T) {
	t.Parallel()
	s := New(7)
	r := s.random
	for range 20_000 {
		w := WorkerID(r.Below(20) + 1)
		switch r.Below(8) {
		case 0:
			s.AddWorker(w, Capacity{Slots: int(r.Below(6))})
		case 1:
			s.RemoveWorker(w)
		case 2:
			s.SetPrefetch(w, int(r.Below(5)))
		case 3:
			s.SetAccepting(w, r.Below(2) == 0)
		case 4, 5:
			s.Occupy(w, 0, Normal)
		default:
			s.Release(w, 0, Normal)
		}
		want, free := 0, false
		for _, wk := range s.sorted {
			want += max(0, int(wk.used)-int(wk.slots))
			free = free || wk.ranked() && wk.used < wk.slots
		}
		if s.waiting != want || s.Imbalanced() != (want > 0 && free) {
			t.Fatalf("%d wait, imbalanced %v; want %d, %v", s.waiting, s.Imbalanced(), want, want > 0 && free)
		}
	}
}

// A worker keeps what it has prefetched of its keys, as far as that is within the bound of loads.
func TestRebalanceTakesTasksFromTheWorkerOfTheirKeyAboveTheBound(t *testing.T) {
	t.Parallel()
	s := New(1)
	for w := range WorkerID(3) {
		s.AddWorker(w+1, Capacity{Slots: 2})
	}
	c := s.Class(Demand{Affinity: "ann"})
	home := s.KeyWorker(c).Worker
	all := func(WorkerID) bool { return true }
	for range 4 {
		s.Occupy(home, c, Normal)
	}
	if got, want := s.Rebalance(all), []StealRequest{{From: home, Class: c, N: 2, Waited: affinityWait}}; !slices.Equal(got, want) {
		t.Errorf("2 wait for 2 slots: got %v, want %v", got, want)
	}
	s.Occupy(home, c, Normal)
	if got, want := s.Rebalance(all), []StealRequest{{From: home, Class: c, N: 1}}; !slices.Equal(got, want) {
		t.Errorf("3 wait for 2 slots: got %v, want %v", got, want)
	}
	other := home%3 + 1
	s.Release(home, c, Normal)
	for range 3 {
		s.Occupy(other, c, Normal)
	}
	if got, want := s.Rebalance(all), []StealRequest{{From: home, Class: c, N: 2, Waited: affinityWait}, {From: other, Class: c, N: 1}}; !slices.Equal(got, want) {
		t.Errorf("on another worker: got %v, want %v", got, want)
	}
}
