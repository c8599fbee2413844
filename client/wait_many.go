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

// manyWaited is how many jobs one call waits for; coordinators take up to 10,000.
const manyWaited = 10_000

// Ends are the ends of jobs that came together, none perhaps, and how far the others
// are.
type Ends struct {
	Jobs []*dtaskv1.Job // they have ended, in whatever way
	// Unknown are ids of jobs that do not exist, or are not kept any more.
	Unknown   []string
	Left      int    // jobs that go on
	Completed uint64 // tasks of those that have completed
}

// WaitMany yields the ends of jobs as they come, each once, until all have ended. It
// learns of all of them in one call, which goes on by itself after failures and
// elections. Of more than 10,000 jobs it waits for the first 10,000 first. It ends
// with the first error.
func (c *Client) WaitMany(ctx context.Context, ids []string) iter.Seq2[Ends, error] {
	return c.waitMany(ctx, ids, 0, false)
}

// WaitSubmitted is WaitMany for who has submitted the jobs: as with WatchSubmitted
// nobody need be asked what is true now.
func (c *Client) WaitSubmitted(ctx context.Context, jobs []Submitted) iter.Seq2[Ends, error] {
	return c.waitSubmitted(ctx, jobs, false)
}

// WaitOutlines is WaitSubmitted for who has many small jobs and wants to know how they ended:
// what comes of each costs half as much, and is without name, owner, labels, max_failures and
// tasks by state.
func (c *Client) WaitOutlines(ctx context.Context, jobs []Submitted) iter.Seq2[Ends, error] {
	return c.waitSubmitted(ctx, jobs, true)
}

func (c *Client) waitSubmitted(ctx context.Context, jobs []Submitted, outline bool) iter.Seq2[Ends, error] {
	ids, newest, oldest := make([]string, len(jobs)), uint64(0), ^uint64(0)
	for i, j := range jobs {
		ids[i], newest, oldest = j.ID, max(newest, j.Index), min(oldest, j.Index)
	}
	if oldest == 0 { // one existed, for how long is not known
		newest = 0
	}
	return c.waitMany(ctx, ids, newest, outline)
}

// waitMany begins with what was true at an index or later; 0 = with what is true now.
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

// waiting is a WaitMany on its way.
type waitManyCall struct {
	left    map[string]bool // jobs that the caller was not told of
	index   uint64          // the caller knows what was true then
	outline bool
	yield   func(Ends, error) bool
	stopped bool // by the caller
}

// try is one call, for those of the jobs that are left.
func (w *waitManyCall) try(ctx context.Context, t try, ids []string) error {
	req := &dtaskv1.WaitJobsRequest{FromIndex: w.index, Consistency: consistency(w.index > 0), Outline: w.outline}
	for _, id := range ids {
		if w.left[id] {
			req.Jobs = append(req.Jobs, id)
		}
	}
	if len(req.GetJobs()) == 0 {
		return nil // named twice, or told of when the stream broke
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

// take notes what the caller is told of.
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
