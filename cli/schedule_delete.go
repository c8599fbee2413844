package cli

import (
	"context"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newScheduleDelete(a *app) *cobra.Command {
	var (
		n       client.ScheduleName
		version uint32
	)
	cmd := &cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete a schedule; its jobs stay",
		Example: "  dtaskctl schedule delete nightly\n  dtaskctl schedule delete nightly --if-version 3",
		Args:    oneArg,
		RunE: a.onSchedule(&n, func(ctx context.Context, c *client.Client) (view, error) {
			if err := c.DeleteSchedule(ctx, n, version); err != nil {
				return view{}, err
			}
			return lines(document.DeletedSchedule{Name: n.Name, Deleted: true}, fmt.Sprintf("schedule %s deleted; its jobs stay", show.Clean(n.Name))), nil
		}),
	}
	bind(cmd.Flags(), &version, "if-version", "", "delete only if the schedule has this `VERSION`", integer[uint32](1, math.MaxUint32))
	bindScheduleNamespace(cmd.Flags(), &n)
	return cmd
}
