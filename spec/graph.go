package spec

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"github.com/dtask/dtask/internal/array"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// graph resolves the dependencies of all tasks and finds an order in which each
// task comes after those that it needs; among tasks that may come next, the one
// that is first in the file does. A file that is in such an order keeps it.
func (r *reader) graph(tasks []taskBuilder) []int32 {
	r.resolve(tasks, r.index(tasks))
	order, left := sorted(tasks)
	if len(order) == len(tasks) {
		return cleanupLast(tasks, order)
	}
	for _, group := range stronglyConnected(tasks, left) {
		if r.full() { // it will not be shown: it only counts
			t := &tasks[group[0]]
			r.add(t.at.line, t.at.column, t.where(int(group[0])), "the tasks form a cycle", "remove a dependency")
			continue
		}
		r.cycles(tasks, group)
	}
	return nil
}

// finalsLast puts the clean-up tasks behind all others. No other task depends on
// one.
func cleanupLast(tasks []taskBuilder, order []int32) []int32 {
	slices.SortStableFunc(order, func(a, b int32) int {
		switch x, y := tasks[a].cleanup, tasks[b].cleanup; {
		case x == y:
			return 0
		case y:
			return -1
		}
		return 1
	})
	return order
}

// index is where each id is, and adds those that are there twice.
func (r *reader) index(tasks []taskBuilder) map[string]int32 {
	at := make(map[string]int32, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if t.id == "" {
			continue // a fault already
		}
		if first, known := at[t.id]; known {
			f := tasks[first].at
			r.add(t.at.line, t.at.column, fmt.Sprintf("job.tasks[%d].id", i),
				fmt.Sprintf("duplicate id %s, first used at %d:%d", quote(t.id), f.line, f.column), "give each task an id of its own")
			continue
		}
		at[t.id] = int32(i)
	}
	return at
}

// resolve finds the task that each dependency names. What names none, or the
// task itself, is a fault and is dropped.
func (r *reader) resolve(tasks []taskBuilder, at map[string]int32) {
	names := func(yield func(string) bool) {
		for i := range tasks {
			if tasks[i].id != "" && !yield(tasks[i].id) {
				return
			}
		}
	}
	for i := range tasks {
		t := &tasks[i]
		kept := t.dependencies[:0]
		for _, n := range t.dependencies {
			of, known := at[n.name]
			switch {
			case !known:
				r.add(n.at.line, n.at.column, t.where(i), fmt.Sprintf("missing dependency: there is no task %s", quote(n.name)), r.nearID(n.name, len(tasks), names))
			case of == int32(i):
				r.add(n.at.line, n.at.column, t.where(i), "self-dependency: the task depends on itself", "remove it from its own list")
			case t.cleanup && !tasks[of].cleanup:
				r.add(n.at.line, n.at.column, t.where(i), fmt.Sprintf("%s is no clean-up task, and a clean-up task comes after all of these", quote(n.name)), "remove it from the list")
			case !t.cleanup && tasks[of].cleanup:
				r.add(n.at.line, n.at.column, t.where(i), fmt.Sprintf("%s is a clean-up task, which runs after all others", quote(n.name)), "remove it from the list, or write finally: true here, too")
			default:
				n.of = of
				kept = append(kept, n)
			}
		}
		t.dependencies = kept
	}
}

// nearID advises on a dependency that is no task. The nearest name is shown
// however far it is, as long as the job is small enough to look; in a large one
// only the first faults are worth a search.
func (r *reader) nearID(name string, tasks int, names func(yield func(string) bool)) string {
	const small, few = 2000, 20
	if r.full() || tasks > small && r.total > few {
		return "list a task of this job"
	}
	if near := nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if tasks <= small && len(name) <= MaxNameLength {
		if near := nearestWithin(name, MaxNameLength, names); near != "" {
			return fmt.Sprintf("list a task of this job; the nearest name is %q", near)
		}
	}
	return "list a task of this job"
}

// where is the place of a task's dependencies in messages.
func (d *taskBuilder) where(i int) string {
	if d.id == "" {
		return fmt.Sprintf("job.tasks[%d].%s", i, d.field)
	}
	return taskWhere(d.id, d.field)
}

// lowest is a heap of indexes.
type lowest []int32

func (h *lowest) Len() int           { return len(*h) }
func (h *lowest) Less(i, j int) bool { return (*h)[i] < (*h)[j] }
func (h *lowest) Swap(i, j int)      { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }
func (h *lowest) Push(x any) {
	if v, ok := x.(int32); ok {
		*h = append(*h, v)
	}
}

func (h *lowest) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

// sorted is the order of the tasks, and which of them have no place in it
// because they are part of a cycle or come after one.
func sorted(tasks []taskBuilder) (order []int32, left []bool) {
	waits := make([]int, len(tasks))
	offsets, after := successors(tasks)
	ready := lowest{}
	for i := range tasks {
		if waits[i] = len(tasks[i].dependencies); waits[i] == 0 {
			ready = append(ready, int32(i))
		}
	}
	left = make([]bool, len(tasks))
	for i := range left {
		left[i] = true
	}
	order = make([]int32, 0, len(tasks))
	for len(ready) > 0 { // it begins sorted, and so is a heap
		i, _ := heap.Pop(&ready).(int32)
		order, left[i] = append(order, i), false
		for _, s := range after[offsets[i]:offsets[i+1]] {
			if waits[s]--; waits[s] == 0 {
				heap.Push(&ready, s)
			}
		}
	}
	return order, left
}

// successors turns the dependencies round, as compressed rows: those that wait
// for task i are after[offsets[i]:offsets[i+1]].
func successors(tasks []taskBuilder) (offsets, after []int32) {
	offsets = make([]int32, len(tasks)+1)
	for i := range tasks {
		for _, n := range tasks[i].dependencies {
			offsets[n.of+1]++
		}
	}
	for i := range tasks {
		offsets[i+1] += offsets[i]
	}
	after = make([]int32, offsets[len(tasks)])
	next := slices.Clone(offsets)
	for i := range tasks {
		for _, n := range tasks[i].dependencies {
			after[next[n.of]] = int32(i)
			next[n.of]++
		}
	}
	return offsets, after
}

// Levels is the number of tasks per topological level of a checked job: level 0
// has the tasks without dependencies, and each other task is one above the
// highest that it depends on.
func Levels(s *dtaskv1.JobSpec) []uint32 {
	var levels []uint32
	level := make([]uint32, len(s.GetTasks()))
	starts, next := make([]uint32, len(s.GetTasks())), uint64(0) // of each its first index
	for i, t := range s.GetTasks() {
		starts[i] = uint32(min(next, 2*MaxTasks)) //nolint:gosec // bounded
		for _, d := range t.GetDependencies() {
			if k, found := slices.BinarySearch(starts[:i], d); found {
				level[i] = max(level[i], level[k]+1)
			}
		}
		for uint32(len(levels)) <= level[i] { //nolint:gosec // at most MaxTasks
			levels = append(levels, 0)
		}
		n := array.Tasks(t)
		levels[level[i]] += uint32(n) //nolint:gosec // at most MaxTasks
		next += n
	}
	return levels
}

// arrows names the tasks of a cycle in order: a → b → a.
func arrows(tasks []taskBuilder, cycle []int32) string {
	var b strings.Builder
	for _, i := range cycle {
		b.WriteString(tasks[i].id)
		b.WriteString(" → ")
	}
	b.WriteString(tasks[cycle[0]].id)
	return b.String()
}
