package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newClusterStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the coordinators and the leader",
		Long: `Show the coordinators and the leader. It works without a leader.

LAG is how many entries a coordinator has still to apply, and how long ago the first of
them was made, if that is known.`,
		Example: `  dtaskctl cluster status
  dtaskctl --addr 10.0.0.1:7460,10.0.0.2:7460 cluster status -o json`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			status, err := c.ClusterStatus(ctx)
			if err != nil {
				return view{}, err
			}
			return view{doc: document.NewCluster(status), text: func(p *show.Printer) { p.Cluster(status) }}, nil
		}),
	}
}
