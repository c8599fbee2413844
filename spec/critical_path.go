package spec

import (
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A Span is a duration in milliseconds that is known as a range: at least Low and, if
// Bounded, at most High. The durations of a job can be added without overflow: it has at
// most 1,000,000 tasks of at most [MaxDuration].
type Span struct {
	Low, High int64
	Bounded   bool
}

// Exactly returns a span that is known exactly.
func Exactly(ms int64) Span { return Span{ms, ms, true} }

func (s Span) plus(o Span) Span {
	return Span{s.Low + o.Low, s.High + o.High, s.Bounded && o.Bounded}
}

func (s Span) times(n int64) Span { return Span{s.Low * n, s.High * n, s.Bounded} }

// A Graph has the tasks and arrays of a job as nodes, numbered in the order of the job. It is
// about a run in which no task fails: tasks that only run after a failure are left out.
type Graph struct {
	nodes []node
}

type node struct {
	needs       []uint32
	tasks       int64
	maxParallel int64 // 0 = unlimited
	cleanup     bool
	skipped     bool // it only runs after a failure
}

// NewGraph returns the graph of an outline that CheckOutline accepts.
func NewGraph(h *dtaskv1.JobHeader, tasks []*dtaskv1.PlanTask) *Graph {
	g := &Graph{nodes: make([]node, len(tasks))}
	for i, t := range tasks {
		g.nodes[i] = node{
			needs: t.GetDependencies(), tasks: int64(TasksOf(t)), maxParallel: int64(t.GetMaxParallel()), //nolint:gosec // at most MaxTasks
			cleanup: h.GetPolicies()[t.GetPolicy()].GetFinally(),
		}
		for k, of := range t.GetDependencies() {
			when := dtaskv1.Condition_CONDITION_COMPLETED
			if len(t.GetConditions()) > 0 {
				when = t.GetConditions()[k]
			}
			after := when != dtaskv1.Condition_CONDITION_ENDED && g.nodes[of].skipped
			g.nodes[i].skipped = g.nodes[i].skipped || after || when == dtaskv1.Condition_CONDITION_FAILED
		}
	}
	return g
}

// Skipped reports whether a node runs only after a failure.
func (g *Graph) Skipped(i int) bool { return g.nodes[i].skipped }

// Cleanup reports whether a node has cleanup tasks, which run after all others.
func (g *Graph) Cleanup(i int) bool { return g.nodes[i].cleanup }

// Runs returns the number of tasks that run.
func (g *Graph) Runs() (n int64) {
	for i := range g.nodes {
		if !g.nodes[i].skipped {
			n += g.nodes[i].tasks
		}
	}
	return n
}

// Work returns how long all tasks run together, if one task of node i takes takes[i].
func (g *Graph) Work(takes []Span) Span {
	sum := Exactly(0)
	for i := range g.nodes {
		if !g.nodes[i].skipped {
			sum = sum.plus(takes[i].times(g.nodes[i].tasks))
		}
	}
	return sum
}

// Rounds returns how many tasks of a node must run one after the other because of its
// max_parallel.
func (g *Graph) Rounds(i int) int64 {
	n := &g.nodes[i]
	switch {
	case n.skipped:
		return 0
	case n.maxParallel == 0:
		return 1
	}
	return (n.tasks + n.maxParallel - 1) / n.maxParallel
}

// Takes returns how long a node takes with any number of workers, if one task of it takes
// one.
func (g *Graph) Takes(i int, one Span) Span { return one.times(g.Rounds(i)) }

// A Path is a chain of nodes in which each one waits for the one before.
type Path struct {
	Nodes []int // in order
	Takes Span
}

// CriticalPath returns the path that takes longest: with any number of workers, the job
// takes that long if one task of node i takes takes[i]. The range is that of the job: its
// ends may be those of two different paths, and the nodes are those of the higher one, or
// of the lower one while some times are unknown. Of equal paths, it is the one with the
// first nodes.
func (g *Graph) CriticalPath(takes []Span) Path {
	low, lowNodes := g.longest(func(i int) int64 { return takes[i].Low })
	bounded := true
	for i := range g.nodes {
		bounded = bounded && (g.nodes[i].skipped || takes[i].Bounded)
	}
	if !bounded {
		return Path{Nodes: lowNodes, Takes: Span{Low: low}}
	}
	high, nodes := g.longest(func(i int) int64 { return takes[i].High })
	return Path{Nodes: nodes, Takes: Span{low, high, true}}
}

// longest returns the longest path, by how long one task of each node takes.
func (g *Graph) longest(takes func(i int) int64) (length int64, nodes []int) {
	end, from := make([]int64, len(g.nodes)), make([]int, len(g.nodes))
	last, lastOrdinary := -1, -1
	for i := range g.nodes {
		n := &g.nodes[i]
		from[i] = -1
		if n.cleanup && lastOrdinary >= 0 {
			from[i], end[i] = lastOrdinary, end[lastOrdinary]
		}
		for _, d := range n.needs {
			if of := int(d); end[of] > end[i] || from[i] < 0 && !g.nodes[of].skipped {
				from[i], end[i] = of, end[of]
			}
		}
		end[i] += takes(i) * g.Rounds(i)
		if n.skipped {
			continue
		}
		if last < 0 || end[i] > end[last] {
			last = i
		}
		if !n.cleanup && (lastOrdinary < 0 || end[i] > end[lastOrdinary]) {
			lastOrdinary = i
		}
	}
	if last < 0 {
		return 0, nil
	}
	for i := last; i >= 0; i = from[i] {
		if !g.nodes[i].skipped {
			nodes = append(nodes, i)
		}
	}
	slices.Reverse(nodes)
	return end[last], nodes
}
