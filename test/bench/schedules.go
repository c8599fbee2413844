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
	// fewSchedules is how many measure the lateness at rest.
	fewSchedules = 100
	// otherInterval separates other jobs, which are submitted in the due second.
	otherInterval = 5 * time.Millisecond
	// settingAtOnce is how many schedules are set at a time.
	settingAtOnce = 64
	// settingTime is how long setting all of them may take.
	settingTime = 90 * time.Second
	// fireLimit is how long their jobs may take to exist.
	fireLimit = 60 * time.Second
)

// schedules measures how late the jobs of schedules exist: of few, and of many that are due in
// the same second, and how long other jobs then wait.
func schedules(ctx context.Context, b *bench) error {
	return with(ctx, cluster.Config{Workers: b.workers, Slots: b.slots}, func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		defer func() { _ = cl.Close() }() // nothing is written
		if err := b.atRest(ctx, cl); err != nil {
			return err
		}
		due := time.Now().Add(settingTime).Truncate(time.Second)
		if err := setSchedules(ctx, cl, due); err != nil {
			return err
		}
		waits, err := otherWaits(ctx, cl, due)
		if err != nil {
			return err
		}
		late, err := lateness(ctx, cl, due)
		if err != nil {
			return err
		}
		setting := fmt.Sprintf("%d schedules due in one second, jobs of one task, %d workers x %d slots", manySchedules, b.workers, b.slots)
		b.table.add("schedules: job exists after its tick: p50", "ms", setting, permille(late, 500))
		b.table.add("schedules: job exists after its tick: p99", "ms", "", permille(late, 990))
		b.table.add("schedules: last job exists after its tick", "ms", "target: at most 1000", permille(late, 1000))
		setting = fmt.Sprintf("%d jobs of one task in that second, from the call to the assignment", len(waits))
		b.table.add("schedules: start latency of other jobs: p50", "ms", setting, permille(waits, 500))
		b.table.add("schedules: start latency of other jobs: p99", "ms", "target: below 50", permille(waits, 990))
		return nil
	})
}

// permille returns a quantile of durations in ascending order, in ms.
func permille(sorted []time.Duration, n int) float64 {
	return sorted[(len(sorted)-1)*n/1000].Seconds() * 1000
}

// atRest measures how late the jobs of few schedules exist.
func (b *bench) atRest(ctx context.Context, cl *client.Client) error {
	every := &dtaskv1.ScheduleDefinition{EveryMs: 1000, Overlap: dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_ALLOW}
	if err := setEach(ctx, cl, fewSchedules, every); err != nil {
		return err
	}
	begin := time.Now()
	if err := cluster.Pause(ctx, 2*b.during); err != nil {
		return err //nolint:wrapcheck // that of ctx
	}
	for i := range fewSchedules {
		if err := cl.DeleteSchedule(ctx, client.ScheduleName{Name: scheduleName(i)}, 0); err != nil {
			return fmt.Errorf("deleting schedule %d: %w", i, err)
		}
	}
	var late []time.Duration
	for job, err := range cl.Jobs(ctx, client.JobFilter{Since: begin}) {
		if err != nil {
			return fmt.Errorf("listing jobs: %w", err)
		}
		late = append(late, time.Duration(job.GetSubmittedAt()-job.GetRun().GetTickMs())*time.Millisecond)
	}
	if len(late) == 0 {
		return errors.New("no schedule has fired")
	}
	slices.Sort(late)
	setting := fmt.Sprintf("%d schedules that are due each second, for %v", fewSchedules, 2*b.during)
	b.table.add("schedules: job exists after its tick, few schedules: p50", "ms", setting, permille(late, 500))
	b.table.add("schedules: job exists after its tick, few schedules: p99", "ms", "target: at most 20", permille(late, 990))
	return nil
}

// otherWaits submits jobs at a steady rate in the second in which the schedules are due. It
// returns how long after its time each was assigned, ascending.
func otherWaits(ctx context.Context, cl *client.Client, due time.Time) ([]time.Duration, error) {
	job, err := spec.Single(spec.SingleTask{Type: "echo", Payload: []byte("x"), Name: "other"})
	if err != nil {
		return nil, fmt.Errorf("building job: %w", err)
	}
	waits := make([]time.Duration, time.Second/otherInterval)
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range waits {
		at := due.Add(time.Duration(i) * otherInterval)
		if err := cluster.Pause(groupCtx, time.Until(at)); err != nil {
			break // group.Wait returns why
		}
		group.Go(func() error {
			got, err := cl.Submit(groupCtx, job, client.SubmitOptions{})
			if err != nil {
				return fmt.Errorf("submitting another job: %w", err)
			}
			ended, err := cl.Wait(groupCtx, got.ID)
			if err != nil {
				return fmt.Errorf("waiting for another job: %w", err)
			}
			waits[i] = time.UnixMilli(ended.GetStartedAt()).Sub(at)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err //nolint:wrapcheck // wrapped above
	}
	slices.Sort(waits)
	return waits, nil
}

func scheduleName(i int) string { return fmt.Sprintf("s%d", i) }

// setSchedules sets as many schedules as a cluster can have, each of which is due once.
func setSchedules(ctx context.Context, cl *client.Client, due time.Time) error {
	if err := setEach(ctx, cl, manySchedules, &dtaskv1.ScheduleDefinition{At: []string{due.UTC().Format(time.RFC3339)}}); err != nil {
		return err
	}
	if time.Until(due) < time.Second {
		return errors.New("setting the schedules took too long")
	}
	return nil
}

// setEach sets n schedules that are due at the same times.
func setEach(ctx context.Context, cl *client.Client, n int, d *dtaskv1.ScheduleDefinition) error {
	set := func(ctx context.Context, i int) error {
		job, err := spec.Single(spec.SingleTask{Type: "echo", Payload: []byte("x"), Name: scheduleName(i)})
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
	for i := range n {
		group.Go(func() error { return set(ctx, i) })
	}
	return group.Wait() //nolint:wrapcheck // set wraps it
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
			if job.GetRun() != nil { // else it is one of the others
				late = append(late, time.UnixMilli(job.GetSubmittedAt()).Sub(due))
			}
		}
		if len(late) < manySchedules {
			return fmt.Errorf("%d of %d jobs exist", len(late), manySchedules)
		}
		return nil
	})
	slices.Sort(late)
	return late, err //nolint:wrapcheck // says what it did
}
