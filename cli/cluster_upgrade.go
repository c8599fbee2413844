package cli

import "github.com/spf13/cobra"

func newClusterUpgrade(a *app) *cobra.Command {
	return newNoun("upgrade", "Show, finish and hold upgrades of coordinators",
		"  dtaskctl cluster upgrade status\n  dtaskctl cluster upgrade finish",
		newClusterUpgradeStatus(a), newClusterUpgradeFinish(a), newClusterUpgradeHold(a))
}
