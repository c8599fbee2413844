package spec

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v4"

	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// arrayParts collects the fields of array.
type arrayParts struct {
	spec  *dtaskv1.ArraySpec
	at    *yaml.Node
	items []*yaml.Node
	fine  bool // without faults
}

const arrayForm = "array: {range: 0-99}"

var arrayFields = fields[*arrayParts]{
	"range": func(r *reader, a *arrayParts, e entry) {
		if e.value.Kind != yaml.ScalarNode || e.value.Tag == "!!null" || e.value.Tag == "!!bool" {
			r.fault(e.value, "must be a range of indexes, not "+kind(e.value), "write it like 0-99, 0-100:5 or 1,5,9-12")
			return
		}
		list, err := array.ParseRanges(e.value.Value)
		if bad, ok := errors.AsType[*array.RangeError](err); ok {
			r.fault(e.value, bad.What, bad.Do)
			return
		}
		a.spec.Ranges = list
	},
	"items": func(r *reader, a *arrayParts, e entry) {
		nodes, ok := r.items(e.value, "items: [red, green, blue]")
		if !ok {
			return
		}
		if len(nodes) == 0 {
			r.fault(e.value, "is empty", "list at least one item")
			return
		}
		if r.holds(e.value, arraySizeProblem(uint64(len(nodes)))) {
			a.items = nodes
			a.spec.Items = r.arrayItems(nodes)
			a.spec.ItemsTotal = uint32(len(nodes)) //nolint:gosec // at most MaxTasks
		}
	},
	"max_parallel": func(r *reader, a *arrayParts, e entry) {
		v, _ := r.number(e.value, 1, MaxTasks)
		a.spec.MaxParallel = uint32(v) //nolint:gosec // bounded
	},
	"chunk": func(r *reader, a *arrayParts, e entry) {
		v, _ := r.number(e.value, 1, MaxTasks)
		a.spec.Chunk = uint32(v) //nolint:gosec // bounded
	},
}

// readArray reads a task's field array.
func readArray(r *reader, t *taskParts, e entry) {
	if e.value.Kind == yaml.ScalarNode && e.value.Tag != "!!null" {
		r.fault(e.value, "must be a mapping, not "+kind(e.value), "write "+arrayForm)
		return
	}
	es := r.entries(e.value, arrayForm)
	if es == nil {
		return
	}
	before := r.total
	a := &arrayParts{spec: &dtaskv1.ArraySpec{}, at: e.value}
	arrayFields.read(r, a, es, func(x entry) { r.unknown(x, arrayFields.names, "") })
	switch ranged, listed := has(es, "range"), has(es, "items"); {
	case ranged && listed:
		r.fault(e.value, "range and items are mutually exclusive", "leave out one of them")
	case !ranged && !listed:
		if r.total == before {
			r.fault(e.value, "has neither range nor items", "write "+arrayForm+" or array: {items: [red, green]}")
		}
	case r.total == before:
		r.holds(e.value, arraySizeProblem(tasksOf(a.spec)))
	}
	a.fine = r.total == before
	t.taskBuilder.array, t.array = a.spec, a
}

// arrayItems encodes items as JSON.
func (r *reader) arrayItems(nodes []*yaml.Node) [][]byte {
	items := make([][]byte, len(nodes))
	for i, n := range nodes {
		n = deref(n)
		r.enterItem(i)
		w := &jsonWriter{r: r}
		w.value(n)
		items[i] = w.out.Bytes()
		r.holds(n, itemProblem(items[i]))
		r.leave()
	}
	return items
}

// arraySizeProblem checks the number of tasks of one array.
func arraySizeProblem(tasks uint64) problem {
	if tasks <= MaxTasks {
		return problem{}
	}
	return problem{fmt.Sprintf("makes %s tasks", count(int(min(tasks, 1<<40)))), fmt.Sprintf("a job has at most %s; split the job, or execute several items in one task with chunk", count(MaxTasks))} //nolint:gosec // bounded
}

