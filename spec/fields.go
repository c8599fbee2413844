package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dtask/dtask/internal/nearest"
)

// fields are the fields of a mapping with fixed names: how each is read into a
// T.
type fields[T any] map[string]func(r *reader, into T, e entry)

// read reads all entries of a mapping. Keys that start with x- are ignored,
// since anchors may be defined there; any other unknown key is a fault.
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

// futureFields are reserved for later versions of the format.
var futureFields = []string{
	"combiner", "fan_in", "partition", "result", "speculative",
}

// foreignNames maps field names of other systems to those of this format.
// Similar names need no entry.
var foreignNames = map[string]string{
	"after": "dependencies", "args": "command", "argv": "command", "attempts": "retry: {max: N}", "cmd": "command", "workdir": "cwd", "working_directory": "cwd", "chdir": "cwd", "input_file": "stdin",
	"constraints": "require", "depends": "dependencies", "deps": "dependencies", "environment": "env", "exec": "command",
	"handler": "type", "label": "labels", "max_retries": "retry: {max: N}", "outputs": "output", "requires": "dependencies",
	"requirements": "require", "retries": "retry: {max: N}", "script": "run", "steps": "tasks",
	"timeout_seconds": "timeout: 30s", "user": "owner", "callback": "webhook", "matrix": "array: {items: […]}", "foreach": "array: {items: […]}", "for_each": "array: {items: […]}", "with_items": "array: {items: […]}",
	"parallel": "array: {range: 0-99}", "notify": "webhook", "webhooks": "webhook",
	"crontab": "cron: \"30 2 * * *\"", "interval": "every: 10m", "tz": "timezone: Europe/Berlin", "time_zone": "timezone: Europe/Berlin", "zone": "timezone: Europe/Berlin",
	"exclude": "except: [2026-12-25]", "start": "from: 2026-01-01", "end": "until: 2026-12-31", "starting_deadline": "missed: {run: one, within: 24h}",
	"concurrency_policy": "overlap: skip",
}

// unknown reports an unknown field. elsewhere says where the field belongs, if
// anywhere. It returns the field that was probably meant, so that this one is
// not reported as missing.
func (r *reader) unknown(e entry, names func() []string, elsewhere string) (meant string) {
	what := fmt.Sprintf("unknown field %s", quote(e.key))
	if slices.Contains(futureFields, e.key) {
		r.fault(e.at, fmt.Sprintf("field %s is reserved for a later version", quote(e.key)), "leave it out")
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
	if n := nearest.Name(key, slices.Values(names)); n != "" {
		return n, fmt.Sprintf("did you mean %q?", n)
	}
	if form, known := foreignNames[strings.ToLower(key)]; known {
		if name, _, _ := strings.Cut(form, ":"); slices.Contains(names, name) {
			return name, "write it as " + form
		}
	}
	return "", "the fields here are " + strings.Join(names, ", ")
}
