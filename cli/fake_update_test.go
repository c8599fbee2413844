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
	if r.GetIfVersion() > 1 {
		return nil, refusal(codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, "job 42 has version 1")
	}
	return &dtaskv1.UpdateResponse{Job: j.job, Version: 2, Existed: r.GetIdempotencyKey() == "again"}, nil
}
