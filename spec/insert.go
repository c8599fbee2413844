package spec

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/nearest"
)

// Values of parameters are inserted into the tree of a file before its fields are read.
// So they may stand in any value, and each field is checked with what was inserted.

const paramPrefix = "params."

// foreignPrefixes begin parameters in other systems.
var foreignPrefixes = []string{"param", "parameter", "parameters", "input", "inputs", "var", "vars"}

// inserter replaces the expressions ${{ params.NAME }} in a tree.
type inserter struct {
	r        *reader
	declared []*param
	skip     *yaml.Node // the declarations
	inserted int        // bytes
	found    bool       // an expression was replaced
}

// insertParams replaces the expressions of parameters in a tree that survey found safe.
// It returns false if it found a fault.
func (r *reader) insertParams(root, declarations *yaml.Node, declared []*param) bool {
	before := r.total
	in := &inserter{r: r, declared: declared, skip: declarations}
	in.walk(root)
	if in.found && r.total == before {
		r.survey(root) // aliases repeat what was inserted
	}
	return r.total == before
}

// walk replaces expressions in a node and in all nodes below. It doesn't follow aliases:
// their anchors are in the same tree.
func (in *inserter) walk(n *yaml.Node) {
	if n == in.skip {
		return
	}
	switch n.Kind {
	case yaml.ScalarNode:
		if array.Opens(n.Value) {
			in.insert(n)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			in.r.enterItem(i)
			in.walk(item)
			in.r.leave()
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			in.key(n.Content[i])
			in.r.enter(n.Content[i].Value)
			in.walk(n.Content[i+1])
			in.r.leave()
		}
	case yaml.DocumentNode, yaml.AliasNode, yaml.StreamNode:
	}
}

// key reports parameters in a key.
func (in *inserter) key(n *yaml.Node) {
	if !array.Opens(n.Value) {
		return
	}
	array.Replace(n.Value, func(expression string) (string, bool) {
		if strings.HasPrefix(expression, paramPrefix) {
			in.r.fault(n, "has a parameter in a field name", "insert parameters into values only")
		}
		return "", false
	})
}

// insert replaces the expressions in a text.
func (in *inserter) insert(n *yaml.Node) {
	if !isText(n) {
		return
	}
	var last *param
	out, whole := array.Replace(n.Value, func(expression string) (string, bool) {
		p := in.param(n, expression)
		if p == nil {
			return "", false
		}
		last, in.found = p, true
		value := in.r.values[p.name]
		in.inserted += len(value)
		return value, true
	})
	if in.inserted > maxGrowth {
		in.r.fault(n, "parameters expand to more than 64 MiB", "insert them less often")
		in.inserted = 0
		return
	}
	if last != nil && in.joined(n.Value, out) {
		in.r.fault(n, "a parameter and the text beside it would become an expression, or would no longer be one", "write a character that is not $ or { between them")
		return
	}
	if last != nil {
		if in.r.inserted == nil {
			in.r.inserted = make(map[*yaml.Node]struct{})
		}
		in.r.inserted[n] = struct{}{}
	}
	if n.Value = out; !whole {
		return
	}
	switch last.is {
	case numberParam:
		n.Tag = "!!int"
		if strings.ContainsAny(out, ".eE") {
			n.Tag = "!!float"
		}
	case booleanParam:
		n.Tag = "!!bool"
	case textParam, durationParam:
		return
	}
	if in.r.typed == nil {
		in.r.typed = make(map[*yaml.Node]struct{})
	}
	in.r.typed[n] = struct{}{}
}

// joined reports whether an inserted value and the text beside it have formed ${{ or
// $${{, which would be replaced later.
func (in *inserter) joined(text, out string) bool {
	separate, _ := array.Replace(text, func(expression string) (string, bool) {
		return "\x00", strings.HasPrefix(expression, paramPrefix)
	})
	for _, s := range []string{"${{", "$${{"} {
		if strings.Count(separate, s) != strings.Count(out, s) {
			return true
		}
	}
	return false
}

// param returns the parameter that an expression inserts; nil if it is another
// expression, or an unknown parameter, which is a fault.
func (in *inserter) param(at *yaml.Node, expression string) *param {
	prefix, name, dotted := strings.Cut(expression, ".")
	if !dotted {
		return nil
	}
	if prefix+"." != paramPrefix {
		if slices.Contains(foreignPrefixes, prefix) || nearest.Name(prefix, slices.Values([]string{"params"})) != "" {
			in.r.fault(at, "unknown expression "+quote(expression), fmt.Sprintf("write ${{ %s%s }} for a parameter of the job", paramPrefix, name))
		}
		return nil
	}
	names := make([]string, len(in.declared))
	for i, p := range in.declared {
		if p.name == name {
			return p
		}
		names[i] = p.name
	}
	do := "declare it under job: " + paramForm
	if n := nearest.Name(name, slices.Values(names)); n != "" {
		do = fmt.Sprintf("did you mean %q?", n)
	} else if len(names) > 0 {
		do = "the parameters are " + strings.Join(names, ", ")
	}
	in.r.fault(at, "unknown parameter "+quote(name), do)
	return nil
}
