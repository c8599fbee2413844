package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newCancel(a *app) *cobra.Command {
	var reason string
	var now bool
	cmd := &cobra.Command{
		Use:   "cancel JOB[/TASK]",
		Short: "Cancel a job or a task",
		Long: `Cancel a job, one of its tasks, or the unfinished tasks of an array (JOB/ARRAY).
Running commands are killed. The job's cleanup tasks (finally: true) still run, and
the job is cancelled after they finish; --now ends them too. Repeating the command
has no further effect.`,
		Example: `  dtaskctl cancel 42
  dtaskctl cancel 42 --now
  dtaskctl cancel 42/fetch --reason "wrong input"
  dtaskctl cancel '42/map[17]'
  dtaskctl cancel @last
  dtaskctl cancel @etl/fetch`,
		Args: oneArg,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			if now && strings.Contains(args[0], "/") {
				return view{}, usagef("--now requires a whole job: use JOB instead of JOB/TASK")
			}
			r, err := a.ref(ctx, c, args[0])
			if err != nil {
				return view{}, err
			}
			var already bool
			if now {
				already, err = c.CancelNow(ctx, r.job, reason)
			} else {
				already, err = c.Cancel(ctx, r.job, r.task, reason)
			}
			if err != nil {
				return view{}, err
			}
			if a.textOutput() {
				r = r.withName(ctx, c)
			}
			line := r.describe() + " cancelled"
			if already {
				line += " earlier"
			}
			return lines(document.Cancellation{ID: r.String(), Already: already}, line), nil
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` shown in the status")
	cmd.Flags().BoolVar(&now, "now", false, "end the job's cleanup tasks too")
	return cmd
}
