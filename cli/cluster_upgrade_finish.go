package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
)

func newClusterUpgradeFinish(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "finish",
		Short: "Raise the feature level to that of the new version",
		Long: `Raise the cluster's feature level to the highest one that all coordinators support, and
release a hold. Afterwards, the features of the new version are available, and older
versions are refused. This can't be undone. The command is rejected while a coordinator
runs an older version or does not respond. Unless the level is held, the leader raises it
by itself after --upgrade-after of dtaskd.`,
		Example: `  dtaskctl cluster upgrade finish`,
		Args:    noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			got, err := c.FinishUpgrade(ctx)
			if err != nil {
				return view{}, err
			}
			line := fmt.Sprintf("upgrade finished: the cluster is at level %d", got.GetLevel())
			if got.GetAlready() {
				line = fmt.Sprintf("nothing to finish: the cluster is at level %d", got.GetLevel())
			}
			return lines(document.NewFinishedUpgrade(got), line), nil
		}),
	}
}
