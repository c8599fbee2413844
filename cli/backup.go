package cli

import "github.com/spf13/cobra"

func newBackup(a *app) *cobra.Command {
	return newNoun("backup", "Save the state of the cluster in a file",
		"  dtaskctl backup save cluster.dtbk\n  dtaskctl backup save cluster.dtbk --with-history",
		newBackupSave(a))
}
