package spec

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/nearest"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// graph resolves the dependencies of all tasks and returns a topological
// order. Tasks that may come next keep their order in the file.
func (r *reader) graph(tasks []taskBuilder) []int32 {
	r.resolve(tasks, r.index(tasks))
	order, left := sorted(tasks)
	if len(order) == len(tasks) {
		return cleanupLast(tasks, order)
	}
	for _, group := range stronglyConnected(tasks, left) {
		if r.full() { // will not be shown, only counted
			t := &tasks[group[0]]
			r.add(t.at.line, t.at.column, t.where(int(group[0])), "dependency cycle", "remove a dependency")
			continue
		}
		r.cycles(tasks, group)
	}
	return nil
}

// cleanupLast moves the cleanup tasks behind all others. No other task depends
// on one.
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

// index maps IDs to tasks and reports duplicates.
func (r *reader) index(tasks []taskBuilder) map[string]int32 {
	at := make(map[string]int32, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if t.id == "" {
			continue // reported elsewhere
		}
		if first, known := at[t.id]; known {
			f := tasks[first].at
			r.add(t.at.line, t.at.column, fmt.Sprintf("job.tasks[%d].id", i),
				fmt.Sprintf("duplicate id %s, first used at %d:%d", quote(t.id), f.line, f.column), "give each task a unique id")
			continue
		}
		at[t.id] = int32(i)
	}
	return at
}

// resolve resolves the names of dependencies. It reports and drops unknown
// names and self-dependencies.
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
				r.add(n.at.line, n.at.column, t.where(i), fmt.Sprintf("unknown dependency %s", quote(n.name)), r.nearID(n.name, len(tasks), names))
			case of == int32(i):
				r.add(n.at.line, n.at.column, t.where(i), "self-dependency", "remove it from the list")
			case t.cleanup && !tasks[of].cleanup:
				r.add(n.at.line, n.at.column, t.where(i), fmt.Sprintf("must not depend on %s: cleanup tasks already run after all ordinary tasks", quote(n.name)), "remove it from the list")
			case !t.cleanup && tasks[of].cleanup:
				r.add(n.at.line, n.at.column, t.where(i), fmt.Sprintf("must not depend on %s: cleanup tasks run after all ordinary tasks", quote(n.name)), "remove it from the list, or write finally: true here too")
			case t.cleanup && n.when == dtaskv1.Condition_CONDITION_TOLERATED:
				r.add(n.at.line, n.at.column, t.where(i), "must not be tolerated: max_failures is about ordinary tasks", "write when: ended, failed or completed")
			default:
				n.of = of
				kept = append(kept, n)
			}
		}
		t.dependencies = kept
	}
}

// nearID suggests a task for an unknown dependency. In small jobs it suggests
// the nearest name at any distance; in large jobs it searches only for the
// first faults.
func (r *reader) nearID(name string, tasks int, names func(yield func(string) bool)) string {
	const small, few = 2000, 20
	if r.full() || tasks > small && r.total > few {
		return "list a task of this job"
	}
	if near := nearest.Name(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if tasks <= small && len(name) <= MaxNameLength {
		if near := nearest.Within(name, MaxNameLength, names); near != "" {
			return fmt.Sprintf("list a task of this job; the nearest name is %q", near)
		}
	}
	return "list a task of this job"
}

// where returns the location of a task's dependencies.
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

// sorted returns the topological order, and which tasks are not in it because
// they are part of a cycle or depend on one.
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
	for len(ready) > 0 { // sorted, and thus a heap
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

// successors inverts the dependencies into compressed rows: the tasks that
// depend on task i are after[offsets[i]:offsets[i+1]].
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

// Levels returns the number of tasks per topological level of a checked job:
// level 0 has the tasks without dependencies, and every other task is one
// level above the highest of its dependencies.
func Levels(s *dtaskv1.JobSpec) []uint32 {
	var levels []uint32
	level := make([]uint32, len(s.GetTasks()))
	starts, next := make([]uint32, len(s.GetTasks())), uint64(0) // index of each one's first task
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

// arrows formats a cycle: a → b → a.
func arrows(tasks []taskBuilder, cycle []int32) string {
	var b strings.Builder
	for _, i := range cycle {
		b.WriteString(tasks[i].id)
		b.WriteString(" → ")
	}
	b.WriteString(tasks[cycle[0]].id)
	return b.String()
}
