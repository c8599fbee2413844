package client

import (
	"context"
	"iter"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// MaxNamed is the maximum number of tasks in one call of Retry or
// PurgeDeadLetters.
const MaxNamed = 10_000

// Retry reruns the given tasks of a job, or all tasks that ended without
// completing if tasks is empty. Tasks that were cancelled because of them run
// too. It returns the job after the retry. Calling it again while the tasks
// run has no effect. The error is ErrConflict if a task has not ended or has
// completed, depends on a task that is not retried, or if the job has no task
// to retry.
func (c *Client) Retry(ctx context.Context, job string, tasks []string) (*dtaskv1.Job, error) {
	req := &dtaskv1.RetryRequest{Job: job, Tasks: tasks}
	got, err := call(ctx, c, operation{name: "retrying job " + job}, dtaskv1.JobServiceClient.Retry, req)
	return got.GetJob(), err
}

// DeadLetterFilter selects dead letters. Empty fields match all.
type DeadLetterFilter struct {
	Job     string // id
	Task    string // only this one of Job
	Type    string // exact
	Limit   int    // 0 = no limit
	History bool   // fill DeadLetter.payload and DeadLetter.history
	Stale   bool   // any replica may answer
}

// DeadLetters lists tasks whose retries are exhausted, those of the newest job
// first. It ends with the first error.
func (c *Client) DeadLetters(ctx context.Context, f DeadLetterFilter) iter.Seq2[*dtaskv1.DeadLetter, error] {
	req := &dtaskv1.ListDeadLettersRequest{
		Job: f.Job, Task: f.Task, Type: f.Type, WithHistory: f.History, Consistency: consistency(f.Stale),
	}
	return list(f.Limit, "", func(limit uint32, token string) (*dtaskv1.ListDeadLettersResponse, error) {
		req.Limit, req.PageToken = limit, token
		return call(ctx, c, operation{name: "listing dead letters"}, dtaskv1.JobServiceClient.ListDeadLetters, req)
	}, (*dtaskv1.ListDeadLettersResponse).GetDeadLetters)
}

// PurgeDeadLetters removes the given tasks of a job from the dead letters, or
// all of the job if tasks is empty. The tasks stay failed. It returns the
// number of removed tasks; if the call was retried after an unknown outcome,
// only those of the retry. The error is ErrConflict if a task is neither dead
// nor failed.
func (c *Client) PurgeDeadLetters(ctx context.Context, job string, tasks []string) (int, error) {
	req := &dtaskv1.PurgeDeadLettersRequest{Job: job, Tasks: tasks}
	got, err := call(ctx, c, operation{name: "purging dead letters of job " + job}, dtaskv1.JobServiceClient.PurgeDeadLetters, req)
	return int(got.GetPurged()), err
}
