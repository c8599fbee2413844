package client

import (
	"context"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Explain returns why a task is in its state, what stands before it, and every single
// change after which it would start now. task is the ID of a task, or of one task of an
// array. If it is empty, the first unfinished tasks of the job are explained, grouped by
// reason. The error is ErrNotFound if the task is unknown, or an array.
func (c *Client) Explain(ctx context.Context, job, task string) (*dtaskv1.ExplainResponse, error) {
	op := operation{name: "explaining task " + job + "/" + task}
	if task == "" {
		op.name = "explaining job " + job
	}
	return call(ctx, c, op, dtaskv1.JobServiceClient.Explain, &dtaskv1.ExplainRequest{Job: job, Task: task})
}
