package client

import (
	"context"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// DrainWorker stops the assignment of work to a worker until UndrainWorker is
// called, whether the worker is up or not. Attempts that still run after
// deadline (0 or more) are stopped and requeued. Draining again replaces
// deadline and reason (at most 256 bytes). It returns the state of the worker,
// or ErrNotFound.
func (c *Client) DrainWorker(ctx context.Context, name string, deadline time.Duration, reason string) (*dtaskv1.Worker, error) {
	req := &dtaskv1.DrainWorkerRequest{Name: name, DeadlineMs: deadline.Milliseconds(), Reason: reason}
	got, err := call(ctx, c, operation{name: "draining worker " + name}, dtaskv1.AdminServiceClient.DrainWorker, req)
	return got.GetWorker(), err
}

// UndrainWorker resumes the assignment of work to a worker and returns its
// state. already reports whether it was not draining. Calling it again has no
// effect.
func (c *Client) UndrainWorker(ctx context.Context, name string) (w *dtaskv1.Worker, already bool, err error) {
	req := &dtaskv1.UndrainWorkerRequest{Name: name}
	got, err := call(ctx, c, operation{name: "undraining worker " + name}, dtaskv1.AdminServiceClient.UndrainWorker, req)
	return got.GetWorker(), got.GetAlreadyUndrained(), err
}
