package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dtask/dtask/client"
)

func newSchedule(a *app) *cobra.Command {
	return newNoun("schedule", "Start jobs by the schedules of job files", `  dtaskctl schedule next nightly.yaml
  dtaskctl schedule set nightly.yaml
  dtaskctl schedule list
  dtaskctl schedule show nightly
  dtaskctl schedule pause nightly --reason "new disk"
  dtaskctl schedule backfill nightly --from 2026-05-01T00:00:00Z --to 2026-05-07T00:00:00Z`,
		newScheduleSet(a), newScheduleList(a), newScheduleShow(a), newSchedulePause(a), newScheduleResume(a), newScheduleDelete(a),
		newScheduleRun(a), newScheduleBackfill(a), newScheduleNext(a))
}

// bindScheduleNamespace adds the namespace of a named schedule.
func bindScheduleNamespace(fl *pflag.FlagSet, n *client.ScheduleName) {
	bindNamespace(fl, &n.Namespace, "`NAMESPACE` of the schedule (default: yours)")
}

// onSchedule runs a command about the schedule that its argument names.
func (a *app) onSchedule(n *client.ScheduleName, do func(ctx context.Context, c *client.Client) (view, error)) func(*cobra.Command, []string) error {
	return a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
		n.Name = args[0]
		v, err := do(ctx, c)
		return v, scheduleError(err)
	})
}

// scheduleError adds a hint to the error of a command about a schedule.
func scheduleError(err error) error {
	own, ok := errors.AsType[*commandError](err)
	switch {
	case ok && own != nil:
	case errors.Is(err, client.ErrNotFound):
		return withHint(err, "dtaskctl schedule list shows the schedules; --namespace names another namespace")
	case errors.Is(err, client.ErrConflict):
		return withHint(err, "dtaskctl schedule show NAME shows its version and its open runs")
	}
	return err
}
