package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// A node is a task of a random graph, with its end according to the reference model.
type node struct {
	id    string
	after []string
	fails int // attempts that fail; -1 = all
	max   int // retries allowed

	state   string
	attempt int
}

// computeEnds is the reference model: it computes how each task must end, in the
// slow and obvious way. Nodes follow those that they depend on, and the job
// continues after failures.
func computeEnds(nodes []node) {
	byID := map[string]*node{}
	for i := range nodes {
		n := &nodes[i]
		byID[n.id] = n
		n.state, n.attempt = "completed", 1
		for _, id := range n.after {
			if byID[id].state != "completed" {
				n.state, n.attempt = "cancelled", 0
			}
		}
		if n.state == "cancelled" {
			continue
		}
		switch {
		case n.fails >= 0 && n.fails <= n.max:
			n.attempt = n.fails + 1
		case n.max == 0:
			n.state = "failed"
		default:
			n.state, n.attempt = "dead", n.max+1
		}
	}
}

func randomNodes(random *rand.Rand) []node {
	var nodes []node
	for i := range 20 + random.IntN(40) {
		n := node{id: fmt.Sprintf("t%d", i)}
		for _, before := range nodes {
			if random.IntN(len(nodes)) < 2 {
				n.after = append(n.after, before.id)
			}
		}
		switch random.IntN(12) {
		case 0:
			n.fails, n.max = -1, random.IntN(3)
		case 1:
			n.fails, n.max = 1+random.IntN(2), 2
		}
		nodes = append(nodes, n)
	}
	computeEnds(nodes)
	return nodes
}

func fileOf(name string, nodes []node) string {
	var tasks []cluster.TaskFile
	for _, n := range nodes {
		task := cluster.Builtin(n.id, "noop", "")
		if n.fails != 0 {
			task = cluster.TaskFile{"id": n.id, "type": "fail", "payload": map[string]any{"times": max(n.fails, 0)}}
		}
		retry := map[string]any{"max": n.max}
		if n.max > 0 {
			retry["initial"] = "10ms"
		}
		tasks = append(tasks, task.After(n.after...).With("retry", retry))
	}
	return cluster.JobFileWith(map[string]any{"name": name, "on_failure": "continue"}, tasks...)
}

func randomGraphs(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	ids, graphs := []string{}, [][]node{}
	for i := range 6 {
		nodes := randomNodes(random)
		ids = append(ids, clustertest.Submit(t, c.Ctl, fileOf(fmt.Sprintf("random-%d", i), nodes)))
		graphs = append(graphs, nodes)
	}
	for i, id := range ids {
		job, err := c.AwaitEnd(t.Context(), id, guard)
		clustertest.Must(t, err)
		compareWithModel(t, job, graphs[i])
	}
	if t.Failed() {
		t.Logf("seed %d", seed)
	}
}

func compareWithModel(t *testing.T, job cluster.Job, nodes []node) {
	t.Helper()
	wantState := "completed"
	for _, n := range nodes {
		if n.state == "failed" || n.state == "dead" {
			wantState = "failed"
		}
		task := job.Task(n.id)
		if task == nil {
			t.Errorf("job %s: missing task %s", job.ID, n.id)
			continue
		}
		state := task.State
		if state == "aggregated" {
			state = "completed"
		}
		if state != n.state || task.Attempt != n.attempt {
			t.Errorf("job %s: got %+v, want %s after attempt %d", job.ID, *task, n.state, n.attempt)
		}
		for _, id := range n.after {
			before := job.Task(id)
			if n.attempt > 0 && before != nil && task.StartedAt != nil && before.CompletedAt != nil && task.StartedAt.Before(*before.CompletedAt) {
				t.Errorf("job %s: %s started at %v, before %s had ended at %v", job.ID, n.id, task.StartedAt, id, before.CompletedAt)
			}
		}
	}
	if job.State != wantState {
		t.Errorf("job %s: got %s, want %s", job.ID, job.State, wantState)
	}
}
