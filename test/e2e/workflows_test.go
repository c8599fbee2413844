package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/workflows"
)

// workflowsSeed is the seed of the collection of workflows.
const workflowsSeed = 1

// TestWorkflowsOfPublishedShapesRunInOrder runs 167 graphs with 64,321 tasks in one
// submission. They do nothing, so all limits are those of the scheduler. It does not run
// concurrently with other tests, because it saturates the machine.
func TestWorkflowsOfPublishedShapesRunInOrder(t *testing.T) {
	c := clustertest.Start(t, cluster.Config{Workers: 2, Slots: 16})
	graphs := workflows.Collection(workflowsSeed)
	files := writeWorkflows(t, graphs, func(task workflows.Task) cluster.TaskFile {
		return cluster.Builtin(task.ID, "noop", "")
	})
	steadily(t, c, func() string {
		stolen := steals(t, c)
		began := time.Now()
		ids := submitWorkflows(t, c, graphs, files)
		submitted := time.Since(began)
		jobs := completedWorkflows(t, c, graphs, ids, guard)
		ended := slices.MaxFunc(jobs, func(a, b cluster.Job) int { return a.CompletedAt.Compare(*b.CompletedAt) }).CompletedAt
		t.Logf("submitted after %v, the last one completed after %v, checked after %v", submitted, ended.Sub(began), time.Since(began))
		stolen = steals(t, c) - stolen
		for i, job := range jobs {
			checkTimes(t, job, graphs[i].After(), len(graphs[i].Tasks), stolen)
		}
		return repeats(stolen, jobs...)
	})
	clustertest.Must(t, c.AwaitEqual(t.Context()))
}

// writeWorkflows writes a job file for each graph and returns their paths.
func writeWorkflows(t *testing.T, graphs []workflows.Graph, file func(workflows.Task) cluster.TaskFile) []string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for _, g := range graphs {
		tasks := make([]cluster.TaskFile, 0, len(g.Tasks))
		for _, task := range g.Tasks {
			tasks = append(tasks, file(task).After(task.After...))
		}
		path := filepath.Join(dir, g.Name+".json")
		clustertest.Must(t, os.WriteFile(path, []byte(cluster.JobFile(g.Name, tasks...)), 0o600))
		paths = append(paths, path)
	}
	return paths
}

// submitWorkflows submits all files with one command, and returns the IDs of the jobs in
// the order of the graphs.
func submitWorkflows(t *testing.T, c *cluster.Cluster, graphs []workflows.Graph, files []string) []string {
	t.Helper()
	a := c.Run(t.Context(), append([]string{"submit", "-o", "json"}, files...)...)
	clustertest.Must(t, a.Err())
	var doc struct {
		Jobs []struct {
			ID    string `json:"id"`
			Name  string `json:"name"`
			Total int    `json:"tasks_total"`
		} `json:"jobs"`
	}
	clustertest.Must(t, a.Into(&doc))
	if len(doc.Jobs) != len(graphs) {
		t.Fatalf("got %d jobs, want %d", len(doc.Jobs), len(graphs))
	}
	var ids []string
	for i, job := range doc.Jobs {
		if g := graphs[i]; job.Name != g.Name || job.Total != len(g.Tasks) || slices.Contains(ids, job.ID) {
			t.Fatalf("got %+v after jobs %v, want %s with %d tasks", job, ids, g.Name, len(g.Tasks))
		}
		ids = append(ids, job.ID)
	}
	return ids
}

// completedWorkflows waits for the jobs and returns them with their tasks. All must have
// completed, with the tasks of their graphs.
func completedWorkflows(t *testing.T, c *cluster.Cluster, graphs []workflows.Graph, ids []string, limit time.Duration) []cluster.Job {
	t.Helper()
	clustertest.Must(t, c.Run(t.Context(), slices.Concat([]string{"wait", "--quiet", "--timeout", limit.String()}, ids)...).Err())
	var jobs []cluster.Job
	for i, id := range ids {
		job, err := c.Job(t.Context(), id)
		clustertest.Must(t, err)
		g := graphs[i]
		if job.State != "completed" || job.Name != g.Name || job.TasksTotal != len(g.Tasks) || job.TasksCompleted != len(g.Tasks) {
			t.Fatalf("job %s: got %s, %s with %d of %d tasks completed, want %s completed with %d", id, job.Name, job.State, job.TasksCompleted, job.TasksTotal, g.Name, len(g.Tasks))
		}
		shown := make(map[string]bool, len(job.Tasks))
		for _, task := range job.Tasks {
			shown[task.ID] = task.Completed()
		}
		for _, task := range g.Tasks {
			if !shown[task.ID] {
				t.Errorf("job %s: task %s is missing or has not completed", id, task.ID)
			}
		}
		jobs = append(jobs, job)
	}
	return jobs
}
