package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
)

func newSchedulePause(a *app) *cobra.Command {
	var (
		n      client.ScheduleName
		reason string
	)
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Keep a schedule from firing",
		Long: `Keep a schedule from firing until it is resumed. Runs that have started continue. The
ticks of the pause never fire, and don't count as missed. schedule run and schedule
backfill still start jobs.`,
		Example: `  dtaskctl schedule pause nightly
  dtaskctl schedule pause nightly --reason "new disk"`,
		Args: oneArg,
		RunE: a.onSchedule(&n, func(ctx context.Context, c *client.Client) (view, error) {
			x, already, err := c.PauseSchedule(ctx, n, reason)
			if err != nil {
				return view{}, err
			}
			return changedSchedule(x, already, "paused"), nil
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` shown by schedule show")
	bindScheduleNamespace(cmd.Flags(), &n)
	return cmd
}

func newScheduleResume(a *app) *cobra.Command {
	var n client.ScheduleName
	cmd := &cobra.Command{
		Use:     "resume NAME",
		Short:   "Let a paused schedule fire again",
		Long:    `Let a paused schedule fire again, from its next tick on. It prints the next 3 ticks.`,
		Example: `  dtaskctl schedule resume nightly`,
		Args:    oneArg,
		RunE: a.onSchedule(&n, func(ctx context.Context, c *client.Client) (view, error) {
			x, already, err := c.ResumeSchedule(ctx, n)
			if err != nil {
				return view{}, err
			}
			return changedSchedule(x, already, "resumed"), nil
		}),
	}
	bindScheduleNamespace(cmd.Flags(), &n)
	return cmd
}
