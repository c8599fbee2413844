package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newClusterTransfer(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "transfer-leader [ID]",
		Short: "Transfer leadership to another coordinator",
		Long: `Transfer leadership to a coordinator. Without an ID, the voter with the longest log
becomes the leader.`,
		Example: `  dtaskctl cluster transfer-leader n3`,
		Args:    argCount(0, 1),
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			id := ""
			if len(args) == 1 {
				id = args[0]
			}
			if err := c.TransferLeadership(ctx, id); err != nil {
				return view{}, err
			}
			if status, err := c.ClusterStatus(ctx); err == nil {
				id = status.GetLeader()
			}
			return lines(document.LeaderTransfer{Leader: id},
				"leadership transferred; the leader is "+id), nil
		}),
	}
}