// itemProblem checks one encoded item.
func itemProblem(encoded []byte) problem {
	if len(encoded) > MaxItemBytes {
		return problem{fmt.Sprintf("has %s", bytesText(len(encoded))), fmt.Sprintf("an item has at most %s as JSON; put more into a file and name that", bytesText(MaxItemBytes))}
	}
	return problem{}
}

// templates calls may for the texts of a task that contain ${{. Most tasks
// have none, and must not pay for it.
func templates(b *dtaskv1.TaskBody, payload []byte, p *dtaskv1.TaskPolicy, may func(field, text string)) {
	if len(p.GetEnv()) > 0 {
		for _, name := range namesOf(p.GetEnv()) {
			if text := p.GetEnv()[name]; array.Opens(text) {
				may("env", text)
			}
		}
	}
	taskbody.EachText(b, func(field string, text *string) {
		if array.Opens(*text) {
			may(field, *text)
		}
	})
	if array.Opens(payload) {
		may("payload", string(payload))
	}
}

const (
	expressionsDo   = "an array has ${{ index }}, ${{ item }} and ${{ item.FIELD }}; write $${{ for the text ${{"
	expressionAlone = "write array: {range: …} or {items: […]} into the task, or leave the expression out"
)

// templateProblem checks the expressions of a task and returns the first faulty
// field.
func templateProblem(a *dtaskv1.ArraySpec, b *dtaskv1.TaskBody, payload []byte, p *dtaskv1.TaskPolicy) (field string, bad problem) {
	templates(b, payload, p, func(name, text string) {
		if bad.bad() {
			return
		}
		unknown, isUnknown := errors.AsType[*array.UnknownError](array.Check(text))
		switch {
		case a == nil && b.GetScheduled():
			field, bad = name, scheduledProblem(name, text)
		case a == nil && array.UsesItem(text):
			field, bad = name, problem{"has an array expression, but the task has no array", expressionAlone}
		case a != nil && isUnknown:
			field, bad = name, problem{unknown.Error(), expressionsDo}
		case a != nil && array.UsesRun(text) && !b.GetScheduled():
			field, bad = name, problem{"has an expression of the run of a schedule, but scheduled is not set", "set it in the body of the task, and submit the job by a schedule"}
		case a != nil:
			if missing, index, lacks := missingField(a, array.Fields(text)); lacks {
				field, bad = name, problem{fmt.Sprintf("item %d has no field %s", index, quote(missing)), "give it to each item, or leave the expression out"}
			}
		}
	})
	switch {
	case bad.bad() || a == nil:
	case p.GetReuseMs() != 0:
		field, bad = "reuse", problem{"must not be set with array", "leave out reuse; items can't have keys of their own"}
	case a.GetChunk() > 1 && b.GetOutput() != "":
		field, bad = "output", problem{"must not be set with array.chunk", "leave out one of them; a task that executes several items has one output"}
	}
	return field, bad
}

// missingField finds the first item without one of the fields.
func missingField(a *dtaskv1.ArraySpec, fields []string) (field string, index uint32, lacks bool) {
	if len(fields) == 0 {
		return "", 0, false
	}
	if len(a.GetRanges()) > 0 {
		return fields[0], a.GetRanges()[0].GetFirst(), true
	}
	for i, encoded := range a.GetItems() {
		for _, f := range fields {
			if it := (array.Item{Index: uint32(i), JSON: encoded}); !it.Has(f) { //nolint:gosec // ≤ MaxTasks
				return f, it.Index, true
			}
		}
	}
	return "", 0, false
}

// arrayCheck is an array of which further parts must follow.
type arrayCheck struct {
	id          string
	total       uint64 // in all parts
	items, part uint64 // so far
	chunk       uint64
	fields      []string
}

