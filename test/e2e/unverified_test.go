package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// TestADirectoryThatWasNotVerifiedRaisesAnAlarmUntilAllAreBack crashes all coordinators
// and restarts two of them: nobody can tell whether the third one has acknowledged more.
func TestADirectoryThatWasNotVerifiedRaisesAnAlarmUntilAllAreBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{})
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("kept", cluster.Builtin("a", "noop", "")))
	all := c.Coordinators()
	for _, n := range all {
		clustertest.Must(t, n.Kill())
	}
	for _, n := range all[:2] {
		clustertest.Must(t, n.Start(ctx))
	}
	alarms := func(want bool) func(context.Context) error {
		return func(ctx context.Context) error {
			status, err := c.At(all[:2]...).Status(ctx)
			if err != nil {
				return err
			}
			found := ""
			for _, a := range status.Alarms {
				if a.Kind == membership.AlarmUnverifiedDirectory {
					found = a.Member + ": " + a.Message
				}
			}
			if status.Leader == "" || (found != "") != want {
				return fmt.Errorf("leader %q, alarm %q", status.Leader, found)
			}
			return nil
		}
	}
	clustertest.Must(t, cluster.Until(ctx, "the alarm is raised", guard, alarms(true)))
	if !all[0].LogHas("data directory not verified") && !all[1].LogHas("data directory not verified") {
		t.Error("no replica has logged that its directory was not verified")
	}
	if job, err := c.At(all[:2]...).Job(ctx, id); err != nil || job.Name != "kept" {
		t.Errorf("the job: %+v, %v", job, err)
	}
	clustertest.Must(t, all[2].Start(ctx))
	clustertest.Must(t, cluster.Until(ctx, "the alarm is cleared", guard, alarms(false)))
	clustertest.Must(t, c.AwaitEqual(ctx))
}
