package cluster

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ErrDifferent is returned when replicas that applied the same log differ.
var ErrDifferent = errors.New("the replicas differ")

// Dial connects to one coordinator alone, as an admin; the caller closes the connection.
func (n *Coordinator) Dial() (*grpc.ClientConn, error) { return n.dial(n.security.asAdmin()) }

func (n *Coordinator) dial(options []grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+n.Addr, append(options, grpc.WithNoProxy())...)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", n.Name, err)
	}
	return conn, nil
}

// AwaitEqual returns once all coordinators remember a common index and have the
// same digest there, and fails if any two differ anywhere.
func (c *Cluster) AwaitEqual(ctx context.Context) error {
	var differ error
	err := Until(ctx, "all replicas show the same digest", startLimit, func(ctx context.Context) error {
		seen := make(map[uint64]map[uint64][]string) // index → digest → replicas
		for _, n := range c.coordinators {
			digests, err := n.digests(ctx)
			if err != nil {
				return err
			}
			for _, d := range digests {
				if seen[d.GetIndex()] == nil {
					seen[d.GetIndex()] = make(map[uint64][]string)
				}
				seen[d.GetIndex()][d.GetValue()] = append(seen[d.GetIndex()][d.GetValue()], n.Name)
			}
		}
		common := false
		for index, values := range seen {
			if len(values) > 1 {
				differ = fmt.Errorf("%w at index %d: %v", ErrDifferent, index, values)
				return nil
			}
			for _, names := range values {
				common = common || len(names) == len(c.coordinators)
			}
		}
		if !common {
			return fmt.Errorf("of %d indexes none is remembered by all", len(seen))
		}
		return nil
	})
	return errors.Join(err, differ)
}

func (n *Coordinator) digests(ctx context.Context) ([]*dtaskv1.Digest, error) {
	conn, err := n.dial(n.security.asReplica()) // digests are for replicas only
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	got, err := dtaskv1.NewClusterServiceClient(conn).Digests(ctx, &dtaskv1.DigestsRequest{})
	if err != nil {
		return nil, fmt.Errorf("asking %s for its digests: %w", n.Name, err)
	}
	return got.GetDigests(), nil
}
