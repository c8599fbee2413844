package cli

import "github.com/spf13/cobra"

func newCluster(a *app) *cobra.Command {
	return newNoun("cluster", "Show, name and upgrade the cluster, change its members",
		"  dtaskctl cluster status\n  dtaskctl cluster add n4 10.0.0.4:7460",
		newClusterStatus(a), newClusterDU(a), newClusterAdd(a), newClusterRemove(a), newClusterTransfer(a), newClusterUpgrade(a), newClusterName(a))
}
