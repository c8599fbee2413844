package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newClusterUpgradeHold(a *app) *cobra.Command {
	var release bool
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Keep the feature level until the upgrade is finished",
		Long: `Keep the leader from raising the cluster's feature level by itself, so that all
coordinators can return to the older version. dtaskctl cluster upgrade finish raises it.
The command is rejected while a coordinator does not respond.`,
		Example: `  dtaskctl cluster upgrade hold
  dtaskctl cluster upgrade hold --release`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			got, err := c.HoldUpgrade(ctx, release)
			if err != nil {
				return view{}, err
			}
			line := fmt.Sprintf("held at level %d until dtaskctl cluster upgrade finish", got.GetLevel())
			if release {
				line = "hold released: the leader raises the level after all coordinators have supported a higher one for --upgrade-after"
			}
			return lines(document.NewHeldUpgrade(got, !release), line), nil
		}),
	}
	cmd.Flags().BoolVar(&release, "release", false, "end the hold without raising the level")
	return cmd
}
