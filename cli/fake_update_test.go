package cli

import (
	"context"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Update implements JobService. Only task reduce of job 42 has not started.
func (f *fakeLeader) Update(_ context.Context, r *dtaskv1.UpdateRequest) (*dtaskv1.UpdateResponse, error) {
	j, err := f.find(r.GetJob())
	if err != nil {
		return nil, err
	}
	if r.GetTask() != "" && r.GetTask() != "reduce" {
		return nil, refusal(codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, "task has started: running in attempt 1")
	}
	if err := checkVersion(r.GetJob(), r.GetIfVersion()); err != nil {
		return nil, err
	}
	if r.GetQueue() != "" {
		if _, err := f.queueNamed(r.GetQueue()); err != nil {
			return nil, err
		}
	}
	return &dtaskv1.UpdateResponse{Job: j.job, Version: 2, Existed: r.GetIdempotencyKey() == "again"}, nil
}

// checkVersion refuses a change of any version but 1.
func checkVersion(job string, want uint64) error {
	if want > 1 {
		return refusal(codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, "job "+job+" has version 1")
	}
	return nil
}