// array checks a task's array, or a part of one. It returns how many tasks it
// adds: the first part adds those of the whole array.
func (c *Checker) array(t *checkedTask) int {
	at, a := taskPlace{c: c, id: t.id, index: c.tasks}, t.array
	open := c.open
	switch {
	case open != nil && (a.GetPart() == 0 || t.id != open.id || uint64(a.GetPart()) != open.part):
		at.refuse("array", problem{fmt.Sprintf("part %d of the array %s is missing", open.part, quote(open.id)), "send the parts of an array one after the other"})
		c.open = nil
		return 0
	case a == nil:
		return 1
	case a.GetPart() > 0 && open == nil:
		at.refuse("array", problem{fmt.Sprintf("unexpected part %d", a.GetPart()), "send the parts of an array one after the other"})
		return 0
	}
	for i, it := range a.GetItems() {
		if q := itemProblem(it); q.bad() || !json.Valid(it) {
			if !q.bad() {
				q = problem{"is not JSON", "send each item as JSON"}
			}
			at.refuse(fmt.Sprintf("array.items[%d]", i), q)
			break
		}
	}
	if a.GetPart() == 0 {
		at.refuse("array", shapeProblem(a))
		if len(a.GetRanges()) > 0 || at.c.total > 0 {
			return int(min(tasksOf(a), 2*MaxTasks)) //nolint:gosec // bounded
		}
		c.open = &arrayCheck{id: t.id, total: array.Items(a), chunk: array.Chunk(a)}
		templates(t.body, t.payload, c.policyOf(t), func(_, text string) { c.open.fields = append(c.open.fields, array.Fields(text)...) })
	} else if missing, index, lacks := missingField(a, c.open.fields); lacks {
		at.refuse("array", problem{fmt.Sprintf("item %d of part %d has no field %s", index, a.GetPart(), quote(missing)), "give it to each item"})
	}
	c.partOf(at, a)
	return int(min(tasksOf(a), 2*MaxTasks)) //nolint:gosec // bounded
}

// partOf counts the items of a part.
func (c *Checker) partOf(at taskPlace, a *dtaskv1.ArraySpec) {
	open, n := c.open, uint64(len(a.GetItems()))
	open.items, open.part = open.items+n, open.part+1
	switch {
	case n == 0 || open.items > open.total:
		at.refuse("array.items", problem{fmt.Sprintf("has %d items in this part, but %d of %d are missing", n, open.total-(open.items-n), open.total), "send as many as announced"})
		c.open = nil
	case open.items == open.total:
		c.open = nil
	case n%open.chunk != 0:
		at.refuse("array.items", problem{fmt.Sprintf("must have a multiple of %d items per part", open.chunk), "cut between chunks"})
		c.open = nil
	}
}

// shapeProblem checks the numbers of an array.
func shapeProblem(a *dtaskv1.ArraySpec) problem {
	if (len(a.GetRanges()) > 0) == (array.Items(a) > 0 && len(a.GetRanges()) == 0) || len(a.GetRanges()) > 0 && (len(a.GetItems()) > 0 || a.GetItemsTotal() > 0) {
		return problem{"must have either ranges or items", "send one of them"}
	}
	if n := len(a.GetRanges()); n > array.MaxRanges {
		return problem{fmt.Sprintf("has %d ranges", n), fmt.Sprintf("send at most %d", array.MaxRanges)}
	}
	for i, r := range a.GetRanges() {
		if array.RangeItems(r) == 0 || i > 0 && r.GetFirst() <= a.GetRanges()[i-1].GetLast() {
			return problem{"has empty ranges or ranges out of order", "send first ≤ last, step ≥ 1, each range above the one before"}
		}
	}
	if array.Chunk(a) > MaxTasks || a.GetMaxParallel() > MaxTasks {
		return problem{"has a chunk or max_parallel above 1,000,000", "send at most 1,000,000"}
	}
	return arraySizeProblem(tasksOf(a))
}

// tasksOf returns how many tasks an array has; 1 if a is nil.
func tasksOf(a *dtaskv1.ArraySpec) uint64 { return array.Tasks(&dtaskv1.TaskSpec{Array: a}) }
