package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxRuleValues is how many values one rule about a label has.
const maxRuleValues = 64

const (
	anyValue = "*"
	notSign  = "!"
)

// labelRule is what a task requires of one label: one of some values, none of them, or any.
type labelRule struct {
	values []string // none: any value
	not    bool
}

// labelRules reads a mapping from names of labels to rules, and merges it into a copy of base.
func (r *reader) labelRules(e entry, base map[string]labelRule) map[string]labelRule {
	out := dictionary(r, e.value, base, e.key+`: {zone: [eu, us], model: "!k80", disk: "*"}`, workerLabelProblem, r.labelRule)
	r.holds(e.value, labelsProblem(len(out)))
	return out
}

// labelRule reads a rule: a value, a list of values, or any of them with the signs ! and *.
func (r *reader) labelRule(e entry) (rule labelRule, ok bool) {
	n := e.value
	if n.Kind != yaml.SequenceNode {
		text, fine := r.ruleText(n)
		if fine && text == anyValue {
			return labelRule{}, true
		}
		value, not, good := r.ruleValue(n, text)
		return labelRule{[]string{value}, not}, fine && good
	}
	if len(n.Content) == 0 {
		r.fault(n, "is empty", "write the values that fit, or leave the label out")
		return rule, false
	}
	ok = r.holds(n, ruleValuesProblem(len(n.Content)))
	for i, item := range n.Content {
		r.enterItem(i)
		item = deref(item)
		text, fine := r.ruleText(item)
		value, not, good := r.ruleValue(item, text)
		switch {
		case !fine || !good:
			ok = false
		case text == anyValue:
			r.fault(item, "* is any value", "write it alone: "+e.key+`: "*"`)
			ok = false
		case i > 0 && not != rule.not:
			r.fault(item, "some values have a ! and others have none", "write those that fit, or all that don't, each with a !")
			ok = false
		case slices.Contains(rule.values, value):
			r.fault(item, "duplicate "+quote(text), "remove one of them")
			ok = false
		}
		if i == 0 {
			rule.not = not
		}
		rule.values = append(rule.values, value)
		r.leave()
	}
	return rule, ok
}

// ruleText reads the text of a rule. YAML takes an unquoted !value for a tag.
func (r *reader) ruleText(n *yaml.Node) (string, bool) {
	if n.Kind == yaml.ScalarNode && strings.HasPrefix(n.Tag, notSign) && !strings.HasPrefix(n.Tag, "!!") && n.Value == "" {
		return "", false // reported elsewhere
	}
	return r.checked(n, plainLabelValue)
}

// ruleValue splits a text into the sign and the value.
func (r *reader) ruleValue(n *yaml.Node, text string) (value string, not, ok bool) {
	value, not = strings.CutPrefix(text, notSign)
	return value, not, !not || r.holds(n, ruleValueProblem(value))
}

func plainLabelValue(s string) problem {
	if p := labelValueProblem(s); p.bad() {
		return p
	}
	return plainText(s)
}

// ruleValueProblem checks a value that may be excluded.
func ruleValueProblem(value string) problem {
	switch value {
	case "":
		return problem{"! has no value", `write the value that does not fit, as in "!k80"`}
	case anyValue:
		return problem{"no rule excludes all values of a label", "leave it out, or give the other workers a label"}
	}
	return signProblem(value)
}

// signProblem reports values that a job file takes for a rule.
func signProblem(value string) problem {
	if value == anyValue || strings.HasPrefix(value, notSign) {
		return problem{fmt.Sprintf("the value %s has a sign of rules", quote(value)), "values must not be * or begin with !"}
	}
	return problem{}
}

func ruleValuesProblem(n int) problem {
	if n <= maxRuleValues {
		return problem{}
	}
	return problem{fmt.Sprintf("has %d values", n), fmt.Sprintf("at most %d", maxRuleValues)}
}

// protoRules splits rules into labels that have one value, and the others by name.
func protoRules(rules map[string]labelRule) (require map[string]string, others []*dtaskv1.LabelRule) {
	for _, name := range namesOf(rules) {
		switch x := rules[name]; {
		case len(x.values) == 1 && !x.not:
			if require == nil {
				require = make(map[string]string)
			}
			require[name] = x.values[0]
		default:
			others = append(others, &dtaskv1.LabelRule{Name: name, Values: x.values, Not: x.not})
		}
	}
	return require, others
}

// protoPreferences returns rules by name.
func protoPreferences(rules map[string]labelRule) (list []*dtaskv1.LabelRule) {
	for _, name := range namesOf(rules) {
		list = append(list, &dtaskv1.LabelRule{Name: name, Values: rules[name].values, Not: rules[name].not})
	}
	return list
}

// strategies are how one of the workers that fit is chosen.
var strategies = []keyword[dtaskv1.PlacementStrategy]{
	{"spread", dtaskv1.PlacementStrategy_PLACEMENT_STRATEGY_SPREAD},
	{"pack", dtaskv1.PlacementStrategy_PLACEMENT_STRATEGY_PACK},
	{"random", dtaskv1.PlacementStrategy_PLACEMENT_STRATEGY_RANDOM},
}

