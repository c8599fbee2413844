package scheduler_test

import (
	"math/rand/v2"
	"slices"

	"github.com/dtask/dtask/scheduler"
)

// someRules are in normal form.
var someRules = []scheduler.LabelRule{
	{Name: "disk"},
	{Name: "disk", Values: []string{"ssd"}, Not: true},
	{Name: "zone", Values: []string{"eu", "us"}},
	{Name: "zone"},
	{Name: "zone", Values: []string{"eu"}, Not: true},
	{Name: "zone", Values: []string{"eu", "us"}, Not: true},
}

// drawRules returns rules for half of the demands: at most one for a label, and none for one
// that is required.
func drawRules(r *rand.Rand, labels []scheduler.Label) (rules []scheduler.LabelRule) {
	if r.IntN(2) == 0 {
		return nil
	}
	named := make(map[string]bool)
	for _, l := range labels {
		named[l.Name] = true
	}
	for _, x := range subset(r, someRules, 0.25) {
		if !named[x.Name] {
			named[x.Name], rules = true, append(rules, x)
		}
	}
	return rules
}

// labelsToAdd are those of someLabels, and any other value of the same names, which is the
// first choice.
var labelsToAdd = append([]scheduler.Label{{Name: "disk", Value: scheduler.AnyValue}, {Name: "zone", Value: scheduler.AnyValue}}, someLabels...)

// bruteForceLabels tries to change the labels of a worker. Of several labels that suffice it
// returns the first one, as a view does.
func (st *randomState) bruteForceLabels(t pushed, d scheduler.Demand, id scheduler.WorkerID, w scheduler.Capacity) (found []scheduler.Change) {
	for _, l := range labelsToAdd {
		c := scheduler.Change{Kind: scheduler.AddLabel, Worker: id, Label: l}
		if !slices.Contains(w.Labels, l) && st.apply(t, d, c) {
			found = append(found, c)
			break
		}
	}
	for _, l := range w.Labels {
		if c := (scheduler.Change{Kind: scheduler.RemoveLabel, Worker: id, Label: l}); st.apply(t, d, c) {
			found = append(found, c)
		}
	}
	return found
}

// bruteForceRules tries to drop each rule of a task.
func (st *randomState) bruteForceRules(t pushed, d scheduler.Demand) (found []scheduler.Change) {
	for _, r := range d.Rules {
		if c := (scheduler.Change{Kind: scheduler.DropLabel, Label: scheduler.Label{Name: r.Name, Value: r.Text()}}); st.apply(t, d, c) {
			found = append(found, c)
		}
	}
	return found
}

// withoutLabel returns a demand without a label, or without the rule of this text.
func withoutLabel(d scheduler.Demand, l scheduler.Label) scheduler.Demand {
	d.Labels = slices.DeleteFunc(slices.Clone(d.Labels), func(x scheduler.Label) bool { return x == l })
	d.Rules = slices.DeleteFunc(slices.Clone(d.Rules), func(r scheduler.LabelRule) bool { return r.Name == l.Name && r.Text() == l.Value })
	return d
}

// offers returns each choice of labels with which a worker fulfills a demand.
func offers(d scheduler.Demand) [][]scheduler.Label {
	list := [][]scheduler.Label{d.Labels}
	for _, r := range d.Rules {
		if r.Not {
			continue
		}
		values := r.Values
		if len(values) == 0 {
			values = []string{scheduler.AnyValue, "eu", "us", "ssd"}
		}
		var more [][]scheduler.Label
		for _, before := range list {
			for _, v := range values {
				more = append(more, append(slices.Clip(before), scheduler.Label{Name: r.Name, Value: v}))
			}
		}
		list = more
	}
	return list
}

// satisfiable returns a demand without rules that contradict its labels.
func satisfiable(d scheduler.Demand) scheduler.Demand {
	d.Rules = slices.DeleteFunc(d.Rules, func(r scheduler.LabelRule) bool { return r.Not && !meets(d.Labels, r) })
	return d
}

// labelSets are labels of workers, one of which fulfills each satisfiable demand with one
// label and one rule.
var labelSets = [][]scheduler.Label{someLabels, nil, someLabels[:1], someLabels[1:2], someLabels[2:], {{Name: "zone", Value: "other"}}}
