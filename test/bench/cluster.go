package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/dtask/dtask/test/cluster"
)

// with starts a cluster, calls f with it, and stops it. Its directory is kept after
// an error.
func with(ctx context.Context, cfg cluster.Config, f func(*cluster.Cluster) error) error {
	c, err := cluster.New(ctx, cfg)
	if err != nil {
		return err
	}
	err = c.Start(ctx)
	if err == nil {
		err = f(c)
	}
	if err = errors.Join(err, c.Close()); err != nil {
		return fmt.Errorf("%w (kept: %s)", err, c.Dir)
	}
	return c.Remove()
}
