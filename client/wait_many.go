package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// manyWaited is how many jobs one call waits for. Coordinators accept up to
// 10,000.
const manyWaited = 10_000

// Ends are jobs that have ended, maybe none, and the progress of the others.
type Ends struct {
	Jobs []*dtaskv1.Job // jobs that have ended
	// Unknown are the IDs of jobs that don't exist or have expired.
	Unknown   []string
	Left      int    // jobs that have not ended
	Completed uint64 // completed tasks of these
}

// WaitMany yields jobs as they end, each once, until all have ended. It waits
// for up to 10,000 jobs in one call and resumes after failures and elections;
// of more than 10,000 jobs it waits for the first 10,000 first. It ends with
// the first error.
func (c *Client) WaitMany(ctx context.Context, ids []string) iter.Seq2[Ends, error] {
	return c.waitMany(ctx, ids, 0, false)
}

// WaitSubmitted is WaitMany for jobs that the caller submitted: like
// WatchSubmitted, it does not wait for a quorum to confirm the leader.
func (c *Client) WaitSubmitted(ctx context.Context, jobs []Submitted) iter.Seq2[Ends, error] {
	return c.waitSubmitted(ctx, jobs, false)
}

// WaitOutlines is WaitSubmitted without the tasks by state of the jobs and what
// was submitted with them, such as name, owner and labels. It halves the cost
// per job.
func (c *Client) WaitOutlines(ctx context.Context, jobs []Submitted) iter.Seq2[Ends, error] {
	return c.waitSubmitted(ctx, jobs, true)
}

func (c *Client) waitSubmitted(ctx context.Context, jobs []Submitted, outline bool) iter.Seq2[Ends, error] {
	ids, newest, oldest := make([]string, len(jobs)), uint64(0), ^uint64(0)
	for i, j := range jobs {
		ids[i], newest, oldest = j.ID, max(newest, j.Index), min(oldest, j.Index)
	}
	if oldest == 0 { // a job existed before: its age is unknown
		newest = 0
	}
	return c.waitMany(ctx, ids, newest, outline)
}

// waitMany reads the state at an index or later; 0 = the current state.
func (c *Client) waitMany(ctx context.Context, ids []string, index uint64, outline bool) iter.Seq2[Ends, error] {
	return func(yield func(Ends, error) bool) {
		w := &waitManyCall{left: make(map[string]bool, len(ids)), index: index, outline: outline, yield: yield}
		for _, id := range ids {
			w.left[id] = true
		}
		for call := range slices.Chunk(ids, manyWaited) {
			err := c.do(ctx, operation{
				name: fmt.Sprintf("waiting for %d jobs", len(call)),
				run:  func(ctx context.Context, t try) error { return w.try(ctx, t, call) },
			})
			if w.stopped {
				return
			}
			if err != nil {
				yield(Ends{}, err)
				return
			}
		}
	}
}

// waitManyCall is the state of a WaitMany.
type waitManyCall struct {
	left    map[string]bool // jobs that were not yielded
	index   uint64          // log index whose state the caller knows
	outline bool
	yield   func(Ends, error) bool
	stopped bool // the caller stopped the iteration
}

// try makes one call for the remaining jobs.
func (w *waitManyCall) try(ctx context.Context, t try, ids []string) error {
	req := &dtaskv1.WaitJobsRequest{FromIndex: w.index, Consistency: consistency(w.index > 0), Outline: w.outline}
	for _, id := range ids {
		if w.left[id] {
			req.Jobs = append(req.Jobs, id)
		}
	}
	if len(req.GetJobs()) == 0 {
		return nil // named twice, or yielded before the stream broke
	}
	stream, err := t.jobs().WaitJobs(ctx, req)
	if err != nil {
		return err
	}
	for {
		got, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if slices.ContainsFunc(ids, func(id string) bool { return w.left[id] }) {
				return errCut
			}
			return nil
		} else if err != nil {
			return err
		}
		t.connected()
		w.index = max(w.index, got.GetFreshness().GetAppliedIndex())
		if w.stopped = !w.yield(w.take(got), nil); w.stopped {
			return errDone
		}
	}
}

// take records a response and returns what is yielded.
func (w *waitManyCall) take(got *dtaskv1.WaitJobsResponse) Ends {
	for _, job := range got.GetFinished() {
		job.Freshness = got.GetFreshness()
		delete(w.left, job.GetId())
	}
	for _, id := range got.GetUnknown() {
		delete(w.left, id)
	}
	return Ends{Jobs: got.GetFinished(), Unknown: got.GetUnknown(), Left: len(w.left), Completed: got.GetTasksCompleted()}
}
