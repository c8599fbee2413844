package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
)

// weightedQueues are the queues of the section queues: the weight of the first one is 1, that of
// the second one 2, and so on.
const weightedQueues = 10

// queueForms are jobs that wait all at once, in the default queue or in one each.
func queueForms() []taskForm {
	one, each := taskForm{what: fmt.Sprintf("%d jobs at once, in one queue", weightedQueues)}, taskForm{what: "in a queue each, of unequal weights"}
	for i := range weightedQueues {
		one.queues, each.queues = append(one.queues, ""), append(each.queues, fmt.Sprintf("bench-%d", i+1))
	}
	return []taskForm{one, each}
}

// queues measures the throughput of tasks that wait in one queue, or in several of unequal weight.
func queues(ctx context.Context, b *bench) error {
	return with(ctx, b.usualCluster(), func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		defer func() { _ = cl.Close() }() // nothing is written
		forms := queueForms()
		for i, name := range forms[1].queues {
			if _, err := cl.SetQueue(ctx, name, &dtaskv1.QueueSettings{Weight: uint32(i + 1)}, 0); err != nil { //nolint:gosec // small
				return err //nolint:wrapcheck // says what it did
			}
		}
		rates, err := b.inTurns(forms, func(f taskForm) (float64, error) {
			return queuesRate(ctx, cl, b.tasks, f)
		})
		if err != nil {
			return err
		}
		b.compareForms("no-op tasks, ", fmt.Sprintf("%d tasks of 32 B, %s", b.tasks, b.usual()), forms, rates)
		return nil
	})
}

// queuesRate returns how many of n tasks complete per second, in a job for each queue of f.
func queuesRate(ctx context.Context, cl *client.Client, n int, f taskForm) (float64, error) {
	each := n / len(f.queues)
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for _, queue := range f.queues {
		group.Go(func() error {
			_, err := jobRate(ctx, cl, each, taskForm{queues: []string{queue}}, "noop", strings.Repeat("x", 32))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err //nolint:wrapcheck // jobRate says what it is
	}
	return float64(each*len(f.queues)) / time.Since(began).Seconds(), nil
}

// manyLimits is how many named limits a cluster has in the section features.
const manyLimits = 1000

// features kills leaders under load, first of a cluster without any schedules and limits, and then
// of the same one with many of them, which a new leader takes over before it starts tasks.
func features(ctx context.Context, b *bench) error {
	f := b.fleets()[1]
	var without, furnished []float64
	err := with(ctx, cluster.Config{}, func(c *cluster.Cluster) error {
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
		rate, err := pace(ctx, cl, begins, b.tasks)
		if err != nil {
			return err
		}
		tasks := min(mostLoad, max(10_000, int(rate)*loadFor))
		if without, err = killsBack(ctx, c, cl, begins, tasks, b.kills); err != nil {
			return err
		}
		if err := setSchedules(ctx, cl, time.Now().Add(24*time.Hour)); err != nil {
			return err
		}
		if err := setLimits(ctx, cl); err != nil {
			return err
		}
		furnished, err = killsBack(ctx, c, cl, begins, tasks, b.kills)
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

// killsBack kills leaders, and returns after how many ms completions resumed.
func killsBack(ctx context.Context, c *cluster.Cluster, cl *client.Client, begins *begins, tasks, kills int) (back []float64, err error) {
	for range kills {
		l, err := oneKill(ctx, c, cl, begins, tasks, func() {})
		if err != nil {
			return nil, err
		}
		back = append(back, l.back)
	}
	return back, nil
}

// setLimits sets many limits.
func setLimits(ctx context.Context, cl *client.Client) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(settingAtOnce)
	for i := range manyLimits {
		group.Go(func() error {
			_, err := cl.SetLimit(ctx, fmt.Sprintf("bench-%d", i), &dtaskv1.LimitSettings{Running: 1 + uint32(i)}, 0) //nolint:gosec // small
			return err                                                                                                //nolint:wrapcheck // says what it did
		})
	}
	return group.Wait() //nolint:wrapcheck // SetLimit says what it did
}
