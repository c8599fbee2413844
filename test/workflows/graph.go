package workflows

import (
	"fmt"
	"math/rand/v2"
)

// A Graph is one workflow.
type Graph struct {
	Family string
	Name   string // of the job: unique in its collection
	Tasks  []Task // in any order
}

// A Task is a node of a graph.
type Task struct {
	ID    string
	Kind  string   // the program that it stands for
	After []string // IDs of its dependencies
}

// After returns the dependencies of all tasks that have some, by ID.
func (g Graph) After() map[string][]string {
	after := make(map[string][]string, len(g.Tasks))
	for _, task := range g.Tasks {
		if len(task.After) > 0 {
			after[task.ID] = task.After
		}
	}
	return after
}

// A builder collects the tasks of one graph. IDs end with the number of the task, as the
// collections have them.
type builder struct {
	random *rand.Rand
	number string // format of the number: "_ID%07d"
	tasks  []Task
}

// add adds a task and returns its ID: the kind and the number.
func (b *builder) add(kind string, after ...string) string {
	return b.addNamed(kind, kind, after...)
}

// addNamed is add with an ID that begins with a name of its own.
func (b *builder) addNamed(kind, name string, after ...string) string {
	id := name + fmt.Sprintf(b.number, len(b.tasks)+1)
	b.tasks = append(b.tasks, Task{ID: id, Kind: kind, After: after})
	return id
}

// fan adds n tasks with the same dependencies.
func (b *builder) fan(n int, kind string, after ...string) []string {
	ids := make([]string, 0, n)
	for range n {
		ids = append(ids, b.add(kind, after...))
	}
	return ids
}

// each adds one task after each of the given ones.
func (b *builder) each(kind string, before []string, others ...string) []string {
	ids := make([]string, 0, len(before))
	for _, id := range before {
		ids = append(ids, b.add(kind, append([]string{id}, others...)...))
	}
	return ids
}

// shuffle puts the tasks into a random order: a job file may name a task before its
// dependencies.
func (b *builder) shuffle() []Task {
	b.random.Shuffle(len(b.tasks), func(i, j int) { b.tasks[i], b.tasks[j] = b.tasks[j], b.tasks[i] })
	return b.tasks
}

// divide divides n into a number of random parts of at least 1.
func (b *builder) divide(n, parts int) []int {
	sizes := make([]int, parts)
	for i := range sizes {
		sizes[i] = 1
	}
	for range n - parts {
		sizes[b.random.IntN(parts)]++
	}
	return sizes
}

// largest returns the largest n, at least 1, for which tasks(n) is at most size.
func largest(size int, tasks func(n int) int) int {
	n := 1
	for tasks(n+1) <= size {
		n++
	}
	return n
}
