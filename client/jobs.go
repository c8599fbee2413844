package client

import (
	"context"
	"iter"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ReadOptions are options for reading a job.
type ReadOptions struct {
	// Stale lets any replica respond with its applied state. By default, reads are
	// linearizable.
	Stale bool
	// Levels fills Job.levels.
	Levels bool
	// Fresh is called with the replica that responded and how fresh its state was;
	// for a read in several pages with each of them.
	Fresh func(*dtaskv1.Freshness)
}

// report passes the freshness of a response on, if the caller wants it and the
// coordinator returned it.
func report(fresh func(*dtaskv1.Freshness), f *dtaskv1.Freshness) {
	if fresh != nil && f != nil {
		fresh(f)
	}
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
	job, err := call(ctx, c, operation{name: "reading job " + id}, dtaskv1.JobServiceClient.GetJob, req)
	report(opts.Fresh, job.GetFreshness())
	return job, err
}

// JobFilter selects jobs. Empty fields match all.
type JobFilter struct {
	States []dtaskv1.JobState
	Name   string // exact
	Owner  string // exact
	// Namespace is exact; empty means all that the caller has.
	Namespace string
	Labels    map[string]string
	Since     time.Time // inclusive
	Before    time.Time // exclusive
	// Changeable omits jobs of the history, which can be read but not changed.
	Changeable bool
	Limit      int // 0 = no limit
	Stale      bool
	Fresh      func(*dtaskv1.Freshness) // as in ReadOptions
	// Incomplete is called, maybe several times, if the coordinator that responds
	// was rebuilt and is still fetching older finished jobs, so that some may be
	// missing.
	Incomplete func()
}

// Jobs lists jobs, newest first. It ends with the first error.
func (c *Client) Jobs(ctx context.Context, f JobFilter) iter.Seq2[*dtaskv1.Job, error] {
	req := &dtaskv1.ListJobsRequest{
		States: f.States, Name: f.Name, Owner: f.Owner, Namespace: f.Namespace, Labels: f.Labels, Changeable: f.Changeable,
		Consistency: consistency(f.Stale),
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
		report(f.Fresh, got.GetFreshness())
		if got.GetIncomplete() && f.Incomplete != nil {
			f.Incomplete()
		}
		return got, err
	}, (*dtaskv1.ListJobsResponse).GetJobs)
}

// Cancel cancels a job, or one task of it if task is not empty. The status
// shows the reason (at most 256 bytes). Calling it again has no effect:
// already reports whether the job or task was cancelled before. The error is
// ErrConflict if it has ended otherwise. Cleanup tasks of a job run before it
// ends.
func (c *Client) Cancel(ctx context.Context, job, task, reason string) (already bool, err error) {
	name := "cancelling job " + job
	if task != "" {
		name = "cancelling task " + job + "/" + task
	}
	return c.cancel(ctx, name, &dtaskv1.CancelRequest{Job: job, Task: task, Reason: reason})
}

// CancelNow cancels a job together with its cleanup tasks. Reason, already and
// errors are those of Cancel. A job whose ordinary tasks had failed ends as
// failed.
func (c *Client) CancelNow(ctx context.Context, job, reason string) (already bool, err error) {
	return c.cancel(ctx, "cancelling job "+job, &dtaskv1.CancelRequest{Job: job, Reason: reason, Now: true})
}

func (c *Client) cancel(ctx context.Context, name string, req *dtaskv1.CancelRequest) (already bool, err error) {
	got, err := call(ctx, c, operation{name: name}, dtaskv1.JobServiceClient.Cancel, req)
	return got.GetAlreadyCancelled(), err
}

// Result returns a job and the results of its terminal tasks. Check the job's
// state: it may not have ended yet. Of the options, only Stale and Fresh matter.
func (c *Client) Result(ctx context.Context, id string, opts ReadOptions) (*dtaskv1.GetResultResponse, error) {
	return c.result(ctx, "reading the result of job "+id, &dtaskv1.GetResultRequest{Job: id}, opts)
}

// TaskResults returns a job and the results of some of its tasks, in topological order:
// of one task, of an array, or of the tasks with items of NAME[FIRST-LAST]. A task that
// has not completed has an empty result. The job is as it was read with the last task. Of
// the options, only Stale and Fresh matter.
func (c *Client) TaskResults(ctx context.Context, id, task string, opts ReadOptions) (*dtaskv1.GetResultResponse, error) {
	var results []*dtaskv1.TaskResult
	req := &dtaskv1.GetResultRequest{Job: id, Task: task}
	for {
		page, err := c.result(ctx, "reading the result of task "+id+"/"+task, req, opts)
		if err != nil {
			return nil, err
		}
		results = append(results, page.GetResults()...)
		if req.From = page.GetNext(); req.GetFrom() == 0 {
			page.Results = results
			return page, nil
		}
	}
}

func (c *Client) result(ctx context.Context, name string, req *dtaskv1.GetResultRequest, opts ReadOptions) (*dtaskv1.GetResultResponse, error) {
	req.Consistency = consistency(opts.Stale)
	got, err := call(ctx, c, operation{name: name}, dtaskv1.JobServiceClient.GetResult, req)
	report(opts.Fresh, got.GetJob().GetFreshness())
	return got, err
}
