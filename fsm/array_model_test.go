package fsm

import (
	"fmt"
	"slices"
)

// group returns the tasks that a dependency stands for: a task, or the whole array
// of which it is the first task.
func (j *modelJob) group(dep uint32) []uint32 {
	for _, a := range j.arrays {
		if a[0] == dep {
			return a
		}
	}
	return []uint32{dep}
}

// inside reports whether a task depends on a task of an array other than the
// first.
func (j *modelJob) inside(v task) (bad bool) {
	v.eachDep(func(dep uint32, _ Condition) {
		for _, a := range j.arrays {
			bad = bad || slices.Contains(a[1:], dep)
		}
	})
	return bad
}

func (w *model) jobArray(op *AddChunk) string {
	j, r := w.upload(op.Job)
	c := op.Chunk
	switch {
	case r != "":
		return r
	case c.invalid || c.Len() == 0:
		return "malformed"
	case int(c.First) != len(j.tasks) || len(j.tasks)+c.Len() > j.total:
		return "out of order"
	case (c.part > 0) != (j.missing > 0), c.part > 0 && int(c.part) != j.cuts:
		return "malformed"
	}
	a, items := c.array, len(c.off)
	if c.part > 0 {
		if a = j.template; c.size != a.Chunk {
			return "malformed"
		}
		if items > j.missing || items < j.missing && items%int(a.Chunk) != 0 {
			return "malformed"
		}
	} else {
		v := ofArray(a, c.First)
		if int(a.Policy) >= len(j.policies) || j.inside(v) {
			return "malformed"
		}
		if n := int(a.Items); len(a.Ranges) == 0 && (items > n || items < n && items%int(a.Chunk) != 0) {
			return "malformed"
		}
	}
	final := j.policies[a.Policy].GetFinally()
	for _, before := range j.tasks {
		if before.final && !final {
			return "malformed"
		}
	}
	for _, d := range a.Deps {
		if c.part == 0 && final && !j.tasks[d].final {
			return "malformed"
		}
	}
	if c.part == 0 {
		j.template, j.cuts, j.items, j.missing = a, 0, 0, int(a.Items)
		var all []uint32
		for k := range a.Tasks() {
			all = append(all, c.First+k)
		}
		j.arrays = append(j.arrays, all)
	}
	if len(a.Ranges) > 0 {
		items = int(a.Items)
	}
	j.addItems(a, items, final)
	j.sum = c.Sum(j.sum)
	return "accepted"
}

// addItems adds the tasks of the next items of an array.
func (j *modelJob) addItems(a *Array, items int, final bool) {
	var indexes []uint32
	for _, r := range a.Ranges {
		for n := range r.Count {
			indexes = append(indexes, r.First+n*r.Step)
		}
	}
	if indexes == nil {
		for n := range a.Items {
			indexes = append(indexes, n)
		}
	}
	for _, part := range slices.Collect(slices.Chunk(indexes[j.items:j.items+items], int(a.Chunk))) {
		t := &modelTask{name: fmt.Sprintf("%s[%d]", a.Name, part[0]), body: string(a.Body), submitted: string(a.Body), policy: a.Policy, state: "blocked", final: final}
		if a.Chunk > 1 {
			t.name = fmt.Sprintf("%s[%d-%d]", a.Name, part[0], part[len(part)-1])
		}
		for k, dep := range a.Deps {
			t.groups, t.when = append(t.groups, j.group(dep)), append(t.when, a.condition(k))
		}
		t.deps = slices.Concat(t.groups...)
		j.tasks = append(j.tasks, t)
	}
	j.cuts, j.items, j.missing = j.cuts+1, j.items+items, j.missing-items
}
