package spec

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// dependency is a dependency as written.
type dependency struct {
	name string
	at   mark
	when dtaskv1.Condition
	of   int32 // index of the task in file order; negative if unresolved
}

var conditions = []keyword[dtaskv1.Condition]{
	{"completed", dtaskv1.Condition_CONDITION_COMPLETED},
	{"ended", dtaskv1.Condition_CONDITION_ENDED},
	{"tolerated", dtaskv1.Condition_CONDITION_TOLERATED},
	{"failed", dtaskv1.Condition_CONDITION_FAILED},
}

// conditional reports whether a condition is other than that the task completes.
func conditional(c dtaskv1.Condition) bool { return c > dtaskv1.Condition_CONDITION_COMPLETED }

// readNeeds reads the list of dependencies: ids, and mappings with a condition.
func readNeeds(r *reader, t *taskParts, e entry) {
	t.lists = append(t.lists, e)
	if len(t.lists) > 1 {
		return // reported elsewhere
	}
	t.field = e.key
	if isText(e.value) {
		r.fault(e.value, "must be a list, not text", fmt.Sprintf("write %s: [%s]", e.key, e.value.Value))
		return
	}
	nodes, ok := r.items(e.value, e.key+": [fetch, clean]")
	if !ok {
		return
	}
	var seen map[string]struct{}
	if len(nodes) > 1 {
		seen = make(map[string]struct{}, len(nodes))
	}
	t.dependencies = make([]dependency, 0, len(nodes))
	for i, n := range nodes {
		r.enterItem(i)
		n = deref(n)
		if d, fine := r.need(n); fine {
			if _, twice := seen[d.name]; twice {
				r.fault(n, "duplicate "+quote(d.name), "remove one of them")
			} else {
				t.dependencies = append(t.dependencies, d)
			}
			if seen != nil {
				seen[d.name] = struct{}{}
			}
		}
		r.leave()
	}
}

// needFields are the fields of a dependency with a condition.
var needFields = fields[*dependency]{
	"task": func(r *reader, d *dependency, e entry) {
		d.name, _ = r.text(e.value)
		d.at = markOf(e.value)
	},
	"when": func(r *reader, d *dependency, e entry) { d.when, _ = readKeyword(r, e.value, conditions) },
}

// need reads one dependency.
func (r *reader) need(n *yaml.Node) (d dependency, ok bool) {
	d = dependency{of: -1, at: markOf(n), when: dtaskv1.Condition_CONDITION_COMPLETED}
	if n.Kind != yaml.MappingNode {
		d.name, ok = r.text(n)
		return d, ok
	}
	es := r.entries(n, "{task: fetch, when: ended}")
	needFields.read(r, &d, es, func(e entry) { r.unknown(e, needFields.names, "") })
	if !has(es, "task") {
		r.fault(n, "task is missing", "write task: with the id of the task that this one depends on")
	}
	return d, d.name != ""
}

func markOf(n *yaml.Node) mark { return mark{max(n.Line, 1), max(n.Column, 1)} }

// resolved returns the dependencies as indexes in the order of the job, and
// their conditions; nil if all of them must complete.
func (d *taskBuilder) resolved(place []uint32) (indexes []uint32, when []dtaskv1.Condition) {
	if len(d.dependencies) == 0 {
		return nil, nil
	}
	slices.SortFunc(d.dependencies, func(a, b dependency) int { return int(place[a.of]) - int(place[b.of]) })
	indexes = make([]uint32, len(d.dependencies))
	for i, n := range d.dependencies {
		indexes[i] = place[n.of]
		if conditional(n.when) && when == nil {
			when = slices.Repeat([]dtaskv1.Condition{dtaskv1.Condition_CONDITION_COMPLETED}, len(d.dependencies))
		}
		if when != nil {
			when[i] = n.when
		}
	}
	return indexes, when
}
