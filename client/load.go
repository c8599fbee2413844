package client

import (
	"context"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Load returns how much the cluster does now and has done in the last minute, five minutes
// and hour, and how long tasks waited and ran, as far as the leader knows: it starts again
// with each leader.
func (c *Client) Load(ctx context.Context) (*dtaskv1.LoadResponse, error) {
	return call(ctx, c, operation{name: "reading the load"}, dtaskv1.AdminServiceClient.Load, &dtaskv1.LoadRequest{})
}
