package sequencer_test

import (
	"slices"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// simRules are rules about the label zone=a, which some workers of the simulation have, and
// about the label that each has by itself. Worker w0, which always exists, fulfills all.
var simRules = []*dtaskv1.LabelRule{
	{Name: "zone"},
	{Name: "zone", Values: []string{"a", "b"}},
	{Name: "zone", Values: []string{"b"}, Not: true},
	{Name: fsm.WorkerLabel, Values: []string{"w1", "w2"}, Not: true},
	{Name: fsm.WorkerLabel, Values: []string{"w0", "w1"}},
}

// placement chooses what a policy requires of labels.
func (c *sim) placement(p *dtaskv1.TaskPolicy) {
	if c.chance(20) {
		p.Prefer = []*dtaskv1.LabelRule{{Name: "zone", Values: []string{"a"}, Not: c.chance(50)}}
	}
	if c.chance(30) {
		p.Place = dtaskv1.PlacementStrategy(c.rng.IntN(4))
	}
	if c.chance(20) {
		p.Affinity = []string{"a", "b", "c"}[c.rng.IntN(3)]
	}
	switch {
	case c.chance(20):
		p.Require = map[string]string{"zone": "a"}
	case c.chance(30):
		p.Rules = []*dtaskv1.LabelRule{simRules[c.rng.IntN(len(simRules))]}
	}
}

// labels returns the labels of a worker, sorted by key.
func (w *simWorker) labels() []fsm.Label {
	list := []fsm.Label{{Key: fsm.WorkerLabel, Value: w.name}}
	if w.zone {
		list = append(list, fsm.Label{Key: "zone", Value: "a"})
	}
	return list
}

// checkPlacement checks that a worker that got an attempt has the labels that the task
// requires.
func (w *simWorker) checkPlacement(it fsm.AssignItem) {
	var p *dtaskv1.TaskPolicy
	w.c.log.truth.Read(func(s *fsm.State, _ uint64) { p = s.Policy(it.TaskRef) })
	if zone := p.GetRequire()["zone"]; zone != "" && !w.zone {
		w.c.fail("worker %s got %v, which requires zone=%s", w.name, it.AttemptRef, zone)
	}
	for _, r := range p.GetRules() {
		found := slices.ContainsFunc(w.labels(), func(l fsm.Label) bool {
			return l.Key == r.GetName() && (len(r.GetValues()) == 0 || slices.Contains(r.GetValues(), l.Value))
		})
		if found == r.GetNot() {
			w.c.fail("worker %s with labels %v got %v, which has the rule %v", w.name, w.labels(), it.AttemptRef, r)
		}
	}
}
