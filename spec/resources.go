package spec

import (
	"fmt"
	"maps"

	"go.yaml.in/yaml/v4"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxAlternatives is how many lists of resources a task may have, the first one included.
const maxAlternatives = 8

// resources are what a task takes of its worker, in thousandths: the amounts by name, or one
// of several alternatives.
type resources struct {
	amounts map[string]int64   // the first alternative
	others  []map[string]int64 // the further ones
}

// resources reads a mapping of amounts, or a list of them. A mapping is merged into one of the
// defaults; otherwise the value of the task replaces that of the defaults.
func (r *reader) resources(n *yaml.Node, base resources) resources {
	n = deref(n)
	if n.Kind == yaml.SequenceNode {
		return r.alternatives(n)
	}
	if len(base.others) > 0 {
		base = resources{}
	}
	return resources{amounts: r.amounts(n, base.amounts)}
}

// amounts reads one mapping of amounts. An amount of 0 removes that of the defaults.
func (r *reader) amounts(n *yaml.Node, base map[string]int64) map[string]int64 {
	out := dictionary(r, n, base, "{cpu: 1, memory: 256MiB}", labelNameProblem, r.amount)
	for name, v := range out {
		if v == 0 {
			delete(out, name)
		}
	}
	r.holds(n, labelsProblem(len(out)))
	return out
}

// alternatives reads a list of mappings, the first one to be tried first.
func (r *reader) alternatives(n *yaml.Node) (out resources) {
	if !r.holds(n, alternativesProblem(len(n.Content))) {
		return out
	}
	var all []map[string]int64
	for i, item := range n.Content {
		item = deref(item)
		r.enterItem(i)
		amounts := r.amounts(item, nil)
		if item.Kind == yaml.MappingNode && (len(amounts) > 0 || len(item.Content) == 0) { // else its faults are reported
			r.holds(item, alternativeProblem(amounts, all))
		}
		r.leave()
		all = append(all, amounts)
	}
	return resources{amounts: all[0], others: all[1:]}
}

func alternativesProblem(n int) problem {
	switch {
	case n == 0:
		return problem{"has no alternative", "write a mapping such as {cpu: 1}, or leave it out"}
	case n == 1:
		return problem{"has a single alternative", "write it without a list: {cpu: 1}"}
	case n > maxAlternatives:
		return problem{fmt.Sprintf("has %d alternatives", n), fmt.Sprintf("at most %d", maxAlternatives)}
	}
	return problem{}
}

// alternativeProblem checks an alternative that follows others.
func alternativeProblem(amounts map[string]int64, before []map[string]int64) problem {
	if len(amounts) == 0 {
		return problem{"an alternative has no resource", "name at least one, such as {cpu: 1}"}
	}
	for i, other := range before {
		if maps.Equal(amounts, other) {
			return problem{fmt.Sprintf("is the same as alternative %d", i+1), "remove one of them"}
		}
	}
	return problem{}
}

// amount reads the amount of a resource, in thousandths. Memory and disk are
// sizes; all other resources are counted.
func (r *reader) amount(e entry) (int64, bool) {
	const most = maxAmount * 1000
	if e.key != "memory" && e.key != "disk" {
		return r.decimal(e.value, 0, most)
	}
	n := e.value
	if !isText(n) && (n.Tag != "!!int" && n.Tag != "!!float" || !isPlainNumber(n.Value)) {
		r.fault(n, "must be a size, not "+kind(n), "write it like 64MiB, 1GB or 512")
		return 0, false
	}
	v, p := size(n.Value)
	return v * 1000, r.holds(n, p)
}

func (x *resources) proto() (first map[string]int64, others []*dtaskv1.ResourceList) {
	for _, amounts := range x.others {
		others = append(others, &dtaskv1.ResourceList{Resources: amounts})
	}
	return x.amounts, others
}

// resources checks the amounts of a decoded policy.
func (c *Checker) resources(at string, p *dtaskv1.TaskPolicy) {
	c.amounts(at+"resources", p.GetResources())
	if len(p.GetAlternatives()) == 0 {
		return
	}
	c.refuse(at+"alternatives", alternativesProblem(1+len(p.GetAlternatives())))
	c.refuse(at+"resources", alternativeProblem(p.GetResources(), nil))
	all := []map[string]int64{p.GetResources()}
	for i, list := range p.GetAlternatives() {
		item := fmt.Sprintf("%salternatives[%d]", at, i)
		c.amounts(item, list.GetResources())
		c.refuse(item, alternativeProblem(list.GetResources(), all))
		all = append(all, list.GetResources())
	}
}

func (c *Checker) amounts(at string, amounts map[string]int64) {
	c.refuse(at, labelsProblem(len(amounts)))
	for _, name := range namesOf(amounts) {
		c.refuse(at, labelNameProblem(name))
		if v := amounts[name]; v <= 0 || v > maxAmount*1000 {
			c.refuse(at+"."+name, problem{fmt.Sprintf("%d is out of range", v), "send 1 to 2^50 thousandths × 1000, and leave out what is zero"})
		}
	}
}

// formatResources adds the resources of a policy as a job file has them.
func formatResources(o object, p *dtaskv1.TaskPolicy) {
	amounts := func(of map[string]int64) object {
		list := object{}
		for name, amount := range of {
			list[name] = decimal(amount)
		}
		return list
	}
	first := amounts(p.GetResources())
	if len(p.GetAlternatives()) == 0 {
		set(o, "resources", first, len(first) > 0)
		return
	}
	all := []object{first}
	for _, other := range p.GetAlternatives() {
		all = append(all, amounts(other.GetResources()))
	}
	o["resources"] = all
}
