package client

import (
	"context"
	"iter"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// MaxNamed is how many tasks one call of Retry or PurgeDeadLetters may name.
const MaxNamed = 10_000

// Retry lets a job go on with tasks that ended without completing, or with all
// of them if none is named; those that were cancelled because of them come back
// too. It returns the job as it is then. Repeating it is harmless while the
// tasks go on. ErrConflict is returned when a task has not ended or has
// completed, depends on one that stays behind, or when there is none to retry.
func (c *Client) Retry(ctx context.Context, job string, tasks []string) (*dtaskv1.Job, error) {
	req := &dtaskv1.RetryRequest{Job: job, Tasks: tasks}
	got, err := call(ctx, c, operation{name: "retrying job " + job}, dtaskv1.JobServiceClient.Retry, req)
	return got.GetJob(), err
}

// LetterFilter says which dead letters to list and what of them; empty fields
// mean all.
type DeadLetterFilter struct {
	Job     string // id
	Task    string // only this one of Job
	Type    string // exact
	Limit   int    // how many at most; 0 = no limit
	History bool   // fill DeadLetter.payload and DeadLetter.history
	Stale   bool   // any replica may answer
}

// DeadLetters lists tasks whose retries are used up, those of the newest job
// first, page by page. It ends with the first error.
func (c *Client) DeadLetters(ctx context.Context, f DeadLetterFilter) iter.Seq2[*dtaskv1.DeadLetter, error] {
	req := &dtaskv1.ListDeadLettersRequest{
		Job: f.Job, Task: f.Task, Type: f.Type, WithHistory: f.History, Consistency: consistency(f.Stale),
	}
	return list(f.Limit, "", func(limit uint32, token string) (*dtaskv1.ListDeadLettersResponse, error) {
		req.Limit, req.PageToken = limit, token
		return call(ctx, c, operation{name: "listing dead letters"}, dtaskv1.JobServiceClient.ListDeadLetters, req)
	}, (*dtaskv1.ListDeadLettersResponse).GetDeadLetters)
}

// PurgeDeadLetters takes tasks of a job out of the dead letters, or all that it
// has there if none is named; they stay in the job as failed. It returns how
// many: after a call whose outcome was unknown and that was repeated, those of
// the repeat alone. ErrConflict is returned when a task is not dead, unless it
// is failed already.
func (c *Client) PurgeDeadLetters(ctx context.Context, job string, tasks []string) (int, error) {
	req := &dtaskv1.PurgeDeadLettersRequest{Job: job, Tasks: tasks}
	got, err := call(ctx, c, operation{name: "purging dead letters of job " + job}, dtaskv1.JobServiceClient.PurgeDeadLetters, req)
	return int(got.GetPurged()), err
}
