package e2e

import (
	"os"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// Both tasks of a key run on one worker, although others are idle: with four slots each, no
// worker is so full that a task starts elsewhere.
func TestTheExampleOfAffinityRunsEachKeyOnOneWorker(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Coordinators: 1})
	for _, name := range []string{"w1", "w2", "w3"} {
		clustertest.Must(t, c.AddWorker(name, "--slots=4").Start(ctx))
		clustertest.Must(t, c.AwaitWorker(ctx, name, "up"))
	}
	text, err := os.ReadFile("../../examples/affinity.yaml")
	clustertest.Must(t, err)
	job, err := c.AwaitEnd(ctx, submitText(t, c, string(text)), guard)
	clustertest.Must(t, err)
	for _, user := range []string{"ann", "ben"} {
		read, count := job.Task(user+"-read"), job.Task(user+"-count")
		if read == nil || count == nil || !read.Completed() || !count.Completed() || read.Worker != count.Worker {
			t.Errorf("tasks of %s: got %+v and %+v, want both on one worker", user, read, count)
		}
	}
}
