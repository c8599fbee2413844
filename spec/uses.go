package spec

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxUses is how many limits one task may use.
const maxUses = 4

// useProblem checks the name of a limit as tasks use it: NAME or NAME/KEY.
func useProblem(use string) problem {
	if p := plainText(use); p.bad() {
		return problem{p.what, "write the name itself: all items of an array use the same limits"}
	}
	name, key, keyed := strings.Cut(use, "/")
	if keyed && key == "*" {
		return problem{fmt.Sprintf("%s names all keys of a limit", quote(use)), "name one key, such as " + name + "/acme"}
	}
	if p := nameProblem(name); p.bad() || !keyed {
		return p
	}
	return nameProblem(key)
}

// limitNameProblem checks the name of a limit: NAME, or NAME/* for a counter for each key.
func limitNameProblem(name string) problem {
	group, key, keyed := strings.Cut(name, "/")
	if p := nameProblem(group); p.bad() || !keyed || key == "*" {
		return p
	}
	return problem{quote(name) + " names one key of a limit", "set " + quote(group+"/*") + ", which counts each key by itself"}
}

// CheckLimit checks the name and the settings of a limit. The error is [Faults].
func CheckLimit(name string, l *dtaskv1.LimitSettings) error {
	var faults Faults
	add := func(where string, p problem) {
		if p.bad() {
			faults = append(faults, Fault{Where: where, What: p.what, Do: p.do})
		}
	}
	add("name", limitNameProblem(name))
	if l.GetRunning()+l.GetRate()+l.GetPeriodMs()+l.GetBurst() == 0 {
		add("running", problem{"missing, as is a rate: the limit would allow everything", "set one of them, or both"})
	}
	faults = append(faults, rateFaults("", l.GetRate(), l.GetPeriodMs(), l.GetBurst())...)
	if len(faults) > 0 {
		return faults
	}
	return nil
}

func useCountProblem(n int) problem {
	if n <= maxUses {
		return problem{}
	}
	return problem{fmt.Sprintf("lists %d limits", n), fmt.Sprintf("at most %d", maxUses)}
}

// uses reads a list of names of limits.
func (r *reader) uses(n *yaml.Node) (names []string, ok bool) {
	nodes, ok := r.items(n, "uses: [db, tenant/acme]")
	if !ok || !r.holds(n, useCountProblem(len(nodes))) {
		return nil, false
	}
	for i, item := range nodes {
		item = deref(item)
		r.enterItem(i)
		name, fine := r.checked(item, useProblem)
		if fine && slices.Contains(names, name) {
			fine = r.holds(item, problem{"duplicate " + quote(name), "remove one of them"})
		}
		ok = ok && fine
		r.leave()
		names = append(names, name)
	}
	slices.Sort(names)
	return names, ok
}

// uses checks the names of limits of a decoded policy.
func (c *Checker) uses(at string, names []string) {
	c.refuseIn(at, "uses", useCountProblem(len(names)))
	for i, name := range names {
		p := useProblem(name)
		if !p.bad() && i > 0 && names[i-1] >= name {
			p = problem{fmt.Sprintf("%s follows %s", quote(name), quote(names[i-1])), "send them sorted and once"}
		}
		c.refuseIn(at, fmt.Sprintf("uses[%d]", i), p)
	}
}

// UsePosition returns where a job file first names a limit in uses: line and column from 1, or
// 0 if it does not.
func UsePosition(text []byte, use string) (line, column int) {
	for _, d := range split(text) {
		var root yaml.Node
		if yaml.Unmarshal(d.text, &root) != nil {
			continue
		}
		if n := findUse(&root, use); n != nil {
			return d.line + n.Line, n.Column
		}
	}
	return 0, 0
}

// findUse returns the item of a list under the key uses that has a text; nil without one.
func findUse(n *yaml.Node, use string) *yaml.Node {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "uses" {
			at := slices.IndexFunc(child.Content, func(item *yaml.Node) bool { return item.Value == use })
			if at >= 0 {
				return child.Content[at]
			}
		}
		if found := findUse(child, use); found != nil {
			return found
		}
	}
	return nil
}
