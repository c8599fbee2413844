package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// planTimeout is how long one attempt at a plan may take: coordinators give up earlier.
	planTimeout = 15 * time.Second
	// maxPlanBytes bounds the request of a plan, below what coordinators receive.
	maxPlanBytes = 4<<20 - 1<<10
	// fitTimeout is how long Fitting waits for an answer: it is only a hint.
	fitTimeout = 2 * time.Second
)

// Plan returns how a job with these tasks would run if it were submitted to an idle cluster:
// see [dtaskv1.PlanResponse]. Nothing is stored. A coordinator that does not lead answers, if there
// is one: a large plan takes a second of a processor. Of the options, only Stale and Fresh matter.
// The error is ErrInvalid for an invalid job, and for one whose tasks do not fit into a
// message, and ErrRefused for one that takes too long to plan.
func (c *Client) Plan(ctx context.Context, header *dtaskv1.JobHeader, tasks []*dtaskv1.PlanTask, opts ReadOptions) (*dtaskv1.PlanResponse, error) {
	req := &dtaskv1.PlanRequest{Header: header, Tasks: tasks, Consistency: consistency(opts.Stale)}
	if n := proto.Size(req); n > maxPlanBytes {
		return nil, &Error{Kind: ErrInvalid, Message: fmt.Sprintf(
			"planning job %s: its tasks and dependencies take %d bytes, and a plan has at most %d: use arrays, or fewer dependencies", header.GetName(), n, maxPlanBytes)}
	}
	got, err := call(ctx, c, operation{name: "planning job " + header.GetName(), timeout: planTimeout, sparesLeader: true}, dtaskv1.JobServiceClient.Plan, req)
	report(opts.Fresh, got.GetFreshness())
	return got, err
}

// Fitting returns the classes of tasks with equal demands, each with the number of workers
// that fit it: see [dtaskv1.PlanClass]. It takes at most 100 tasks, and little time.
func (c *Client) Fitting(ctx context.Context, header *dtaskv1.JobHeader, tasks []*dtaskv1.PlanTask) ([]*dtaskv1.PlanClass, error) {
	ctx, cancel := context.WithTimeout(ctx, fitTimeout)
	defer cancel()
	req := &dtaskv1.PlanRequest{Header: header, Tasks: tasks, FitOnly: true}
	got, err := call(ctx, c, operation{name: "looking for workers that fit job " + header.GetName()}, dtaskv1.JobServiceClient.Plan, req)
	return got.GetClasses(), err
}
