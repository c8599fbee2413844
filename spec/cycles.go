package spec

import "slices"

// stronglyConnected returns the groups of tasks that all depend on each other,
// directly or not: the strongly connected components with more than one task,
// by Tarjan's algorithm. It uses an explicit stack, since a chain may have
// 100,000 tasks. It considers only tasks in left. Groups and their members are
// in file order.
func stronglyConnected(tasks []taskBuilder, left []bool) [][]int32 {
	k := &sccFinder{tasks: tasks, left: left, seen: make([]int32, len(tasks)), low: make([]int32, len(tasks)), open: make([]bool, len(tasks))}
	for i := range tasks {
		if left[i] && k.seen[i] == 0 {
			k.visit(int32(i))
		}
	}
	slices.SortFunc(k.groups, func(a, b []int32) int { return int(a[0] - b[0]) })
	return k.groups
}

type sccFinder struct {
	tasks  []taskBuilder
	left   []bool
	seen   []int32 // order of the visit, from 1
	low    []int32 // lowest order that can be reached
	open   []bool  // in stack
	stack  []int32
	clock  int32
	groups [][]int32
}

// frame is a visit that waits for the visits it started.
type frame struct {
	task int32
	next int // index of the next dependency
}

func (k *sccFinder) visit(root int32) {
	frames := []frame{k.begin(root)}
	for len(frames) > 0 {
		f := &frames[len(frames)-1]
		if needs := k.tasks[f.task].dependencies; f.next < len(needs) {
			of := needs[f.next].of
			f.next++
			switch {
			case !k.left[of]:
			case k.seen[of] == 0:
				frames = append(frames, k.begin(of))
			case k.open[of]:
				k.low[f.task] = min(k.low[f.task], k.seen[of])
			}
			continue
		}
		k.end(f.task)
		low := k.low[f.task]
		if frames = frames[:len(frames)-1]; len(frames) > 0 {
			parent := frames[len(frames)-1].task
			k.low[parent] = min(k.low[parent], low)
		}
	}
}

func (k *sccFinder) begin(i int32) frame {
	k.clock++
	k.seen[i], k.low[i], k.open[i] = k.clock, k.clock, true
	k.stack = append(k.stack, i)
	return frame{task: i}
}

// end finishes a visit. A task that reaches no earlier task completes its
// group.
func (k *sccFinder) end(i int32) {
	if k.low[i] != k.seen[i] {
		return
	}
	at := len(k.stack) - 1
	for k.stack[at] != i {
		at--
	}
	group := slices.Clone(k.stack[at:])
	k.stack = k.stack[:at]
	for _, m := range group {
		k.open[m] = false
	}
	if len(group) > 1 {
		slices.Sort(group)
		k.groups = append(k.groups, group)
	}
}

// cycles reports the cycles of a group. It starts with the shortest cycle
// through the first task, removes the last dependency of this cycle, and
// continues with what still is a group.
func (r *reader) cycles(tasks []taskBuilder, group []int32) {
	left := make([]bool, len(tasks))
	open := [][]int32{group}
	for found := 0; len(open) > 0 && found < maxCycles; found++ {
		group, open = open[0], open[1:]
		for _, i := range group {
			left[i] = true
		}
		cycle := shortest(tasks, left, group[0])
		r.cycle(tasks, cycle)
		last := &tasks[cycle[len(cycle)-1]]
		last.dependencies = slices.DeleteFunc(last.dependencies, func(n dependency) bool { return n.of == cycle[0] })
		more := stronglyConnected(tasks, left)
		for _, i := range group {
			left[i] = false
		}
		open = append(more, open...)
	}
}

func (r *reader) cycle(tasks []taskBuilder, cycle []int32) {
	first := &tasks[cycle[0]]
	at := first.at
	for _, n := range first.dependencies {
		if n.of == cycle[1%len(cycle)] {
			at = n.at
			break
		}
	}
	r.add(at.line, at.column, first.where(int(cycle[0])),
		"dependency cycle: "+arrows(tasks, cycle), "remove one of these dependencies")
}

// shortest returns a shortest cycle through start among the tasks in left,
// each followed by one that it depends on. A cycle exists because start is in
// a group.
func shortest(tasks []taskBuilder, left []bool, start int32) []int32 {
	from := map[int32]int32{}
	queue := []int32{start}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, n := range tasks[i].dependencies {
			if n.of == start {
				cycle := []int32{i}
				for i != start {
					i = from[i]
					cycle = append(cycle, i)
				}
				slices.Reverse(cycle)
				return cycle
			}
			if _, seen := from[n.of]; !seen && left[n.of] {
				from[n.of] = i
				queue = append(queue, n.of)
			}
		}
	}
	return []int32{start}
}
