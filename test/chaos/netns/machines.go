package netns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
)

// NewMachines makes a network without hosts. Its hosts have the addresses of a private
// network, and are connected only with each other. The caller closes it.
func NewMachines(ctx context.Context) (*Network, error) {
	id := fmt.Sprintf("dt%04x", rand.IntN(1<<16))
	n := &Network{
		id: id, bridge: id + "-b", hosts: make(map[string]*Host),
		subnet: fmt.Sprintf("10.%d.%d", rand.IntN(256), rand.IntN(256)),
	}
	if err := ip(ctx, "netns add "+n.bridge); err != nil {
		return nil, err
	}
	err := firstOf(
		func() error { return ip(ctx, n.atBridge()+"link add "+n.id+" type bridge") },
		func() error { return ip(ctx, n.atBridge()+"link set "+n.id+" up") },
	)
	if err != nil {
		return nil, errors.Join(err, n.Close(ctx))
	}
	return n, nil
}
