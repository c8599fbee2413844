package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// cancelKills cancels a command with a child, a grandchild that ignores SIGTERM,
// and a grandchild that ignores it in a session of its own.
func cancelKills(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	const grace = time.Second
	ctx := t.Context()
	mark := c.Programs.Path("mark") + " -for 10m -ledger " + ledgerOf(c)
	script := fmt.Sprintf(`sh -c '%[1]s -ignore-term & %[1]s -ignore-term -setsid & wait' & %[1]s`, mark)
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("stubborn",
		cluster.TaskFile{"id": "family", "run": script, "kill_grace": grace.String(), "env": map[string]string{"E2E_FAMILY": "cancel"}}))
	family := func() []int { return cluster.ProcessesWith("E2E_FAMILY=cancel") }
	clustertest.Must(t, cluster.Until(ctx, "all processes are running", guard, func(context.Context) error {
		if n := len(runsOf(t, c, id, "family")); n < 3 {
			return fmt.Errorf("%d of 3 have started", n)
		}
		return nil
	}))
	if n := len(family()); n < 4 {
		t.Fatalf("got %d processes of the task, want 5: the shell and its descendants", n)
	}
	clustertest.Must(t, c.Run(ctx, "cancel", id).Err())
	clustertest.Must(t, cluster.Until(ctx, "all processes are gone", grace+time.Second+slack, func(context.Context) error {
		if left := family(); len(left) > 0 {
			return fmt.Errorf("processes %v still run", left)
		}
		return nil
	}))
	job, err := c.AwaitEnd(ctx, id, guard)
	clustertest.Must(t, err)
	if job.State != "cancelled" || job.Tasks[0].State != "cancelled" {
		t.Errorf("got job %s and task %s, want both cancelled", job.State, job.Tasks[0].State)
	}
	if a := c.Run(ctx, "cancel", id, "-o", "json"); a.Code != 0 {
		t.Errorf("cancelling again: got %s, want success", a)
	}
}
