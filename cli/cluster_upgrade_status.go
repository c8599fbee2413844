package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newClusterUpgradeStatus(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show versions, feature levels and the next step",
		Long: `Show the version of each coordinator, the feature levels that it supports, the
cluster's level, and the next step of an upgrade. The leader is upgraded last.`,
		Example: `  dtaskctl cluster upgrade status
  dtaskctl cluster upgrade status -o json`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			status, err := c.UpgradeStatus(ctx)
			if err != nil {
				return view{}, err
			}
			return view{doc: document.NewUpgrade(status), text: func(p *show.Printer) { p.Upgrade(status) }}, nil
		}),
	}
}
