package sequencer

import (
	"context"

	"github.com/dtask/dtask/fsm"
)

// SetBackupSchedule replaces the schedule of backups, and returns it with the time at which
// it was set: neither the schedule before nor that of the last success has the same. Errors:
// *RejectedError with Malformed or AboveLevel, *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) SetBackupSchedule(ctx context.Context, schedule fsm.BackupSchedule) (fsm.BackupSchedule, error) {
	return do(ctx, s.inbox, classWorker, func(b *batch) (fsm.BackupSchedule, error) {
		before, _ := b.view.BackupSchedule()
		last, _ := b.view.LastBackup()
		schedule.AtMS = max(b.entry.NowMS(), before.AtMS+1, last.ScheduleMS+1)
		_, err := settled(b.entry.Do(&fsm.SetBackupSchedule{BackupSchedule: schedule}), false)
		return schedule, err
	})
}

// DeleteBackupSchedule removes the schedule of backups; already means that none is set.
// Errors: *RejectedError with AboveLevel, *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) DeleteBackupSchedule(ctx context.Context) (already bool, err error) {
	return do(ctx, s.inbox, classWorker, func(b *batch) (bool, error) {
		r := b.entry.Do(&fsm.DeleteBackupSchedule{})
		return settled(r, r == fsm.AlreadyEnded)
	})
}

// RecordBackup records the end of a run of the schedule, at the time of the entry. Errors:
// *RejectedError with OutOfOrder if the schedule was replaced or deleted meanwhile,
// *BusyError, ErrTermEnded, ErrOutcomeUnknown.
func (s *Sequencer) RecordBackup(ctx context.Context, run fsm.BackupRun) error {
	_, err := do(ctx, s.inbox, classWorker, func(b *batch) (bool, error) {
		run.AtMS = b.entry.NowMS()
		return settled(b.entry.Do(&fsm.RecordBackup{BackupRun: run}), false)
	})
	return err
}
