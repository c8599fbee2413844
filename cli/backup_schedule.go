package cli

import (
	"context"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/backup"
	"github.com/dtask/dtask/internal/document"
)

func newBackupSchedule(a *app) *cobra.Command {
	var s client.BackupSchedule
	var recipients []string
	cmd := &cobra.Command{
		Use:   "schedule --every DURATION --to URL",
		Short: "Have the cluster write backups at an interval",
		Long: `Have the cluster write a backup at once, and then at an interval. It replaces the
schedule before. Only admins may. dtaskctl backup status shows the schedule and its runs.

URL names a directory on the machines of the coordinators, such as file:///mnt/backups. It
must exist. The leader chooses a follower, or itself without one, and stays with its
choice. Each run adds a state and the finished jobs that are new, as dtaskctl backup save
--to does; the state is read back and built in memory before it gets its name. A run that
fails is repeated by another follower after a minute, and one that is interrupted by the
next leader.

Only the user of dtaskd can read the files. --encrypt-to encrypts them to public keys of
age (age1…), which are in the URL of the schedule; dtaskd reads them with --identity. All
backups in a directory are encrypted, or none. Use a directory that all coordinators
share, on other disks than theirs.`,
		Example: `  dtaskctl backup schedule --every 1h --to file:///mnt/backups --keep 48
  dtaskctl backup schedule --every 1h --to file:///mnt/encrypted --encrypt-to "$(cat backups.pub)"
  dtaskctl backup schedule delete`,
		Args: noArgs,
	}
	fl := cmd.Flags()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range []string{"every", "to"} {
			if !fl.Changed(name) {
				return usagef("missing --%s: %s; dtaskctl backup status shows the schedule", name, cmd.UseLine())
			}
		}
		if _, err := backup.ParseRecipients(recipients); err != nil {
			return usagef("invalid --encrypt-to: %v", err)
		}
		s.To = backup.TargetTo(s.To, recipients)
		target, err := backup.ParseTarget(s.To)
		if err != nil {
			return usagef("invalid --to with --encrypt-to: %v", err)
		}
		return a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			got, err := c.SetBackupSchedule(ctx, s)
			if err != nil {
				return view{}, err
			}
			if len(target.To) == 0 {
				a.note("%s", backupSecrecy)
			}
			return lines(document.NewBackupSchedule(got), "schedule  "+show.BackupSchedule(got), "the first backup is written now: see dtaskctl backup status"), nil
		})(cmd, args)
	}
	bind(fl, &s.Every, "every", "", "`DURATION` from the end of a backup to the next, from 1m", duration(time.Minute, 366*24*time.Hour))
	bind(fl, &s.To, "to", "", "file:// `URL` of a directory on the coordinators", func(text string) (string, error) {
		_, err := backup.ParseTarget(text)
		return text, err
	})
	fl.StringArrayVar(&recipients, "encrypt-to", nil, "encrypt the backups to `RECIPIENT`, a public key of age; can be repeated")
	bind(fl, &s.Keep, "keep", "0", "keep the newest `N` states (0 = all)", integer[uint32](0, math.MaxInt32))
	cmd.AddCommand(newBackupScheduleDelete(a))
	return cmd
}

func newBackupScheduleDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "delete",
		Short:   "End the schedule of backups",
		Long:    "End the schedule of backups. The backups stay where they are.",
		Example: "  dtaskctl backup schedule delete",
		Args:    noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			got, err := c.DeleteBackupSchedule(ctx)
			if err != nil {
				return view{}, err
			}
			text := "deleted the schedule of backups"
			if got.GetAlready() {
				text = "nothing to delete: no schedule of backups is set"
			}
			return lines(document.NewDeletedBackupSchedule(got), text), nil
		}),
	}
}

func newBackupStatus(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the schedule of backups and its last runs",
		Long: `Show the schedule of backups, the last backup that was written and read back, when the
next one is due, and why the last run failed if it did. Backups of dtaskctl backup save are
not shown.

` + staleHelp,
		Example: `  dtaskctl backup status
  dtaskctl backup status --stale -o json`,
		Args: noArgs,
		RunE: a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
			got, err := c.BackupStatus(ctx, a.readOptions())
			if err != nil {
				return view{}, err
			}
			return view{doc: document.NewBackupStatus(got), text: func(p *show.Printer) { p.BackupStatus(got) }}, nil
		}),
	}
	a.bindStale(cmd.Flags())
	return cmd
}
