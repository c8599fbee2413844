package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newScheduleShow(a *app) *cobra.Command {
	var (
		n    client.ScheduleName
		next uint32
	)
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show when a schedule fires, why, and its last runs",
		Long: `Show the definition of a schedule, its next ticks, why the next one is when it is or why
nothing fires, and what happened to the last 20 ticks.

` + staleHelp,
		Example: `  dtaskctl schedule show nightly
  dtaskctl schedule show nightly -n 30
  dtaskctl schedule show nightly -o json`,
		Args: oneArg,
		RunE: a.onSchedule(&n, func(ctx context.Context, c *client.Client) (view, error) {
			x, err := c.Schedule(ctx, n, next, a.readOptions())
			if err != nil {
				return view{}, err
			}
			return view{doc: document.NewScheduleWithOutcomes(x), text: func(p *show.Printer) { p.Schedule(x) }}, nil
		}),
	}
	fl := cmd.Flags()
	bindP(fl, &next, "limit", "n", "3", "maximum number `N` of next ticks", integer[uint32](1, maxShownTicks))
	bindScheduleNamespace(fl, &n)
	a.bindStale(fl)
	return cmd
}

// maxShownTicks is how many next ticks a coordinator returns at most.
const maxShownTicks = 1000
