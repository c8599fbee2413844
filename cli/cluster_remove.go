package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newClusterRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "remove ID",
		Short: "Remove a coordinator permanently",
		Long: `Remove a coordinator permanently, whether it is running or not. Its ID can't be used
again. The command is rejected if the remaining reachable voters would not be a
majority. A removed coordinator stops by itself, at the latest when it restarts.`,
		Example: `  dtaskctl cluster remove n2`,
		Args:    oneArg,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			already, err := c.RemoveMember(ctx, args[0])
			if err != nil {
				return view{}, err
			}
			line := args[0] + " removed"
			if already {
				line += " earlier"
			}
			return lines(document.RemovedMember{ID: args[0], Already: already}, line), nil
		}),
	}
}
