package client

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// MaxNamed is the maximum number of tasks in one call of Retry or
// PurgeDeadLetters.
const MaxNamed = 10_000

// Retry reruns the given tasks of a job, or all tasks that ended without
// completing if none are given. Tasks that were cancelled because of them run
// too. Tasks that were retried before and still run are left alone. The request
// is not modified; if it has no key, a key is generated, which covers the
// retries of this call. The error is ErrConflict if a task has not ended or has
// completed, depends on a task that is not retried, if the job has no task to
// retry, or if its version is not if_version. If the error is ErrUnreachable,
// the retry may have been made (Error.Unknown); repeating it with Error.Key is
// safe.
func (c *Client) Retry(ctx context.Context, r *dtaskv1.RetryRequest) (Updated, error) {
	req := proto.CloneOf(r)
	if err := fillKey(&req.IdempotencyKey, &req.GeneratedKey); err != nil {
		return Updated{}, err
	}
	op := operation{name: "retrying job " + req.GetJob(), key: req.GetIdempotencyKey()}
	got, err := call(ctx, c, op, dtaskv1.JobServiceClient.Retry, req)
	return Updated{Job: got.GetJob(), Version: got.GetVersion(), Existed: got.GetExisted()}, err
}

// DeadLetterFilter selects dead letters. Empty fields match all.
type DeadLetterFilter struct {
	Job       string                   // id
	Task      string                   // only this one of Job
	Type      string                   // exact
	Namespace string                   // exact; empty means all that the caller has
	Limit     int                      // 0 = no limit
	History   bool                     // fill DeadLetter.payload and DeadLetter.history
	Stale     bool                     // any replica may answer
	Fresh     func(*dtaskv1.Freshness) // as in ReadOptions
}

// DeadLetters lists tasks whose retries are exhausted, those of the newest job
// first. It ends with the first error.
func (c *Client) DeadLetters(ctx context.Context, f DeadLetterFilter) iter.Seq2[*dtaskv1.DeadLetter, error] {
	req := &dtaskv1.ListDeadLettersRequest{
		Job: f.Job, Task: f.Task, Type: f.Type, Namespace: f.Namespace, WithHistory: f.History, Consistency: consistency(f.Stale),
	}
	return list(f.Limit, "", func(limit uint32, token string) (*dtaskv1.ListDeadLettersResponse, error) {
		req.Limit, req.PageToken = limit, token
		got, err := call(ctx, c, operation{name: "listing dead letters"}, dtaskv1.JobServiceClient.ListDeadLetters, req)
		report(f.Fresh, got.GetFreshness())
		return got, err
	}, (*dtaskv1.ListDeadLettersResponse).GetDeadLetters)
}

// Purged describes a purge of dead letters.
type Purged struct {
	Tasks   int    // that were removed from the dead letters
	Version uint32 // of the job after the purge
	Existed bool   // an earlier call with this key made the purge
}

// PurgeDeadLetters removes the given tasks of a job from the dead letters, or
// all of the job if none are given. The tasks stay failed. The key of the
// request works as in Retry. The error is ErrConflict if a task is neither dead
// nor failed, or if the job's version is not if_version.
func (c *Client) PurgeDeadLetters(ctx context.Context, r *dtaskv1.PurgeDeadLettersRequest) (Purged, error) {
	req := proto.CloneOf(r)
	if err := fillKey(&req.IdempotencyKey, &req.GeneratedKey); err != nil {
		return Purged{}, err
	}
	op := operation{name: "purging dead letters of job " + req.GetJob(), key: req.GetIdempotencyKey()}
	got, err := call(ctx, c, op, dtaskv1.JobServiceClient.PurgeDeadLetters, req)
	return Purged{Tasks: int(got.GetPurged()), Version: got.GetVersion(), Existed: got.GetExisted()}, err
}
