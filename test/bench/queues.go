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
	one, each := taskForm{what: fmt.Sprintf("%d jobs at once, in one queue", weightedQueues)}, taskForm{what: "in a queue each, of unequal weights", target: "at least 0.90 x"}
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
