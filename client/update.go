package client

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Updated tells of an update that took effect.
type Updated struct {
	Job     *dtaskv1.Job // as it was after the update
	Version uint32       // of the job, that the update made
	Existed bool         // an earlier call with this key had made it
}

// Update changes what has not started: of one task, or of all tasks of a job that
// have had no attempt; all of it or nothing. The request is not changed; without
// a key one is made, which covers the repeats of this call. ErrConflict is
// returned when the task, or every task, has started, the job has ended, or it
// has another version than if_version. With ErrUnreachable the update may have
// been made (Error.Unknown): repeating it with Error.Key is safe.
func (c *Client) Update(ctx context.Context, r *dtaskv1.UpdateRequest) (Updated, error) {
	req := proto.CloneOf(r)
	if len(req.GetIdempotencyKey()) > maxKeyBytes {
		return Updated{}, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("idempotency key has %d bytes; at most %d are allowed", len(req.GetIdempotencyKey()), maxKeyBytes)}
	}
	if req.GetIdempotencyKey() == "" {
		req.IdempotencyKey, req.GeneratedKey = newKey(), true
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
