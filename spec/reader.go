package spec

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// wholeFile is the location of faults that belong to no field.
const wholeFile = "file"

// reader converts nodes to values. It tracks the current location for faults.
type reader struct {
	collector
	opt  Options
	path []step // from the top of the file
	// task is the ID of the task that is being read, which replaces the first
	// taskDepth steps of path.
	task      string
	taskDepth int
	// withoutFile is set for jobs that flags describe. They have no parameters: their
	// expressions are checked like any other.
	withoutFile bool
	// values of the parameters, by name; nil: none are declared.
	values map[string]string
	// typed are nodes that consist of the value of a number or boolean parameter. They
	// are numbers or booleans where the format has those, and texts everywhere else.
	typed map[*yaml.Node]struct{}
	// inserted are nodes with the value of a parameter: their text differs from the file's.
	inserted map[*yaml.Node]struct{}
	// scheduled is set for files that must have a schedule, and schedule is what they have.
	scheduled bool
	schedule  *Schedule
	// hasSchedule is set for files that have a schedule, before it is read: tasks may have
	// expressions of its runs.
	hasSchedule bool
}

// step is a key, or an index if name is empty.
type step struct {
	name  string
	index int
}

func (r *reader) enter(name string)   { r.path = append(r.path, step{name: name}) }
func (r *reader) enterItem(index int) { r.path = append(r.path, step{index: index}) }
func (r *reader) leave()              { r.path = r.path[:len(r.path)-1] }

// where formats the current location: job.tasks[3].retry, task "fetch":
// retry.max.
func (r *reader) where() string {
	if r.task == "" || len(r.path) < r.taskDepth {
		return joinSteps(r.path)
	}
	if len(r.path) == r.taskDepth {
		return taskWhere(r.task, "")
	}
	return taskWhere(r.task, joinSteps(r.path[r.taskDepth:]))
}

func taskWhere(id, field string) string {
	if field == "" {
		return "task " + quote(id)
	}
	return "task " + quote(id) + ": " + field
}

func joinSteps(path []step) string {
	if len(path) == 0 {
		return wholeFile
	}
	const shown = 12 // deeper than any field of the format
	var b strings.Builder
	for i, s := range path {
		if i == shown {
			b.WriteString("…")
			break
		}
		if s.name == "" {
			fmt.Fprintf(&b, "[%d]", s.index)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if plain := strings.IndexFunc(s.name, func(c rune) bool { return !isWordRune(c) && c != '-' }) < 0; plain && len(s.name) <= MaxNameLength {
			b.WriteString(s.name)
		} else {
			b.WriteString(quote(s.name))
		}
	}
	return b.String()
}

// fault adds a fault at a node.
func (r *reader) fault(n *yaml.Node, what, do string) {
	where := ""
	if len(r.kept) < maxKept {
		where = r.where()
	}
	r.add(max(n.Line, 1), max(n.Column, 1), where, what, do)
}

// holds reports whether there is no problem, and adds a fault otherwise.
func (r *reader) holds(n *yaml.Node, p problem) bool {
	if p.bad() {
		r.fault(n, p.what, p.do)
	}
	return !p.bad()
}

// entry is a field of a mapping. The value is not an alias.
type entry struct {
	key       string
	at, value *yaml.Node
}

// entries returns the fields of a mapping: its own in file order, then merged
// ones. Anything but a mapping is a fault.
func (r *reader) entries(n *yaml.Node, example string) []entry {
	n = deref(n)
	if n.Kind != yaml.MappingNode {
		r.fault(n, "must be a mapping, not "+kind(n), "write it like "+example)
		return nil
	}
	return r.gather(make([]entry, 0, len(n.Content)/2), n, nil)
}

// gather adds the fields of n that are not in taken, then those that n merges.
// If taken is nil, it adds all: the surveyor reports duplicates in one
// mapping.
func (r *reader) gather(into []entry, n *yaml.Node, taken map[string]struct{}) []entry {
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := deref(n.Content[i]), n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			r.fault(n.Content[i], "a field name must be text, not "+kind(key), "write a plain name")
			continue
		}
		if key.Tag == "!!merge" {
			merges = append(merges, value)
			continue
		}
		if taken != nil {
			if _, known := taken[key.Value]; known {
				continue
			}
			taken[key.Value] = struct{}{}
		}
		into = append(into, entry{key.Value, n.Content[i], deref(value)})
	}
	if len(merges) > 0 && taken == nil {
		taken = make(map[string]struct{}, len(into))
		for _, e := range into {
			taken[e.key] = struct{}{}
		}
	}
	for _, m := range merges {
		into = r.merge(into, deref(m), taken)
	}
	return into
}

// merge adds the fields of a merge key. Existing fields win.
func (r *reader) merge(into []entry, n *yaml.Node, taken map[string]struct{}) []entry {
	list := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		list = n.Content
	}
	for _, item := range list {
		if item = deref(item); item.Kind != yaml.MappingNode {
			r.fault(item, "<< merges mappings, not "+kind(item), "write <<: *anchor or <<: [*a, *b]")
			continue
		}
		into = r.gather(into, item, taken)
	}
	return into
}

// items returns the elements of a list. Anything else is a fault.
func (r *reader) items(n *yaml.Node, example string) ([]*yaml.Node, bool) {
	if n.Kind != yaml.SequenceNode {
		r.fault(n, "must be a list, not "+kind(n), "write it like "+example)
		return nil, false
	}
	return n.Content, true
}

