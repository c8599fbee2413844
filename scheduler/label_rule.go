package scheduler

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// AnyValue stands for any value of a label in obstacles and changes.
const AnyValue = "*"

// A LabelRule is a condition on one label of a worker.
type LabelRule struct {
	Name string
	// Values are those of which the worker must have one; none: any value.
	Values []string
	// Not: the worker must have none of Values. One without the label fits.
	Not bool
}

// Text returns what the rule says about the values, as a job file has it: "[eu, us]",
// "!eu" or "*".
func (r LabelRule) Text() string {
	sign := ""
	if r.Not {
		sign = "!"
	}
	switch {
	case len(r.Values) == 0:
		return AnyValue
	case len(r.Values) == 1:
		return sign + r.Values[0]
	}
	return "[" + sign + strings.Join(r.Values, ", "+sign) + "]"
}

// String returns the rule as name=text.
func (r LabelRule) String() string { return r.Name + "=" + r.Text() }

// isLabel reports whether a rule requires one value, and is therefore a Label of a Demand.
func (r LabelRule) isLabel() bool { return len(r.Values) == 1 && !r.Not }

// A labelRule is a LabelRule with the numbers of the labels.
type labelRule struct {
	// values are labels of which the worker must have one or, with not, none. The one
	// of any value is the label's presence: see Scheduler.labelID.
	values []labelID
	not    bool
}

// labelID returns the number of a label. Each label implies another one, which stands for
// any label of its name, and is called its presence: it has no name, and that name as its
// value. Scheduler.presence has it at the number of the label.
func (s *Scheduler) labelID(l Label) labelID {
	id, known := s.labels[l]
	if known {
		return id
	}
	presence := labelID(len(s.labels)) //nolint:gosec // G115: names are far fewer than 2^32
	if l.Name != "" {
		presence = s.labelID(Label{Value: l.Name})
	}
	id = intern(s.labels, l)
	s.presence = append(s.presence, presence)
	return id
}

// labelRules returns rules in normal form with the numbers of the labels.
func (s *Scheduler) labelRules(rules []LabelRule) []labelRule {
	var out []labelRule
	for _, r := range rules {
		x := labelRule{not: r.Not}
		for _, v := range r.Values {
			x.values = append(x.values, s.labelID(Label{r.Name, v}))
		}
		if len(r.Values) == 0 {
			x.values = []labelID{s.labelID(Label{Value: r.Name})}
		}
		out = append(out, x)
	}
	return out
}

// normalRules splits rules into those that require one value, which are labels, and the
// others: a sorted copy without duplicates. One that forbids nothing is left out.
func normalRules(in []LabelRule) (labels []Label, rules []LabelRule) {
	for _, r := range in {
		r.Values = slices.Compact(slices.Sorted(slices.Values(r.Values)))
		switch {
		case r.isLabel():
			labels = append(labels, Label{r.Name, r.Values[0]})
		case len(r.Values) > 0 || !r.Not:
			rules = append(rules, r)
		}
	}
	slices.SortFunc(rules, compareRules)
	return labels, slices.CompactFunc(rules, func(a, b LabelRule) bool { return compareRules(a, b) == 0 })
}

// withoutImplied drops the rules that a required label of their name fulfills, such as the
// label of a queue those of its tasks.
func withoutImplied(rules []LabelRule, labels []Label) []LabelRule {
	return slices.DeleteFunc(rules, func(r LabelRule) bool {
		return !r.Not && slices.ContainsFunc(labels, func(l Label) bool {
			return l.Name == r.Name && (len(r.Values) == 0 || slices.Contains(r.Values, l.Value))
		})
	})
}

// normalPreferences returns rules in the same form, with those that are labels among them.
func normalPreferences(in []LabelRule) []LabelRule {
	labels, rules := normalRules(in)
	for _, l := range normalLabels(labels) {
		rules = append(rules, LabelRule{Name: l.Name, Values: []string{l.Value}})
	}
	slices.SortFunc(rules, compareRules)
	return rules
}

func compareRules(a, b LabelRule) int {
	sign := func(r LabelRule) int {
		if r.Not {
			return 1
		}
		return 0
	}
	return cmp.Or(strings.Compare(a.Name, b.Name), sign(a)-sign(b), slices.Compare(a.Values, b.Values))
}

// appendRules encodes rules in normal form. Only rules begin with a sign.
func appendRules(b []byte, rules []LabelRule) []byte {
	for _, r := range rules {
		sign := byte('+')
		if r.Not {
			sign = '-'
		}
		b = appendString(append(b, sign), r.Name)
		b = append(strconv.AppendInt(b, int64(len(r.Values)), 10), ' ')
		for _, v := range r.Values {
			b = appendString(b, v)
		}
	}
	return b
}

// meets reports whether the worker fulfills a rule.
func (w *worker) meets(r *labelRule) bool {
	for _, l := range r.values {
		if contains(w.labels, l) {
			return !r.not
		}
	}
	return r.not
}

// meetsAll reports whether the worker fulfills all of the rules.
func (w *worker) meetsAll(rules []labelRule) bool {
	for i := range rules {
		if !w.meets(&rules[i]) {
			return false
		}
	}
	return true
}

// ruleObstacles adds the rules of a class that the worker does not fulfill.
func (w *worker) ruleObstacles(c *class, out []Obstacle) []Obstacle {
	for i := range c.rules {
		r, d := &c.rules[i], &c.demand.Rules[i]
		switch {
		case w.meets(r):
		case len(d.Values) == 0:
			out = append(out, Obstacle{Kind: LabelMissing, Label: Label{d.Name, AnyValue}})
		case !r.not:
			out = append(out, Obstacle{Kind: LabelNotOneOf, Label: Label{d.Name, d.Text()}})
		default:
			for k, l := range r.values {
				if contains(w.labels, l) {
					out = append(out, Obstacle{Kind: LabelForbidden, Label: Label{d.Name, d.Values[k]}})
				}
			}
		}
	}
	return out
}
