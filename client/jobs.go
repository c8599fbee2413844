package client

import (
	"context"
	"iter"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ReadOptions say how to read a job.
type ReadOptions struct {
	// Stale lets any replica answer from what it has applied. Default: the
	// leader answers, with all that was acknowledged before the call.
	Stale bool
	// Levels asks for Job.levels too.
	Levels bool
}

func consistency(stale bool) dtaskv1.Consistency {
	if stale {
		return dtaskv1.Consistency_CONSISTENCY_STALE
	}
	return dtaskv1.Consistency_CONSISTENCY_LINEARIZABLE
}

// Job returns a job, or ErrNotFound.
func (c *Client) Job(ctx context.Context, id string, opts ReadOptions) (*dtaskv1.Job, error) {
	req := &dtaskv1.GetJobRequest{Id: id, Consistency: consistency(opts.Stale), WithLevels: opts.Levels}
	return call(ctx, c, operation{name: "reading job " + id}, dtaskv1.JobServiceClient.GetJob, req)
}

// JobFilter says which jobs to list; empty fields mean all.
type JobFilter struct {
	States []dtaskv1.JobState
	Name   string // exact
	Owner  string // exact
	Labels map[string]string
	Since  time.Time // submitted then or later
	Before time.Time // submitted earlier
	Limit  int       // how many at most; 0 = no limit
	Stale  bool
	// Incomplete is called if the coordinator that answers was rebuilt and is still
	// fetching jobs that ended a while ago: some may be missing. Several times, perhaps.
	Incomplete func()
}

// Jobs lists jobs, newest first, page by page. It ends with the first error.
func (c *Client) Jobs(ctx context.Context, f JobFilter) iter.Seq2[*dtaskv1.Job, error] {
	req := &dtaskv1.ListJobsRequest{
		States: f.States, Name: f.Name, Owner: f.Owner, Labels: f.Labels, Consistency: consistency(f.Stale),
	}
	if !f.Since.IsZero() {
		req.SubmittedSince = f.Since.UnixMilli()
	}
	if !f.Before.IsZero() {
		req.SubmittedBefore = f.Before.UnixMilli()
	}
	return list(f.Limit, "", func(limit uint32, token string) (*dtaskv1.ListJobsResponse, error) {
		req.Limit, req.PageToken = limit, token
		got, err := call(ctx, c, operation{name: "listing jobs"}, dtaskv1.JobServiceClient.ListJobs, req)
		if got.GetIncomplete() && f.Incomplete != nil {
			f.Incomplete()
		}
		return got, err
	}, (*dtaskv1.ListJobsResponse).GetJobs)
}

// Cancel ends a job, or one task of it if task is not empty. The reason, at
// most 256 bytes, is shown in its status. Repeating it is harmless: already
// tells whether it was cancelled before. What has ended otherwise is an
// ErrConflict. Clean-up tasks of a job run before it ends.
func (c *Client) Cancel(ctx context.Context, job, task, reason string) (already bool, err error) {
	name := "cancelling job " + job
	if task != "" {
		name = "cancelling task " + job + "/" + task
	}
	return c.cancel(ctx, name, &dtaskv1.CancelRequest{Job: job, Task: task, Reason: reason})
}

// CancelNow ends a job with its clean-up tasks, which Cancel lets run. Reason,
// already and errors are as for Cancel. A job whose ordinary tasks had failed
// ends as failed still.
func (c *Client) CancelNow(ctx context.Context, job, reason string) (already bool, err error) {
	return c.cancel(ctx, "cancelling job "+job, &dtaskv1.CancelRequest{Job: job, Reason: reason, Now: true})
}

func (c *Client) cancel(ctx context.Context, name string, req *dtaskv1.CancelRequest) (already bool, err error) {
	got, err := call(ctx, c, operation{name: name}, dtaskv1.JobServiceClient.Cancel, req)
	return got.GetAlreadyCancelled(), err
}

// Result returns a job and what its terminal tasks left. The job may not have
// ended yet: its state tells.
func (c *Client) Result(ctx context.Context, id string) (*dtaskv1.GetResultResponse, error) {
	req := &dtaskv1.GetResultRequest{Job: id}
	return call(ctx, c, operation{name: "reading the result of job " + id}, dtaskv1.JobServiceClient.GetResult, req)
}
