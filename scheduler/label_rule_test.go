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
