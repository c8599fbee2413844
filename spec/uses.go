package spec

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxUses is how many limits one task may use.
const maxUses = 4

// useProblem checks the name of a limit as tasks use it: NAME or NAME/KEY.
func useProblem(use string) problem {
	if p := plainText(use); p.bad() {
		return problem{p.what, "write the name itself: each item would need a queue of its own"}
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
func limitNameProblem(name string) problem { return nameProblem(strings.TrimSuffix(name, "/*")) }

// CheckLimit checks the name and the value of a limit. The error is [Faults].
func CheckLimit(name string, running uint32) error {
	var faults Faults
	if p := limitNameProblem(name); p.bad() {
		faults = append(faults, Fault{Where: "name", What: p.what, Do: p.do})
	}
	if running == 0 {
		faults = append(faults, Fault{Where: "running", What: "a limit of 0 lets nothing start", Do: "must be 1 or more"})
	}
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
