package nemesis

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func adminFaults() []fault {
	return []fault{
		{"F56", "rolling-restart", rollingRestart},
		{"F62", "snapshot-storm", snapshotStorm},
	}
}

// snapshotStorm makes all replicas take snapshots continuously.
func snapshotStorm(ctx context.Context, w *World, hold time.Duration) error {
	taken := 0
	err := repeat(ctx, max(hold, 2*time.Second), 50*time.Millisecond, func() error {
		for _, n := range w.Cluster.Coordinators() {
			if w.snapshot(ctx, n) == nil {
				taken++
			}
		}
		return nil
	})
	if taken == 0 {
		return ErrCannot
	}
	return err
}

// rollingRestart restarts all replicas, one after another.
func rollingRestart(ctx context.Context, w *World, _ time.Duration) error {
	all := w.Cluster.Coordinators()
	release, err := w.Take("rolling restart", replicas(all...)...)
	if err != nil {
		return err
	}
	defer release()
	for done, i := range w.Random.Perm(len(all)) {
		n := all[i]
		if ctx.Err() != nil && done == 0 {
			return ErrCannot
		}
		if ctx.Err() != nil {
			break
		}
		if err := n.Terminate(); err == nil {
			waiting, cancel := context.WithTimeout(ctx, termLimit)
			_, err = n.Wait(waiting)
			cancel()
			if err != nil {
				w.Log("%s did not exit within %s of SIGTERM", n.Name, termLimit)
				err = w.Kill(ctx, n)
			}
			if err != nil {
				return errors.Join(err, Ensure(context.WithoutCancel(ctx), n.Process))
			}
		}
		if err := Ensure(context.WithoutCancel(ctx), n.Process); err != nil {
			return fmt.Errorf("restarting: %w", err)
		}
		if err := w.ready(ctx, n); err != nil && ctx.Err() == nil {
			w.Log("rolling restart: %v", err) // another fault may keep it down
			break
		}
	}
	return nil
}
