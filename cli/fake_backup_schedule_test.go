package cli

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// SetBackupSchedule is refused for a target at an old level.
func (f *fakeLeader) SetBackupSchedule(_ context.Context, r *dtaskv1.SetBackupScheduleRequest) (*dtaskv1.SetBackupScheduleResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.HasSuffix(r.GetSchedule().GetTo(), "/old") {
		return nil, refusal(codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED, "schedules of backups need feature level 3")
	}
	f.schedule = r.GetSchedule()
	f.schedule.SetAt = noon.UnixMilli()
	return &dtaskv1.SetBackupScheduleResponse{Schedule: f.schedule}, nil
}

func (f *fakeLeader) DeleteBackupSchedule(context.Context, *dtaskv1.DeleteBackupScheduleRequest) (*dtaskv1.DeleteBackupScheduleResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	already := f.schedule == nil
	f.schedule = nil
	return &dtaskv1.DeleteBackupScheduleResponse{Already: already}, nil
}

// BackupStatus is that of a schedule without a run while all states are kept, and otherwise
// that of one with a success and, for a target that is gone, a failure.
func (f *fakeLeader) BackupStatus(_ context.Context, _ *dtaskv1.BackupStatusRequest) (*dtaskv1.BackupStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.schedule
	resp := &dtaskv1.BackupStatusResponse{Schedule: s}
	if s == nil {
		return resp, nil
	}
	if resp.NextAt = s.GetSetAt(); s.GetKeep() == 0 {
		return resp, nil
	}
	resp.Last = &dtaskv1.BackupRun{
		ServerId: "n2", EndedAt: ago(20 * time.Minute), To: s.GetTo(), File: "state-00000000000000000300.dtbk", Index: 300, Bytes: 1_234_567,
	}
	resp.NextAt = resp.GetLast().GetEndedAt() + s.GetEveryMs()
	if strings.HasSuffix(s.GetTo(), "/gone") {
		resp.Failed = &dtaskv1.BackupRun{ServerId: "n3", EndedAt: ago(20 * time.Second), To: s.GetTo(), Error: "opening directory /mnt/gone: no such file or directory"}
		resp.NextAt = noon.Add(40 * time.Second).UnixMilli()
	}
	return resp, nil
}
