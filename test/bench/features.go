package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
)

// manyLimits is how many named limits a cluster has in the section features.
const manyLimits = 1000

// A fleetUnderLoad is a cluster with thousands of simulated workers, whose leaders are killed while
// tasks run.
type fleetUnderLoad struct {
	cluster *cluster.Cluster
	client  *client.Client
	begins  *begins
	tasks   int // of each job
}

// withFleet starts a cluster with a fleet. Before do, warmUp tasks show how many the fleet
// completes per second.
func withFleet(ctx context.Context, cfg cluster.Config, f fleet, warmUp int, do func(*fleetUnderLoad) error) error {
	return with(ctx, cfg, func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		defer func() { _ = cl.Close() }() // nothing is written
		begins := new(begins)
		stop, err := ownFleet(ctx, c, f, begins)
		if err != nil {
			return err
		}
		defer stop()
		rate, err := pace(ctx, cl, begins, warmUp)
		if err != nil {
			return err
		}
		return do(&fleetUnderLoad{c, cl, begins, min(mostLoad, max(10_000, int(rate)*loadFor))})
	})
}

// kills kills n leaders one after the other, and returns after how many ms completions resumed.
func (l *fleetUnderLoad) kills(ctx context.Context, n int) (back []float64, err error) {
	for range n {
		k, err := oneKill(ctx, l.cluster, l.client, l.begins, l.tasks, func() {})
		if err != nil {
			return nil, err
		}
		back = append(back, k.back)
	}
	return back, nil
}

// features kills leaders under load: first of a cluster without any schedules and limits, then of
// the same one with many of them, which a new leader takes over before it starts tasks.
func features(ctx context.Context, b *bench) error {
	f := b.fleets()[1]
	var without, furnished []float64
	err := withFleet(ctx, cluster.Config{}, f, b.tasks, func(l *fleetUnderLoad) (err error) {
		if without, err = l.kills(ctx, b.kills); err != nil {
			return err
		}
		if err := setSchedules(ctx, l.client, time.Now().Add(24*time.Hour)); err != nil {
			return err
		}
		if err := eachLimit(ctx, func(ctx context.Context, name string) error {
			_, err := l.client.SetLimit(ctx, name, &dtaskv1.LimitSettings{Running: 1}, 0)
			return err //nolint:wrapcheck // says what it did
		}); err != nil {
			return err
		}
		furnished, err = l.kills(ctx, b.kills)
		return err
	})
	if err != nil {
		return err
	}
	first := "leader killed: until completions resume"
	b.table.add(first, "ms", fmt.Sprintf("%d x SIGKILL of the leader, %s", b.kills, f), without...)
	b.table.compare(fmt.Sprintf("  with %d schedules and %d limits", manySchedules, manyLimits), "ms", "of the same cluster, afterwards; target: at most 100 ms more", first, furnished...)
	return nil
}

// eachLimit does something for the name of each of many limits.
func eachLimit(ctx context.Context, do func(ctx context.Context, name string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(settingAtOnce)
	for i := range manyLimits {
		group.Go(func() error { return do(ctx, fmt.Sprintf("bench-%d", i)) })
	}
	return group.Wait() //nolint:wrapcheck // do says what it did
}
