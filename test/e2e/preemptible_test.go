package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// The worker has fewer slots than the example has tasks, so an urgent command finds none free.
// Whatever was stopped for it continues from its checkpoint.
func TestTheExampleOfPreemptibleTasksCompletesBesideAnUrgentCommand(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Coordinators: 1})
	clustertest.Must(t, c.AddWorker("w1", "--slots=2").Start(ctx))
	clustertest.Must(t, c.AwaitWorker(ctx, "w1", "up"))
	text, err := os.ReadFile("../../examples/preemptible.yaml")
	clustertest.Must(t, err)
	id := submitText(t, c, string(text))
	_, err = c.AwaitJob(ctx, id, guard, "two of its tasks run", func(j cluster.Job) bool {
		running := 0
		for _, task := range j.Tasks {
			if task.State == "running" {
				running++
			}
		}
		return running == 2
	})
	clustertest.Must(t, err)
	if got := c.Run(ctx, "run", "--wait", "--quiet", "--priority", "urgent", "--", "echo", "out of turn"); got.Code != 0 || got.Stdout != "out of turn\n" {
		t.Errorf("the urgent command: exit %d, %s%s", got.Code, got.Stdout, got.Stderr)
	}
	job, err := c.AwaitEnd(ctx, id, guard)
	clustertest.Must(t, err)
	if job.State != "completed" {
		t.Errorf("got job %+v, want it completed", job)
	}
	for i := range 4 {
		task := fmt.Sprintf("%s/count[%d]", id, i)
		if got := c.Run(ctx, "result", task); got.Code != 0 || got.Stdout != "20\n" {
			t.Errorf("result of %s: exit %d, %s%s; want 20", task, got.Code, got.Stdout, got.Stderr)
		}
	}
}
