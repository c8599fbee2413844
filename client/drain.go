package client

import (
	"context"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// DrainWorker keeps the worker of a name from being given anything new until
// UndrainWorker, whether it is up or not. What it still runs when deadline (at
// least 0) has passed is ended and handed back. Draining again replaces deadline
// and reason, of at most 256 bytes. It returns how the worker stands, or
// ErrNotFound.
func (c *Client) DrainWorker(ctx context.Context, name string, deadline time.Duration, reason string) (*dtaskv1.Worker, error) {
	req := &dtaskv1.DrainWorkerRequest{Name: name, DeadlineMs: deadline.Milliseconds(), Reason: reason}
	got, err := call(ctx, c, operation{name: "draining worker " + name}, dtaskv1.AdminServiceClient.DrainWorker, req)
	return got.GetWorker(), err
}

// UndrainWorker lets the worker of a name work again and returns how it stands;
// already means that it did not drain. Repeating it is harmless.
func (c *Client) UndrainWorker(ctx context.Context, name string) (w *dtaskv1.Worker, already bool, err error) {
	req := &dtaskv1.UndrainWorkerRequest{Name: name}
	got, err := call(ctx, c, operation{name: "undraining worker " + name}, dtaskv1.AdminServiceClient.UndrainWorker, req)
	return got.GetWorker(), got.GetAlreadyUndrained(), err
}
