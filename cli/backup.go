package cli

import "github.com/spf13/cobra"

func newBackup(a *app) *cobra.Command {
	return newNoun("backup", "Save and list backups of the cluster",
		"  dtaskctl backup save cluster.dtbk\n  dtaskctl backup save cluster.dtbk --with-history",
		newBackupSave(a), newBackupList(a))
}
