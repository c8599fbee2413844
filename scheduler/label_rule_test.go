package scheduler_test

import (
	"testing"

	"github.com/dtask/dtask/scheduler"
)

func rules(list ...scheduler.LabelRule) scheduler.Demand { return scheduler.Demand{Rules: list} }

func TestDemandsDifferByTheirRules(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	known := map[scheduler.ClassID]int{}
	for i, d := range []scheduler.Demand{
		{},
		{Labels: []scheduler.Label{{Name: "zone", Value: "eu"}}},
		rules(scheduler.LabelRule{Name: "zone"}),
		rules(scheduler.LabelRule{Name: "zone", Values: []string{"eu", "us"}}),
		rules(scheduler.LabelRule{Name: "zone", Values: []string{"eu"}, Not: true}),
		rules(scheduler.LabelRule{Name: "zone", Values: []string{"eu", "us"}, Not: true}),
		rules(scheduler.LabelRule{Name: "disk"}, scheduler.LabelRule{Name: "zone"}),
	} {
		c := s.Class(d)
		if other, twice := known[c]; twice {
			t.Errorf("demands %d and %d share a class", other, i)
		}
		known[c] = i
	}
	equal := [][2]scheduler.Demand{
		{rules(scheduler.LabelRule{Name: "zone", Values: []string{"us", "eu", "us"}}), rules(scheduler.LabelRule{Name: "zone", Values: []string{"eu", "us"}})},
		{rules(scheduler.LabelRule{Name: "zone", Values: []string{"eu"}}), {Labels: []scheduler.Label{{Name: "zone", Value: "eu"}}}},
		{rules(scheduler.LabelRule{Name: "zone", Not: true}), {}},
	}
	for _, e := range equal {
		if a, b := s.Class(e[0]), s.Class(e[1]); a != b {
			t.Errorf("%v and %v have the classes %d and %d", e[0], e[1], a, b)
		}
	}
}

// A task that needs any value of a label also competes for a worker that gets one.
func TestALabelThatStartsATaskBeforeIsNoChange(t *testing.T) {
	t.Parallel()
	s := scheduler.New(1)
	s.AddWorker(1, scheduler.Capacity{Slots: 1})
	first, second := s.Class(rules(scheduler.LabelRule{Name: "zone"})), s.Class(scheduler.Demand{Labels: []scheduler.Label{{Name: "zone", Value: "eu"}}})
	s.Push(task(1), first, scheduler.Normal, 0)
	s.Push(task(2), second, scheduler.Normal, 0)
	if a, ok := s.Next(nil); ok {
		t.Fatalf("got %+v", a)
	}
	adds := func(n int, c scheduler.ClassID) (adds bool) {
		changes, _ := s.View(task(n), c, scheduler.Normal, 0, nil).Changes()
		for _, x := range changes {
			adds = adds || x.Kind == scheduler.AddLabel
		}
		return adds
	}
	if !adds(1, first) || adds(2, second) {
		t.Errorf("a label starts the first task: %v, the second: %v; want true, false", adds(1, first), adds(2, second))
	}
}
