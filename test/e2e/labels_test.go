package e2e

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// The example runs on workers that differ in their labels, and each task on one that fits.
func TestTheExampleOfPlacementRunsWhereItsRulesSay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Coordinators: 1})
	for name, labels := range map[string][]string{
		"w1": {"--label=zone=eu", "--label=disk=ssd"}, "w2": {"--label=zone=us", "--label=disk=hdd"}, "w3": {"--label=zone=ap", "--label=disk=ssd"},
	} {
		clustertest.Must(t, c.AddWorker(name, labels...).Start(ctx))
		clustertest.Must(t, c.AwaitWorker(ctx, name, "up"))
	}
	text, err := os.ReadFile("../../examples/placement.yaml")
	clustertest.Must(t, err)
	job, err := c.AwaitEnd(ctx, submitText(t, c, string(text)), guard)
	clustertest.Must(t, err)
	for task, want := range map[string][]string{"anywhere": {"w1", "w2"}, "not-on-hdd": {"w1"}, "with-disk": {"w1", "w2"}, "packed": {"w1", "w2"}, "rather-in-the-eu": {"w1", "w2"}, "pinned": {"w2"}} {
		if got := job.Task(task); got == nil || !got.Completed() || !slices.Contains(want, got.Worker) {
			t.Errorf("task %s: got %+v, want it on one of %v", task, got, want)
		}
	}
	if got := c.Run(ctx, "worker", "list"); !strings.Contains(got.Stdout, "worker=w1") || !strings.Contains(got.Stdout, "os="+runtime.GOOS) {
		t.Errorf("worker list: %s", got)
	}
}
