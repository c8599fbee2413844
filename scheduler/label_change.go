package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// withLabel returns the labels of a worker with a further one, and its presence.
func (v *TaskView) withLabel(labels []labelID, l labelID) []labelID {
	return mergeSorted(labels, []labelID{l, v.presence[l]})
}

// withoutLabel returns the labels of a worker without one of them. Its presence stays: tasks
// that need no more than that have been assigned.
func withoutLabel(labels []labelID, l labelID) []labelID {
	return slices.DeleteFunc(slices.Clone(labels), func(x labelID) bool { return x == l })
}

// changeLabel gives the worker of a trial a label that its task requires, and reports with
// which one the task starts. For a rule with several values it is the first that is known to
// suffice.
func (t *trial) changeLabel(o Obstacle) (change Label, ok bool) {
	v := t.v
	try := func(l labelID) bool {
		t.w.labels = v.withLabel(t.from.labels, l)
		return t.starts()
	}
	if i := slices.Index(v.class.demand.Labels, o.Label); i >= 0 && o.Kind == LabelMissing {
		return o.Label, try(v.class.labels[i])
	}
	i := v.class.ruleOf(o.Label)
	for k, l := range v.class.rules[i].values {
		if !try(l) {
			continue
		}
		if o.Kind == LabelNotOneOf {
			o.Label.Value = v.class.demand.Rules[i].Values[k]
		}
		return o.Label, true
	}
	if o.Kind == LabelNotOneOf {
		return Label{}, false
	}
	return v.excluding(o.Label.Name, try)
}

// excluding returns the first value with which a trial succeeds among those that tasks before
// this one forbid: unlike any other value, it also keeps these away.
func (v *TaskView) excluding(name string, try func(labelID) bool) (Label, bool) {
	forbidden := make(map[string]labelID)
	for i := range v.ahead {
		c := v.ahead[i].class
		for k, d := range c.demand.Rules {
			for n, value := range d.Values {
				if d.Not && d.Name == name {
					forbidden[value] = c.rules[k].values[n]
				}
			}
		}
	}
	for _, value := range slices.Sorted(maps.Keys(forbidden)) {
		if try(forbidden[value]) {
			return Label{name, value}, true
		}
	}
	return Label{}, false
}

// compareValues orders the values of one label: AnyValue is first.
func compareValues(a, b Label) int {
	rank := func(l Label) int {
		if l.Value == AnyValue {
			return 0
		}
		return 1
	}
	return cmp.Or(rank(a)-rank(b), strings.Compare(a.Value, b.Value))
}

// leavesOpen reports whether the task requires any value of a label of which tasks before it
// forbid or require some: one of these would keep them away, or let more of them start before a
// turn by age.
func (v *TaskView) leavesOpen() bool {
	return slices.ContainsFunc(v.class.demand.Rules, func(r LabelRule) bool {
		return !r.Not && len(r.Values) == 0 && slices.ContainsFunc(v.ahead, func(a aheadQueue) bool {
			d := a.class.demand
			return slices.ContainsFunc(d.Labels, func(l Label) bool { return l.Name == r.Name }) ||
				slices.ContainsFunc(d.Rules, func(x LabelRule) bool { return len(x.Values) > 0 && x.Name == r.Name })
		})
	})
}

// ruleOf returns the number of a class's rule by its name and its text.
func (c *class) ruleOf(l Label) int {
	return slices.IndexFunc(c.demand.Rules, func(r LabelRule) bool { return !r.Not && r.Name == l.Name && r.Text() == l.Value })
}

// removeLabel takes a label that its task forbids from the worker of a trial, and reports
// whether the task starts then.
func (t *trial) removeLabel(o Obstacle) bool {
	c := t.v.class
	for i, d := range c.demand.Rules {
		if k := slices.Index(d.Values, o.Label.Value); d.Not && d.Name == o.Label.Name && k >= 0 {
			t.w.labels = withoutLabel(t.from.labels, c.rules[i].values[k])
			return t.starts()
		}
	}
	return false
}

// dropRules returns the rules of the task without which it starts.
func (v *TaskView) dropRules() (list []Change) {
	for i, r := range v.class.demand.Rules {
		c := v.class.copyDemand()
		c.rules = slices.Delete(slices.Clone(c.rules), i, i+1)
		rest := *c.demand
		rest.Rules = slices.Delete(slices.Clone(rest.Rules), i, i+1)
		c.pooled = pooled(&rest)
		if v.placed(c) {
			list = append(list, Change{Kind: DropLabel, Label: Label{r.Name, r.Text()}})
		}
	}
	return list
}

// maxOffers bounds the choices of labels for a worker that joins.
const maxOffers = 64

// labelOffers returns the labels with which a worker may fulfill what the task requires: one
// list for each choice of the values that rules leave open, up to maxOffers.
func (v *TaskView) labelOffers() (offers [][]Label, ids [][]labelID) {
	c := v.class
	offers, ids = [][]Label{slices.Clip(c.demand.Labels)}, [][]labelID{nil}
	for _, l := range c.labels {
		ids[0] = v.withLabel(ids[0], l)
	}
	for i, r := range c.rules {
		if r.not {
			continue
		}
		var moreOffers [][]Label
		var moreIDs [][]labelID
		for k, l := range r.values {
			d := &c.demand.Rules[i]
			label := Label{d.Name, AnyValue}
			if len(d.Values) > 0 {
				label.Value = d.Values[k]
			}
			for n := range offers {
				if len(moreOffers) < maxOffers {
					moreOffers = append(moreOffers, append(slices.Clip(offers[n]), label))
					moreIDs = append(moreIDs, v.withLabel(ids[n], l))
				}
			}
		}
		offers, ids = moreOffers, moreIDs
	}
	return offers, ids
}
