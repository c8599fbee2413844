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

// kill kills the leader, and returns after how many ms completions resumed.
func (l *fleetUnderLoad) kill(ctx context.Context) (back float64, err error) {
	k, err := oneKill(ctx, l.cluster, l.client, l.begins, l.tasks, func() {})
	return k.back, err
}

// A killedCluster is a cluster whose leader is killed under load.
type killedCluster struct {
	cfg     cluster.Config
	prepare func(context.Context, *client.Client) error // before the load; nil: nothing
}

// killsInTurns kills leaders of both kinds in turns, each of a new cluster, so that other load of
// the machine meets both. It returns after how many ms completions resumed.
func (b *bench) killsInTurns(ctx context.Context, f fleet, kinds [2]killedCluster) (back [2][]float64, err error) {
	for range b.kills {
		for i, kind := range kinds {
			err := withFleet(ctx, kind.cfg, f, b.tasks, func(l *fleetUnderLoad) error {
				if kind.prepare != nil {
					if err := kind.prepare(ctx, l.client); err != nil {
						return err
					}
				}
				ms, err := l.kill(ctx)
				back[i] = append(back[i], ms)
				return err
			})
			if err != nil {
				return back, err
			}
		}
	}
	return back, nil
}

// killsSetting describes what killsInTurns does.
func (b *bench) killsSetting(f fleet) string {
	return fmt.Sprintf("%d x SIGKILL of the leader, each of a new cluster, %s", b.kills, f)
}

// features kills leaders under load, in turns: of clusters without any schedules and limits, and of
// clusters with many of them, which a new leader takes over before it starts tasks.
func features(ctx context.Context, b *bench) error {
	f := b.fleets()[1]
	back, err := b.killsInTurns(ctx, f, [2]killedCluster{{}, {prepare: setFeatures}})
	if err != nil {
		return err
	}
	first := "leader killed: until completions resume"
	b.table.add(first, "ms", b.killsSetting(f), back[0]...)
	b.table.compare(fmt.Sprintf("  with %d schedules and %d limits", manySchedules, manyLimits), "ms", "in turns with the row above; target: at most 100 ms more", first, back[1]...)
	return nil
}

// setFeatures sets many schedules, none of which is due, and many limits.
func setFeatures(ctx context.Context, cl *client.Client) error {
	if err := setSchedules(ctx, cl, time.Now().Add(24*time.Hour)); err != nil {
		return err
	}
	return eachLimit(ctx, func(ctx context.Context, name string) error {
		_, err := cl.SetLimit(ctx, name, &dtaskv1.LimitSettings{Running: 1}, 0)
		return err //nolint:wrapcheck // says what it did
	})
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
