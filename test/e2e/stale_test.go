package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// A job is run again from history. Then all coordinators but one are lost: it still
// answers stale reads, and no others.
func TestARerunReadsHistoryAndAStaleReadNeedsNoLeader(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1, CoordinatorFlags: []string{"--keep-for", "100ms"}})
	first := clustertest.Submit(t, c.Ctl, cluster.JobFile("job-0", cluster.Builtin("a", "echo", "of 0")))
	completed(t, c.Ctl, first)
	for _, n := range c.Coordinators() {
		clustertest.Must(t, cluster.Until(ctx, n.Name+" has the job in its history", guard, func(ctx context.Context) error {
			return hasAll(ctx, n, []string{first})
		}))
	}
	rerun := c.Run(ctx, "rerun", "@job-0", "-q", "--wait")
	second := strings.TrimSpace(rerun.Stdout)
	if rerun.Code != 0 || second == "" || second == first {
		t.Fatalf("rerun: %+v", rerun)
	}
	if job := completed(t, c.Ctl, second); job.Name != "job-0" || len(job.Tasks) != 1 || job.Tasks[0].ID != "a" {
		t.Errorf("got %+v", job)
	}

	left := c.Followers(clustertest.Leader(t, c))[0]
	clustertest.Must(t, c.AwaitEqual(ctx))
	awaitAllOf(t, c, left) // the replicas may have been equal before the job ended
	for _, n := range c.Coordinators() {
		if n != left {
			clustertest.Must(t, n.Kill())
		}
	}
	for _, args := range [][]string{{"list"}, {"status"}, {"status", "@job-0"}, {"result", second}, {"worker", "list"}, {"dlq", "list"}} {
		stale := c.Run(ctx, append(args, "--stale", "--timeout", "30s")...)
		if stale.Code != 0 || !strings.Contains(stale.Stderr, "stale read from "+left.Name+": log index ") {
			t.Errorf("%v --stale: %+v", args, stale)
		}
	}
	if fresh := c.Run(ctx, "list", "--timeout", "1s"); fresh.Code != 7 {
		t.Errorf("list without a leader: %+v", fresh)
	}
}
