package e2e

import (
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// need is a dependency with a condition.
func need(task, when string) map[string]any { return map[string]any{"task": task, "when": when} }

// sweepFile is a job with an array of 200 points of which two fail, and what follows.
func sweepFile(name string, following ...cluster.TaskFile) string {
	points := cluster.TaskFile{
		"id": "point", "array": map[string]any{"range": "0-199"}, "retry": map[string]any{"max": 0},
		"run": `test $(( ${{ index }} % 100 )) != 7`,
	}
	return cluster.JobFileWith(map[string]any{"name": name, "max_failures": "1%"}, append([]cluster.TaskFile{points}, following...)...)
}

// conditionsDecide checks that tasks run as the ends of others say, and that no job
// ends well whose work was cancelled.
func conditionsDecide(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	echo := func(id string, needs ...any) cluster.TaskFile {
		return cluster.Builtin(id, "echo", id).With("needs", needs)
	}
	id := clustertest.Submit(t, c.Ctl, sweepFile("silent", echo("collect", "point")))
	got := c.Run(t.Context(), "wait", id)
	if got.Code != 1 || !strings.Contains(got.Stderr, "task collect cancelled: dependency point[") {
		t.Errorf("a sweep whose collector was cancelled: exit %d, %s", got.Code, got.Stderr)
	}
	id = clustertest.Submit(t, c.Ctl, sweepFile("tolerant",
		echo("collect", need("point", "tolerated")), echo("alarm", need("collect", "failed")), echo("report", "point", need("collect", "ended"))))
	job, err := c.AwaitEnd(t.Context(), id, guard)
	clustertest.Must(t, err)
	for task, want := range map[string]string{"collect": "completed", "alarm": "cancelled", "report": "cancelled"} {
		if got := job.Task(task).State; got != want {
			t.Errorf("%s: got %s, want %s", task, got, want)
		}
	}
	if why := job.Task("alarm").Error; why != "skipped: dependency collect did not fail" {
		t.Errorf("the alarm was cancelled because of %q", why)
	}
	if job.State != "failed" { // the report needed all points
		t.Errorf("got job %s, want failed", job.State)
	}

	bad := cluster.TaskFile{"id": "bad", "run": "exit 3", "retry": map[string]any{"max": 0}}
	id = clustertest.Submit(t, c.Ctl, cluster.JobFile("handled", bad, echo("next", "bad"), echo("repair", need("bad", "failed")), echo("verify", "repair")))
	job, err = c.AwaitEnd(t.Context(), id, guard)
	clustertest.Must(t, err)
	if !job.Task("repair").Completed() || !job.Task("verify").Completed() || job.Task("next").State != "cancelled" || job.State != "failed" {
		t.Errorf("got job %+v, want a failed one with its handler completed", job)
	}
}
