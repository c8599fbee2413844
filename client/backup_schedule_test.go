package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func (f *fake) SetBackupSchedule(_ context.Context, r *dtaskv1.SetBackupScheduleRequest) (*dtaskv1.SetBackupScheduleResponse, error) {
	s := r.GetSchedule()
	if s.GetTo() == "" {
		return nil, refusal(codes.InvalidArgument, "invalid to", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_INVALID})
	}
	s.SetAt = 5
	return &dtaskv1.SetBackupScheduleResponse{Schedule: s}, nil
}

func (f *fake) DeleteBackupSchedule(context.Context, *dtaskv1.DeleteBackupScheduleRequest) (*dtaskv1.DeleteBackupScheduleResponse, error) {
	return &dtaskv1.DeleteBackupScheduleResponse{Already: true}, nil
}

func (f *fake) BackupStatus(_ context.Context, r *dtaskv1.BackupStatusRequest) (*dtaskv1.BackupStatusResponse, error) {
	if r.GetConsistency() == dtaskv1.Consistency_CONSISTENCY_STALE {
		return &dtaskv1.BackupStatusResponse{NextAt: 6}, nil
	}
	return &dtaskv1.BackupStatusResponse{NextAt: 7}, nil
}

func TestTheScheduleOfBackupsIsSetReadAndDeleted(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{})
	got, err := c.SetBackupSchedule(t.Context(), BackupSchedule{Every: time.Hour, To: "file:///mnt", Keep: 3})
	if err != nil || got.GetEveryMs() != 3_600_000 || got.GetTo() != "file:///mnt" || got.GetKeep() != 3 || got.GetSetAt() != 5 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := c.SetBackupSchedule(t.Context(), BackupSchedule{Every: time.Hour}); !errors.Is(err, ErrInvalid) {
		t.Errorf("without a target: got %v", err)
	}
	for stale, next := range map[bool]int64{false: 7, true: 6} {
		status, err := c.BackupStatus(t.Context(), ReadOptions{Stale: stale})
		if err != nil || status.GetNextAt() != next {
			t.Errorf("stale %t: got %v, %v", stale, status, err)
		}
	}
	if deleted, err := c.DeleteBackupSchedule(t.Context()); err != nil || !deleted.GetAlready() {
		t.Errorf("got %v, %v", deleted, err)
	}
}
