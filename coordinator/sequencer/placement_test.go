package sequencer_test

import (
	"testing"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A plan, and so the scheduler, knows each form of what a task requires of labels.
func TestAPlannerKnowsRulesAboutLabels(t *testing.T) {
	t.Parallel()
	workers := []*fsm.Worker{
		{ID: 1, Slots: 1, Labels: []fsm.Label{{Key: "worker", Value: "w1"}, {Key: "zone", Value: "eu"}}},
		{ID: 2, Slots: 2, Labels: []fsm.Label{{Key: "worker", Value: "w2"}, {Key: "zone", Value: "us"}}},
		{ID: 3, Slots: 4, Labels: []fsm.Label{{Key: "worker", Value: "w3"}}},
	}
	for name, c := range map[string]struct {
		policy  *dtaskv1.TaskPolicy
		workers int
		tasks   uint64
	}{
		"one value":         {&dtaskv1.TaskPolicy{Require: map[string]string{"zone": "eu"}}, 1, 1},
		"one of two":        {rule("zone", false, "eu", "us"), 2, 3},
		"none of two":       {rule("zone", true, "eu", "us"), 1, 4},
		"not":               {rule("zone", true, "us"), 2, 5},
		"any value":         {rule("zone", false), 2, 3},
		"pinned":            {&dtaskv1.TaskPolicy{Require: map[string]string{"worker": "w3"}}, 1, 4},
		"a value of nobody": {rule("zone", false, "mars", "moon"), 0, 0},
		"no such label":     {rule("rack", false), 0, 0},
		"not such a label":  {rule("rack", true, "7"), 3, 7},
	} {
		p := sequencer.NewPlanner(&dtaskv1.JobHeader{Policies: []*dtaskv1.TaskPolicy{c.policy}}, workers, nil, nil)
		if n, tasks := p.Fitting(0); n != c.workers || tasks != c.tasks {
			t.Errorf("%s: fits %d workers and %d tasks, want %d and %d", name, n, tasks, c.workers, c.tasks)
		}
	}
}

// A demand has the preferences and the strategy of its policy: two that differ in them are not
// of one class.
func TestAPlannerKnowsPreferencesAndStrategies(t *testing.T) {
	t.Parallel()
	prefer := []*dtaskv1.LabelRule{{Name: "zone", Values: []string{"eu"}}}
	policies := []*dtaskv1.TaskPolicy{
		{},
		{Prefer: prefer},
		{Rules: prefer},
		{Place: dtaskv1.PlacementStrategy_PLACEMENT_STRATEGY_PACK},
		{Place: dtaskv1.PlacementStrategy_PLACEMENT_STRATEGY_RANDOM},
		{Affinity: "ann"},
		{Affinity: "ben"},
	}
	p := sequencer.NewPlanner(&dtaskv1.JobHeader{Policies: append(policies, &dtaskv1.TaskPolicy{Place: dtaskv1.PlacementStrategy_PLACEMENT_STRATEGY_SPREAD})}, nil, nil, nil)
	seen := make(map[uint32]bool)
	for i := range uint32(len(policies)) {
		if seen[p.Class(i)] {
			t.Errorf("policy %d has the class of another one", i)
		}
		seen[p.Class(i)] = true
	}
	if p.Class(0) != p.Class(uint32(len(policies))) {
		t.Error("place: spread differs from the default")
	}
}

func rule(name string, not bool, values ...string) *dtaskv1.TaskPolicy {
	return &dtaskv1.TaskPolicy{Rules: []*dtaskv1.LabelRule{{Name: name, Values: values, Not: not}}}
}
