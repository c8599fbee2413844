package api

import (
	"context"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/backup"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	minBackupInterval = time.Minute
	maxBackupInterval = 366 * 24 * time.Hour
	// failedBackupDelay is when a run that failed is repeated, if the interval is not
	// shorter.
	failedBackupDelay = time.Minute
)

// SetBackupSchedule implements AdminService.
func (a *admin) SetBackupSchedule(ctx context.Context, r *dtaskv1.SetBackupScheduleRequest) (*dtaskv1.SetBackupScheduleResponse, error) {
	s := r.GetSchedule()
	if every := s.GetEveryMs(); every < minBackupInterval.Milliseconds() || every > maxBackupInterval.Milliseconds() {
		return nil, invalid("invalid every_ms %d: must be %d to %d", every, minBackupInterval.Milliseconds(), maxBackupInterval.Milliseconds())
	}
	if _, err := backup.ParseTarget(s.GetTo()); err != nil {
		return nil, invalid("invalid to %s: %v", quote(s.GetTo()), err)
	}
	leader, err := a.leader()
	if err != nil {
		return nil, err
	}
	stored, err := leader.SetBackupSchedule(ctx, fsm.BackupSchedule{EveryMS: s.GetEveryMs(), To: s.GetTo(), Keep: s.GetKeep()})
	if err != nil {
		return nil, explainBackupLevel(err)
	}
	return &dtaskv1.SetBackupScheduleResponse{Schedule: showBackupSchedule(stored, true)}, nil
}

// DeleteBackupSchedule implements AdminService. It is idempotent.
func (a *admin) DeleteBackupSchedule(ctx context.Context, _ *dtaskv1.DeleteBackupScheduleRequest) (*dtaskv1.DeleteBackupScheduleResponse, error) {
	leader, err := a.leader()
	already := false
	if err == nil {
		already, err = leader.DeleteBackupSchedule(ctx)
	}
	if isRejected(err, fsm.AboveLevel) { // then none can be set
		already, err = true, nil
	}
	if err != nil {
		return nil, err
	}
	return &dtaskv1.DeleteBackupScheduleResponse{Already: already}, nil
}

// explainBackupLevel names the upgrade that a schedule waits for.
func explainBackupLevel(err error) error {
	if isRejected(err, fsm.AboveLevel) {
		return refused("schedules of backups need feature level %d: dtaskctl cluster upgrade status shows what it waits for", fsm.OpLevel(new(fsm.SetBackupSchedule)))
	}
	return err
}

// BackupStatus implements AdminService.
func (a *admin) BackupStatus(context.Context, *dtaskv1.BackupStatusRequest) (*dtaskv1.BackupStatusResponse, error) {
	resp := new(dtaskv1.BackupStatusResponse)
	a.cfg.Machine.Read(func(st *fsm.State, index uint64) {
		resp.Schedule = showBackupSchedule(st.BackupSchedule())
		resp.Last = showBackupRun(st.LastBackup())
		resp.Failed = showBackupRun(st.FailedBackup())
		if due, set := NextBackup(st); set {
			resp.NextAt = due.UnixMilli()
		}
		resp.Freshness = a.freshness(index)
	})
	return resp, nil
}

// NextBackup returns when the schedule of backups, if one is set, wants the next run.
func NextBackup(st *fsm.State) (due time.Time, set bool) {
	s, set := st.BackupSchedule()
	last, _ := st.LastBackup()
	failed, failing := st.FailedBackup()
	every := time.Duration(s.EveryMS) * time.Millisecond
	switch {
	case failing:
		due = time.UnixMilli(failed.AtMS).Add(min(every, failedBackupDelay))
	case last.ScheduleMS == s.AtMS:
		due = time.UnixMilli(last.AtMS).Add(every)
	default:
		due = time.UnixMilli(s.AtMS) // none was written for it
	}
	return due, set
}

func showBackupSchedule(s fsm.BackupSchedule, set bool) *dtaskv1.BackupSchedule {
	if !set {
		return nil
	}
	return &dtaskv1.BackupSchedule{EveryMs: s.EveryMS, To: s.To, Keep: s.Keep, SetAt: s.AtMS}
}

func showBackupRun(r fsm.BackupRun, known bool) *dtaskv1.BackupRun {
	if !known {
		return nil
	}
	return &dtaskv1.BackupRun{ServerId: r.ServerID, EndedAt: r.AtMS, To: r.To, File: r.File, Index: r.Index, Bytes: r.Bytes, Error: r.Error}
}
