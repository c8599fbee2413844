package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// smallSnapshots makes a replica take a snapshot after little work.
const smallSnapshots = 64 << 10

func snapshotFlags() []string { return []string{"--snapshot-bytes", fmt.Sprint(smallSnapshots)} }

// snapshots returns the finished snapshots of a coordinator.
func snapshots(n *cluster.Coordinator) []string {
	entries, err := os.ReadDir(filepath.Join(n.DataDir, "snapshots"))
	if err != nil {
		return nil // none yet
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasSuffix(e.Name(), ".tmp") {
			names = append(names, e.Name())
		}
	}
	return names
}

// fill stores enough bytes of jobs to make every replica take a snapshot.
func fill(t *testing.T, c *cluster.Cluster, times int) {
	t.Helper()
	payload := strings.Repeat("0123456789abcdef", 1<<10)
	for i := range times * 2 * smallSnapshots / len(payload) {
		clustertest.Submit(t, c.Ctl, cluster.JobFile("filler", cluster.Builtin(fmt.Sprintf("f%d", i), "noop", payload)))
	}
}

func TestOneKeyIsOneJobThroughLeaderChangeSnapshotAndRestart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1, CoordinatorFlags: snapshotFlags()})
	file := cluster.JobFile("keyed", cluster.Builtin("a", "echo", "first"))
	other := cluster.JobFile("keyed", cluster.Builtin("a", "echo", "second"))
	first := clustertest.Submit(t, c.Ctl, file, "--idempotency-key", "the-key")
	again := func(when string) {
		t.Helper()
		if id := clustertest.Submit(t, c.Ctl, file, "--idempotency-key", "the-key"); id != first { //nolint:contextcheck // the test's own
			t.Errorf("%s: got job %s for the key, want %s", when, id, first)
		}
		if a := c.RunWith(ctx, other, "submit", "-", "--idempotency-key", "the-key"); a.Code != 5 {
			t.Errorf("%s: want exit code 5 for another job, got %s", when, a)
		}
	}
	again("immediately")

	old := clustertest.Leader(t, c)
	clustertest.Must(t, old.Kill())
	again("after the leader was killed")
	clustertest.Must(t, c.Start(ctx))

	fill(t, c, 1)
	clustertest.Must(t, cluster.Until(ctx, "every replica has a snapshot", guard, func(context.Context) error {
		for _, n := range c.Coordinators() {
			if len(snapshots(n)) == 0 {
				return fmt.Errorf("%s has no snapshot", n.Name)
			}
		}
		return nil
	}))
	again("after a snapshot")

	for _, n := range c.Coordinators() {
		clustertest.Must(t, n.Kill())
	}
	clustertest.Must(t, c.Start(ctx))
	again("after all coordinators were killed and started again")

	var list struct {
		Jobs []cluster.Job `json:"jobs"`
	}
	a := c.Run(ctx, "list", "--name", "keyed", "-o", "json")
	clustertest.Must(t, a.Err())
	clustertest.Must(t, a.Into(&list))
	if len(list.Jobs) != 1 || list.Jobs[0].ID != first {
		t.Errorf("got jobs %+v of that name, want one", list.Jobs)
	}
}
