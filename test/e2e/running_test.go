package e2e

import (
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// The worker is stopped, so that it reports nothing to the new leader. Its command
// continues.
func TestANewLeaderShowsLoggedStartsAsRunning(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1, Slots: 1})
	once := c.Programs.Mark("once", ledgerOf(c), 10*time.Second).With("execution", "at-most-once")
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("starts", once))
	awaitBegun(t, c, id, 1)
	before, err := c.Job(ctx, id)
	clustertest.Must(t, err)
	worker, leader := c.Workers()[0], clustertest.Leader(t, c)
	clustertest.Must(t, worker.Pause())
	clustertest.Must(t, leader.Kill())
	next, err := c.AwaitLeaderOtherThan(ctx, leader)
	clustertest.Must(t, err)

	want := before.Task("once").StartedAt
	for _, n := range c.Coordinators() {
		if n == leader {
			continue
		}
		args := []string{"status", id, "--state", "running", "-o", "json"}
		if n != next {
			args = append(args, "--stale")
		}
		var job cluster.Job
		clustertest.Must(t, c.At(n).Run(ctx, args...).Into(&job))
		if got := job.Task("once"); got == nil || want == nil || got.StartedAt == nil || !got.StartedAt.Equal(*want) {
			t.Errorf("%s shows %+v as running, want the task since %v", n.Name, job.Tasks, want)
		}
	}

	clustertest.Must(t, worker.Resume())
	checkLedger(t, c, nil, judged(completed(t, c.Ctl, id), nil))
}