// checkPlacement checks what the tasks of a decoded job require and prefer.
func (c *Checker) checkPlacement(at string, p *dtaskv1.TaskPolicy) {
	c.checkRequire(at, p)
	if len(p.GetPrefer()) > 0 {
		c.labelRules(at+"prefer", p.GetPrefer(), nil)
	}
	if p.GetPlace() != 0 {
		c.refuseIn(at, "place", enumProblem(p.GetPlace(), strategies))
	}
	if p.GetAffinity() != "" {
		c.refuseIn(at, "affinity", affinityProblem(p.GetAffinity()))
	}
}

// formatPlacement adds what a task requires of its worker, and how one is chosen, as a job file
// has it.
func formatPlacement(o object, p *dtaskv1.TaskPolicy) {
	if require := formatRequire(p); len(require) > 0 {
		o["require"] = require
	}
	if prefer := formatRules(p.GetPrefer()); len(prefer) > 0 {
		o["prefer"] = prefer
	}
	set(o, "place", keywordOf(strategies, p.GetPlace()), p.GetPlace() != 0)
	set(o, "affinity", p.GetAffinity(), p.GetAffinity() != "")
}

// checkRequire checks the labels that the tasks of a decoded job require.
func (c *Checker) checkRequire(at string, p *dtaskv1.TaskPolicy) {
	c.labels(at+"require", p.GetRequire())
	for _, name := range namesOf(p.GetRequire()) {
		c.refuse(at+"require", reservedLabelProblem(name))
		c.refuseIn(at, "require."+name, signProblem(p.GetRequire()[name]))
	}
	if len(p.GetRules()) > 0 {
		c.refuse(at+"require", labelsProblem(len(p.GetRequire())+len(p.GetRules())))
		c.labelRules(at+"rules", p.GetRules(), p.GetRequire())
	}
}

// labelRules checks a list of rules, whose names are not among others.
func (c *Checker) labelRules(at string, rules []*dtaskv1.LabelRule, others map[string]string) {
	c.refuse(at, labelsProblem(len(rules)))
	seen := make(map[string]bool, len(rules))
	for i, x := range rules {
		item := fmt.Sprintf("%s[%d]", at, i)
		c.refuseIn(item, ".name", workerLabelProblem(x.GetName()))
		if _, twice := others[x.GetName()]; twice || seen[x.GetName()] {
			c.refuse(item, problem{"duplicate " + quote(x.GetName()), "send one rule for each label"})
		}
		seen[x.GetName()] = true
		c.refuseIn(item, ".values", ruleValuesProblem(len(x.GetValues())))
		if x.GetNot() && len(x.GetValues()) == 0 {
			c.refuseIn(item, ".values", problem{"is empty", "send the values that do not fit"})
		}
		for k, v := range x.GetValues() {
			check := signProblem
			if x.GetNot() {
				check = ruleValueProblem
			}
			c.refuseIn(item, ".values", labelValueProblem(v))
			c.refuseIn(item, ".values", check(v))
			if slices.Contains(x.GetValues()[:k], v) {
				c.refuseIn(item, ".values", problem{"duplicate " + quote(v), "remove one of them"})
			}
		}
	}
}

// formatRequire writes the labels that a task requires as a job file has them.
func formatRequire(p *dtaskv1.TaskPolicy) object {
	o := formatRules(p.GetRules())
	for name, value := range p.GetRequire() {
		o[name] = value
	}
	return o
}

func formatRules(rules []*dtaskv1.LabelRule) object {
	o := object{}
	for _, x := range rules {
		switch texts := ruleTexts(x); len(texts) {
		case 0:
			o[x.GetName()] = anyValue
		case 1:
			o[x.GetName()] = texts[0]
		default:
			o[x.GetName()] = texts
		}
	}
	return o
}

// ruleTexts returns the values of a rule with their signs.
func ruleTexts(x *dtaskv1.LabelRule) []string {
	texts := slices.Clone(x.GetValues())
	if x.GetNot() {
		for i := range texts {
			texts[i] = notSign + texts[i]
		}
	}
	return texts
}

// RuleText returns what a rule says about the values of its label, as in a job file: *, !k80
// or [eu, us].
func RuleText(x *dtaskv1.LabelRule) string {
	switch texts := ruleTexts(x); len(texts) {
	case 0:
		return anyValue
	case 1:
		return texts[0]
	default:
		return "[" + strings.Join(texts, ", ") + "]"
	}
}

// Required returns what a task requires of labels: the text of a rule for each name. It is
// nil if it requires none.
func Required(p *dtaskv1.TaskPolicy) map[string]string {
	if len(p.GetRules()) == 0 {
		return p.GetRequire()
	}
	texts := make(map[string]string, len(p.GetRequire())+len(p.GetRules()))
	maps.Copy(texts, p.GetRequire())
	for _, x := range p.GetRules() {
		texts[x.GetName()] = RuleText(x)
	}
	return texts
}
