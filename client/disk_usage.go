package client

import (
	"context"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// usageTimeout is how long a coordinator may take to measure its files and its state, which
// it encodes: 10 million tasks in about 2 s.
const usageTimeout = 30 * time.Second

// ReplicaUsage is how much space the state and the files of a coordinator take.
type ReplicaUsage struct {
	ServerID string // empty if it is unknown
	Address  string
	Usage    *dtaskv1.DiskUsageResponse // nil if it did not answer
	Err      error                      // why it did not
}

// DiskUsage asks each coordinator of the cluster how much space it uses, and returns an
// element for each, ascending by server ID. It works without a leader, and does not retry.
// ErrUnreachable means that no coordinator responded.
func (c *Client) DiskUsage(ctx context.Context) ([]ReplicaUsage, error) {
	answers, err := askMembers(ctx, c, "reading the disk usage", usageTimeout, func(ctx context.Context, t try) (*dtaskv1.DiskUsageResponse, error) {
		return t.admin().DiskUsage(ctx, &dtaskv1.DiskUsageRequest{})
	}, (*dtaskv1.DiskUsageResponse).GetServerId)
	if err != nil {
		return nil, err
	}
	list := make([]ReplicaUsage, 0, len(answers))
	for _, a := range answers {
		list = append(list, ReplicaUsage{ServerID: a.id, Address: a.addr, Usage: a.value, Err: a.err})
	}
	return list, nil
}
