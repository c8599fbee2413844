package spec

import (
	"fmt"

	"go.yaml.in/yaml/v4"

	"github.com/dtask/dtask/internal/secretname"
)

// secretProblem checks the name of a secret.
func secretProblem(name string) problem {
	if p := plainText(name); p.bad() {
		return problem{p.what, "write the name itself: workers are chosen by it before an item is known"}
	}
	if p := nameProblem(name); p.bad() {
		return p
	}
	if secretname.IsHidden(name) {
		return problem{fmt.Sprintf("invalid name %s", quote(name)), "begin it with a letter, a digit, - or _"}
	}
	return problem{}
}

func secretCountProblem(n int) problem {
	if n <= secretname.Max {
		return problem{}
	}
	return problem{fmt.Sprintf("lists %d secrets", n), fmt.Sprintf("at most %d; put several values into one secret", secretname.Max)}
}

// secretVariables maps variables to the names of their secrets. Two secrets with one
// variable would hide each other.
type secretVariables map[string]string

func (s secretVariables) add(name string) problem {
	variable := secretname.Variable(name)
	other, taken := s[variable]
	switch {
	case !taken:
		s[variable] = name
		return problem{}
	case other == name:
		return problem{"duplicate " + quote(name), "remove one of them"}
	}
	return problem{fmt.Sprintf("%s has the same variable as %s: %s", quote(name), quote(other), variable), "rename one of the secrets on the workers"}
}

// secrets reads a list of names of secrets.
func (r *reader) secrets(n *yaml.Node) (names []string, ok bool) {
	nodes, ok := r.items(n, "secrets: [db, api-key]")
	if !ok || !r.holds(n, secretCountProblem(len(nodes))) {
		return nil, false
	}
	variables := make(secretVariables, len(nodes))
	for i, item := range nodes {
		item = deref(item)
		r.enterItem(i)
		name, fine := r.checked(item, secretProblem)
		ok = fine && r.holds(item, variables.add(name)) && ok
		r.leave()
		names = append(names, name)
	}
	return names, ok
}

// secrets checks the names of secrets of a decoded policy.
func (c *Checker) secrets(at string, names []string) {
	c.refuseIn(at, "secrets", secretCountProblem(len(names)))
	variables := make(secretVariables)
	for i, name := range names {
		p := secretProblem(name)
		if !p.bad() {
			p = variables.add(name)
		}
		c.refuseIn(at, fmt.Sprintf("secrets[%d]", i), p)
	}
}
