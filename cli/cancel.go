package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newCancel(a *app) *cobra.Command {
	var reason string
	var now bool
	cmd := &cobra.Command{
		Use:   "cancel JOB[/TASK]...",
		Short: "Cancel jobs or tasks",
		Long: `Cancel jobs, single tasks, or the unfinished tasks of arrays (JOB/ARRAY): the named
ones, or all pending and running jobs that match filters. Running commands are killed.
A job's cleanup tasks (finally: true) still run, and the job is cancelled after they
finish; --now ends them too. Repeating the command has no further effect.

` + selectorHelp,
		Example: `  dtaskctl cancel 42
  dtaskctl cancel 42 43 44/fetch
  dtaskctl cancel 42 --now
  dtaskctl cancel 42/fetch --reason "wrong input"
  dtaskctl cancel '42/map[17]'
  dtaskctl cancel @last
  dtaskctl cancel @etl/fetch
  dtaskctl cancel --name nightly --state pending --dry-run
  dtaskctl cancel --label team=data --owner ada --yes`,
	}
	s := &jobSelector{usual: activeJobStates}
	a.bindChange(cmd, s, &jobChange{
		verb: "cancel", gerund: "cancelling", past: "cancelled",
		apply: func(ctx context.Context, c *client.Client, t *target, _, _ int) (done changed, err error) {
			if now {
				done.already, err = c.CancelNow(ctx, t.job, reason)
			} else {
				done.already, err = c.Cancel(ctx, t.job, t.task, reason)
			}
			return done, err
		},
		single: func(t *target, done *changed) any {
			return document.Cancellation{ID: t.String(), Already: done.already}
		},
	})
	selected := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if now && slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "/") }) {
			return usagef("--now requires a whole job: use JOB instead of JOB/TASK")
		}
		return selected(cmd, args)
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` shown in the status")
	cmd.Flags().BoolVar(&now, "now", false, "end the job's cleanup tasks too")
	return cmd
}
