package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
)

const (
	// manySchedules is how many schedules a cluster has at most.
	manySchedules = 10_000
	// settingAtOnce is how many schedules are set at a time.
	settingAtOnce = 64
	// settingTime is how long setting all of them may take.
	settingTime = 90 * time.Second
	// fireLimit is how long their jobs may take to exist.
	fireLimit = 60 * time.Second
)

// schedules measures how late jobs exist whose schedules are due in the same second.
func schedules(ctx context.Context, b *bench) error {
	return with(ctx, cluster.Config{}, func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		defer func() { _ = cl.Close() }() // nothing is written
		due := time.Now().Add(settingTime).Truncate(time.Second)
		if err := setSchedules(ctx, cl, due); err != nil {
			return err
		}
		late, err := lateness(ctx, cl, due)
		if err != nil {
			return err
		}
		at := func(permille int) float64 { return late[(len(late)-1)*permille/1000].Seconds() * 1000 }
		setting := fmt.Sprintf("%d schedules due in one second, jobs of one task", manySchedules)
		b.table.add("schedules: job exists after its tick: p50", "ms", setting, at(500))
		b.table.add("schedules: job exists after its tick: p99", "ms", "", at(990))
		b.table.add("schedules: last job exists after its tick", "ms", "", at(1000))
		return nil
	})
}

// setSchedules sets the schedules, each of which is due once.
func setSchedules(ctx context.Context, cl *client.Client, due time.Time) error {
	d := &dtaskv1.ScheduleDefinition{At: []string{due.UTC().Format(time.RFC3339)}}
	set := func(ctx context.Context, i int) error {
		job, err := spec.Single(spec.SingleTask{Type: "echo", Payload: []byte("x"), Name: fmt.Sprintf("s%d", i)})
		if err == nil {
			_, err = cl.SetSchedule(ctx, job, d, 0)
		}
		if err != nil {
			return fmt.Errorf("setting schedule %d: %w", i, err)
		}
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(settingAtOnce)
	for i := range manySchedules {
		group.Go(func() error { return set(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		return err //nolint:wrapcheck // set wraps it
	}
	if time.Until(due) < time.Second {
		return errors.New("setting the schedules took too long")
	}
	return nil
}

// lateness returns how long after the tick each job was submitted, ascending.
func lateness(ctx context.Context, cl *client.Client, due time.Time) (late []time.Duration, err error) {
	if err := cluster.Pause(ctx, time.Until(due.Add(time.Second))); err != nil {
		return nil, err //nolint:wrapcheck // that of ctx
	}
	err = cluster.Until(ctx, "all jobs exist", fireLimit, func(ctx context.Context) error {
		late = late[:0]
		for job, err := range cl.Jobs(ctx, client.JobFilter{Since: due.Add(-time.Second)}) {
			if err != nil {
				return fmt.Errorf("listing jobs: %w", err)
			}
			late = append(late, time.UnixMilli(job.GetSubmittedAt()).Sub(due))
		}
		if len(late) < manySchedules {
			return fmt.Errorf("%d of %d jobs exist", len(late), manySchedules)
		}
		return nil
	})
	slices.Sort(late)
	return late, err //nolint:wrapcheck // says what it did
}
