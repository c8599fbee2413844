package client

import (
	"context"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Updated describes an update or a retry.
type Updated struct {
	Job     *dtaskv1.Job // after the update; only id and version if it is no longer readable
	Version uint32       // of the job after the call
	Existed bool         // an earlier call with this key made the change
}

// Update changes one task, or all tasks of a job that have had no attempt. It
// changes all of them or none. The request is not modified; if it has no key,
// a key is generated, which covers the retries of this call. The error is
// ErrConflict if the task, or every task, has started, if the job has ended,
// or if its version is not if_version. If the error is ErrUnreachable, the
// update may have been made (Error.Unknown); repeating it with Error.Key is
// safe.
func (c *Client) Update(ctx context.Context, r *dtaskv1.UpdateRequest) (Updated, error) {
	req := proto.CloneOf(r)
	if err := fillKey(&req.IdempotencyKey, &req.GeneratedKey); err != nil {
		return Updated{}, err
	}
	name := "updating job " + req.GetJob()
	if req.GetTask() != "" {
		name = "updating task " + req.GetJob() + "/" + req.GetTask()
	}
	op := operation{name: name, key: req.GetIdempotencyKey()}
	got, err := call(ctx, c, op, dtaskv1.JobServiceClient.Update, req)
	if err != nil {
		return Updated{}, err
	}
	return Updated{Job: got.GetJob(), Version: got.GetVersion(), Existed: got.GetExisted()}, nil
}
