package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// fields is what a mapping with fixed names may hold: how each is read into a T.
type fields[T any] map[string]func(r *reader, into T, e entry)

// read reads all entries of a mapping. Keys that begin with x- are ignored, for
// they are the place for anchors; any other unknown one is a fault.
func (fs fields[T]) read(r *reader, into T, es []entry, unknown func(e entry)) {
	for _, e := range es {
		read, known := fs[e.key]
		switch {
		case known:
			r.enter(e.key)
			read(r, into, e)
			r.leave()
		case !strings.HasPrefix(e.key, "x-"):
			unknown(e)
		}
	}
}

func (fs fields[T]) names() []string { return slices.Sorted(maps.Keys(fs)) }

// later are fields of this format that a later version reads.
var futureFields = []string{
	"affinity", "combiner", "concurrency", "fan_in", "partition", "queue", "result", "schedule", "speculative",
}

// otherwise is what people write who come from elsewhere, and what it is here.
// Names that are near by themselves need no entry.
var foreignNames = map[string]string{
	"after": "dependencies", "args": "command", "argv": "command", "attempts": "retry: {max: N}", "cmd": "command",
	"constraints": "require", "depends": "dependencies", "deps": "dependencies", "environment": "env", "exec": "command",
	"handler": "type", "label": "labels", "max_retries": "retry: {max: N}", "outputs": "output", "requires": "dependencies",
	"requirements": "require", "retries": "retry: {max: N}", "script": "run", "shell": "run", "steps": "tasks",
	"timeout_seconds": "timeout: 30s", "user": "owner", "callback": "webhook", "matrix": "array: {items: […]}", "foreach": "array: {items: […]}", "for_each": "array: {items: […]}", "with_items": "array: {items: […]}",
	"parallel": "array: {range: 0-99}", "notify": "webhook", "webhooks": "webhook",
}

// unknown is the fault of a field that is not known where it stands. elsewhere
// says where it would be known, if anywhere. The result is the field that was
// probably meant, so that nobody is told as well that this one is missing.
func (r *reader) unknown(e entry, names func() []string, elsewhere string) (meant string) {
	what := fmt.Sprintf("unknown field %s", quote(e.key))
	if slices.Contains(futureFields, e.key) {
		r.fault(e.at, fmt.Sprintf("the field %s is not known to this version", quote(e.key)), "leave it out, or use a later version of dtask")
		return ""
	}
	if elsewhere != "" {
		r.fault(e.at, what, elsewhere)
		return ""
	}
	do := ""
	if !r.full() {
		meant, do = suggestField(e.key, names())
	}
	r.fault(e.at, what, do)
	return meant
}

func suggestField(key string, names []string) (meant, do string) {
	if n := nearest(key, slices.Values(names)); n != "" {
		return n, fmt.Sprintf("did you mean %q?", n)
	}
	if form, known := foreignNames[strings.ToLower(key)]; known {
		if name, _, _ := strings.Cut(form, ":"); slices.Contains(names, name) {
			return name, "write it as " + form
		}
	}
	return "", "the fields here are " + strings.Join(names, ", ")
}
