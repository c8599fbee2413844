package client

import (
	"context"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// BackupSchedule is how often a coordinator writes a backup, and where.
type BackupSchedule struct {
	Every time.Duration // from the end of a backup to the next; 1 minute to 366 days
	To    string        // file:// URL of a directory that exists on the coordinators
	Keep  uint32        // the newest states to keep; 0 = all
}

// SetBackupSchedule replaces the schedule of backups, and returns it as it is stored. The
// first backup is written at once. The error is ErrInvalid for an interval or a URL that is
// not possible, and ErrRefused below the feature level of schedules.
func (c *Client) SetBackupSchedule(ctx context.Context, s BackupSchedule) (*dtaskv1.BackupSchedule, error) {
	req := &dtaskv1.SetBackupScheduleRequest{Schedule: &dtaskv1.BackupSchedule{EveryMs: s.Every.Milliseconds(), To: s.To, Keep: s.Keep}}
	got, err := call(ctx, c, operation{name: "setting the backup schedule", timeout: changeLimit}, dtaskv1.AdminServiceClient.SetBackupSchedule, req)
	return got.GetSchedule(), err
}

// DeleteBackupSchedule ends the schedule of backups, which stay. Already of the response
// reports that none was set.
func (c *Client) DeleteBackupSchedule(ctx context.Context) (*dtaskv1.DeleteBackupScheduleResponse, error) {
	return call(ctx, c, operation{name: "deleting the backup schedule", timeout: changeLimit},
		dtaskv1.AdminServiceClient.DeleteBackupSchedule, &dtaskv1.DeleteBackupScheduleRequest{})
}

// BackupStatus returns the schedule of backups and its last runs. It uses Stale and Fresh of
// the options.
func (c *Client) BackupStatus(ctx context.Context, opts ReadOptions) (*dtaskv1.BackupStatusResponse, error) {
	got, err := call(ctx, c, operation{name: "reading the backup status", stale: opts.Stale},
		dtaskv1.AdminServiceClient.BackupStatus, &dtaskv1.BackupStatusRequest{Consistency: consistency(opts.Stale)})
	report(opts.Fresh, got.GetFreshness())
	return got, err
}
