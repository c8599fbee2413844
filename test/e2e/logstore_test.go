package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// segments returns the segment files of a log.
func segments(t *testing.T, n *cluster.Coordinator) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.DataDir, "wal", "*.wal"))
	clustertest.Must(t, err)
	return files
}

// TestALogInSegmentsOutlivesEveryProcess kills the leader, then all coordinators,
// with logs in segments of raft-wal, while snapshots compact the logs.
func TestALogInSegmentsOutlivesEveryProcess(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 2, CoordinatorFlags: append(snapshotFlags(), "--log-store", "wal")})
	var jobs []string
	submit := func() {
		t.Helper()
		for range 10 {
			jobs = append(jobs, clustertest.Submit(t, c.Ctl, cluster.JobFile("kept",
				cluster.Builtin("first", "sleep", "50ms"), cluster.Builtin("second", "noop", "").After("first"))))
		}
	}
	for range 3 {
		submit()
		leader := clustertest.Leader(t, c)
		if len(segments(t, leader)) == 0 {
			t.Fatal("got no segments")
		}
		clustertest.Must(t, leader.Kill())
		submit()
		clustertest.Must(t, leader.Start(ctx))
		clustertest.Must(t, c.AwaitCaughtUp(ctx, leader))
	}
	submit()
	for _, n := range c.Coordinators() {
		clustertest.Must(t, n.Kill())
	}
	clustertest.Must(t, c.Start(ctx))
	for _, id := range jobs {
		if job := completed(t, c.Ctl, id); len(job.Tasks) != 2 {
			t.Errorf("job %s: got %d tasks, want 2", id, len(job.Tasks))
		}
	}
	clustertest.Must(t, c.AwaitEqual(ctx))
}

// TestAReplicaChangesItsLogStoreByRejoining: a data directory is refused with
// another store. The cluster is mixed while its replicas are changed one after
// another.
func TestAReplicaChangesItsLogStoreByRejoining(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1, CoordinatorFlags: []string{"--log-store", "bolt", "--auto-rejoin"}})
	before := clustertest.Submit(t, c.Ctl, cluster.JobFile("before", cluster.Builtin("a", "noop", "")))
	completed(t, c.Ctl, before)
	ids := []string{"n1", "n2", "n3"}
	for _, i := range []int{0, 1} { // one of them may lead
		n := c.Coordinators()[i]
		clustertest.Must(t, c.AwaitCaughtUp(ctx, n))
		clustertest.Must(t, n.Terminate())
		_, err := n.Wait(ctx)
		clustertest.Must(t, err)
		n.AddArgs("--log-store", "wal")
		clustertest.Must(t, n.Start(ctx))
		awaitExit(t, n, n.DataDir, "uses log store bolt", "--log-store=wal", "--log-store=bolt", "empty data directory")
		if len(segments(t, n)) > 0 {
			t.Error("a refused data directory has segments, want none")
		}
		clustertest.Must(t, os.Rename(n.DataDir, n.DataDir+".old"))
		clustertest.Must(t, n.Start(ctx))
		ids[i] += "-1"
		awaitVoters(t, c, ids...)
		clustertest.Must(t, c.AwaitCaughtUp(ctx, n))
		if len(segments(t, n)) == 0 {
			t.Error("got no segments")
		}
	}
	completed(t, c.Ctl, before)
	completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("after", cluster.Builtin("a", "noop", ""))))
	clustertest.Must(t, c.AwaitEqual(ctx))
}
