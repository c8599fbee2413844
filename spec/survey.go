package spec

import (
	"fmt"

	"go.yaml.in/yaml/v4"
)

// survey walks the whole tree once before any alias is resolved. It reports
// duplicate keys and unknown tags, and whether the tree is safe to walk: no
// alias inside its own anchor, no alias bomb, bounded nesting.
func (r *reader) survey(root *yaml.Node) bool {
	s := &surveyor{r: r, anchors: map[*yaml.Node]extent{}}
	s.measure(root)
	return !s.unsafe
}

// extent is the size of a node with all aliases resolved.
type extent struct {
	weight int // bytes of text, plus nodeWeight per node
	depth  int
	open   bool // being measured: an alias to it would be endless
}

type surveyor struct {
	r       *reader
	anchors map[*yaml.Node]extent
	grown   int // expansion by the aliases so far
	nested  int // current depth of the walk
	unsafe  bool
}

func (s *surveyor) refuse(n *yaml.Node, what, do string) {
	s.unsafe = true
	s.r.fault(n, what, do)
}

func (s *surveyor) measure(n *yaml.Node) extent {
	if s.unsafe {
		return extent{}
	}
	if n.Kind == yaml.AliasNode {
		return s.follow(n)
	}
	if n.Anchor != "" {
		s.anchors[n] = extent{open: true}
	}
	e := extent{weight: nodeWeight + len(n.Value), depth: 1}
	s.tag(n)
	if s.nested++; s.nested > maxDepth {
		s.refuse(n, fmt.Sprintf("is nested deeper than %d levels", maxDepth), "reduce the nesting")
		return e
	}
	for i, child := range n.Content {
		c := s.child(n, i, child)
		e.weight, e.depth = min(e.weight+c.weight, 2*maxGrowth), max(e.depth, c.depth+1)
	}
	s.nested--
	if n.Kind == yaml.MappingNode {
		s.duplicates(n)
	}
	if e.depth > maxDepth && !s.unsafe {
		s.refuse(n, fmt.Sprintf("is nested deeper than %d levels, aliases followed", maxDepth), "reduce the nesting")
	}
	if n.Anchor != "" {
		s.anchors[n] = e
	}
	return e
}

// child measures a child under the path that messages show.
func (s *surveyor) child(n *yaml.Node, i int, child *yaml.Node) extent {
	switch {
	case n.Kind == yaml.SequenceNode:
		s.r.enterItem(i)
	case i%2 == 1:
		s.r.enter(n.Content[i-1].Value)
	default:
		return s.measure(child)
	}
	defer s.r.leave()
	return s.measure(child)
}

func (s *surveyor) follow(n *yaml.Node) extent {
	e, known := s.anchors[n.Alias]
	if !known {
		// The composer knows the anchor, so the node must exist; measure it now.
		return s.measure(n.Alias)
	}
	if e.open {
		s.refuse(n, fmt.Sprintf("alias *%s is inside its own anchor", n.Value), "write the value out")
		return extent{}
	}
	if s.grown += e.weight; s.grown > maxGrowth {
		s.refuse(n, "aliases expand to more than 64 MiB", "use fewer aliases")
	}
	return e
}

// tag rejects tags that JSON has no equivalent for.
func (s *surveyor) tag(n *yaml.Node) {
	switch n.Tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!timestamp", "!!map", "!!seq", "!!merge", "":
	default:
		s.r.fault(n, fmt.Sprintf("unknown tag %s", quote(n.Tag)), "leave the tag out, or quote the text")
	}
}

// duplicates reports duplicate keys of a mapping.
func (s *surveyor) duplicates(n *yaml.Node) {
	const few = 16
	if len(n.Content) <= 2*few {
		for i := 2; i < len(n.Content); i += 2 {
			for j := 0; j < i; j += 2 {
				if sameKey(n.Content[i], n.Content[j]) {
					s.duplicate(n.Content[i], n.Content[j])
					break
				}
			}
		}
		return
	}
	type key struct{ tag, value string }
	first := make(map[key]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := deref(n.Content[i])
		if k.Kind != yaml.ScalarNode {
			continue
		}
		at := key{keyTag(k), k.Value}
		if f, known := first[at]; known {
			s.duplicate(n.Content[i], f)
		} else {
			first[at] = n.Content[i]
		}
	}
}

func sameKey(a, b *yaml.Node) bool {
	a, b = deref(a), deref(b)
	return a.Kind == yaml.ScalarNode && b.Kind == yaml.ScalarNode && a.Value == b.Value && keyTag(a) == keyTag(b)
}

// keyTag distinguishes the merge key; all other keys are compared as text.
func keyTag(n *yaml.Node) string {
	if n.Tag == "!!merge" {
		return n.Tag
	}
	return ""
}

func (s *surveyor) duplicate(second, first *yaml.Node) {
	do := "remove one of them"
	if keyTag(deref(second)) != "" {
		do = "merge several with <<: [*a, *b]"
	}
	s.r.fault(second, fmt.Sprintf("duplicate key %s, first at %d:%d", quote(deref(second).Value), first.Line, first.Column), do)
}

// deref resolves an alias. YAML has no aliases of aliases.
func deref(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