// kind names the type of a node for messages.
func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode, yaml.DocumentNode, yaml.AliasNode, yaml.StreamNode:
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "nothing"
	}
	return "text"
}

// isText reports whether a node is text. That includes dates, which the format
// has no other use for, and nodes with unknown tags, which survey reports.
func isText(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && kind(n) == "text" }

// text reads text.
func (r *reader) text(n *yaml.Node) (string, bool) {
	if _, typed := r.typed[n]; typed || isText(n) {
		return n.Value, r.holds(n, textProblem(n.Value))
	}
	do := "write a text"
	if n.Kind == yaml.ScalarNode {
		do = `write a text, or "" for an empty one`
		if n.Tag != "!!null" {
			do = "quote it: " + strconv.Quote(n.Value)
		}
	}
	r.fault(n, "must be text, not "+kind(n), do)
	return "", false
}

// checked reads text and checks it against a rule.
func (r *reader) checked(n *yaml.Node, rule func(string) problem) (string, bool) {
	s, ok := r.text(n)
	return s, ok && r.holds(n, rule(s))
}

// texts reads a list of texts and checks each against a rule.
func (r *reader) texts(n *yaml.Node, example string, rule func(string) problem) ([]string, bool) {
	nodes, ok := r.items(n, example)
	if !ok {
		return nil, false
	}
	out := make([]string, len(nodes))
	for i, item := range nodes {
		r.enterItem(i)
		s, fine := r.checked(deref(item), rule)
		r.leave()
		out[i], ok = s, ok && fine
	}
	return out, ok
}

// dictionary reads a mapping whose keys and values are checked against rules,
// and merges it into a copy of base.
func dictionary[V any](r *reader, n *yaml.Node, base map[string]V, example string, keyRule func(string) problem, read func(e entry) (V, bool)) map[string]V {
	es := r.entries(n, example)
	out := make(map[string]V, len(base)+len(es))
	maps.Copy(out, base)
	for _, e := range es {
		if !r.holds(e.at, keyRule(e.key)) {
			continue
		}
		r.enter(e.key)
		if v, ok := read(e); ok {
			out[e.key] = v
		}
		r.leave()
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// number reads a whole number from low to high.
func (r *reader) number(n *yaml.Node, low, high int64) (int64, bool) {
	if n.Kind != yaml.ScalarNode || kind(n) != "a number" {
		do := "write a whole number"
		if isText(n) && isPlainNumber(n.Value) {
			do = "write it without quotes"
		}
		r.fault(n, "must be a whole number, not "+kind(n), do)
		return 0, false
	}
	if !isPlainNumber(n.Value) {
		r.fault(n, fmt.Sprintf("invalid number %s", quote(n.Value)), "write it in decimal digits only")
		return 0, false
	}
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil || v < low || v > high {
		r.fault(n, fmt.Sprintf("%s is out of range", n.Value), fmt.Sprintf("write a number from %s to %s", count(int(low)), count(int(high))))
		return 0, false
	}
	return v, true
}

// isPlainNumber reports whether s is an optional minus and decimal digits
// without a leading zero.
func isPlainNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	if s == "" || len(s) > 1 && s[0] == '0' {
		return false
	}
	return strings.IndexFunc(s, func(c rune) bool { return c < '0' || c > '9' }) < 0
}

// decimal reads a number with up to three places, in thousandths.
func (r *reader) decimal(n *yaml.Node, low, high int64) (int64, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" && n.Tag != "!!float" {
		r.fault(n, "must be a number, not "+kind(n), "write it like 2 or 0.5")
		return 0, false
	}
	v, p := thousandths(n.Value)
	if !r.holds(n, p) {
		return 0, false
	}
	if v < low || v > high {
		r.fault(n, fmt.Sprintf("%s is out of range", n.Value), fmt.Sprintf("write a number from %s to %s", plainThousandths(low), plainThousandths(high)))
		return 0, false
	}
	return v, true
}

func plainThousandths(v int64) string {
	if v%1000 == 0 {
		return count(int(v / 1000))
	}
	return strings.TrimRight(fmt.Sprintf("%d.%03d", v/1000, v%1000), "0")
}

// truth reads true or false.
func (r *reader) truth(n *yaml.Node) (v, ok bool) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!bool" {
		switch strings.ToLower(n.Value) {
		case "true":
			return true, true
		case "false":
			return false, true
		}
	}
	r.fault(n, "must be true or false, not "+kind(n), "write true or false")
	return false, false
}

// duration reads a duration in milliseconds.
func (r *reader) duration(n *yaml.Node, zero bool) (int64, bool) {
	if n.Kind != yaml.ScalarNode || !isText(n) && n.Tag != "!!int" && n.Tag != "!!float" {
		r.fault(n, "must be a duration, not "+kind(n), "write it like 90s, 1h30m, 2d or 500ms")
		return 0, false
	}
	d, p := duration(n.Value)
	if !r.holds(n, p) {
		return 0, false
	}
	if d == 0 && !zero {
		r.fault(n, fmt.Sprintf("%s must be longer than 0", quote(n.Value)), "write a duration above zero, or leave it out")
		return 0, false
	}
	return d.Milliseconds(), true
}

// readKeyword reads a keyword.
func readKeyword[T any](r *reader, n *yaml.Node, words []keyword[T]) (is T, ok bool) {
	s, ok := r.text(n)
	if !ok {
		return is, false
	}
	is, p := parseKeyword(words, s)
	return is, r.holds(n, p)
}
