package e2e

import (
	"context"
	"fmt"
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
	before, err := c.AwaitJob(ctx, id, guard, "the task runs", func(j cluster.Job) bool { return j.Task("once").State == "running" })
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
		clustertest.Must(t, cluster.Until(ctx, n.Name+" shows the task as running", guard, func(ctx context.Context) error {
			var job cluster.Job
			if err := c.At(n).Run(ctx, args...).Into(&job); err != nil {
				return err
			}
			if got := job.Task("once"); got == nil || got.StartedAt == nil || !got.StartedAt.Equal(*want) {
				return fmt.Errorf("got %+v, want running since %v", job.Tasks, want)
			}
			return nil
		}))
	}

	clustertest.Must(t, worker.Resume())
	checkLedger(t, c, nil, judged(completed(t, c.Ctl, id), nil))
}
