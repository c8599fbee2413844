package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newScheduleList(a *app) *cobra.Command {
	var f client.ScheduleFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List schedules with their next ticks",
		Long: `List schedules with their next ticks, in the order in which they were first set. A
schedule is active, paused, held (something else keeps it from firing) or ended.

` + staleHelp,
		Example: `  dtaskctl schedule list
  dtaskctl schedule list --namespace etl -o json
  dtaskctl schedule list -q`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			f.Stale, f.Fresh = a.stale, a.noteFresh
			all, err := collect(c.Schedules(ctx, f))
			if err != nil {
				return view{}, err
			}
			if a.quiet {
				var names []string
				for _, x := range all {
					names = append(names, x.GetName())
				}
				return view{}, a.printIDs(names)
			}
			return view{doc: document.NewSchedules(all), text: func(p *show.Printer) { p.Schedules(all) }}, nil
		}),
	}
	bindNamespace(cmd.Flags(), &f.Namespace, "only schedules in this `NAMESPACE` (default: all that you may see)")
	bindLimit(cmd.Flags(), &f.Limit, "schedules")
	a.bindStale(cmd.Flags())
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "print names only")
	return cmd
}
