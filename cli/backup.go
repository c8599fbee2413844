package cli

import "github.com/spf13/cobra"

func newBackup(a *app) *cobra.Command {
	return newNoun("backup", "Save, schedule and list backups of the cluster",
		"  dtaskctl backup save cluster.dtbk\n  dtaskctl backup save cluster.dtbk --with-history\n  dtaskctl backup schedule --every 1h --to file:///mnt/backups --keep 48\n  dtaskctl backup status",
		newBackupSave(a), newBackupList(a), newBackupSchedule(a), newBackupStatus(a))
}
