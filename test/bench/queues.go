package main

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
)

// weightedQueues are the queues of the section queues: the weight of the first one is 1, that of
// the second one 2, and so on.
const weightedQueues = 10

// queueNames are those of the kinds of the section queues.
var queueNames = pairNames{"in one queue", "in a queue each, of unequal weights"}

// queueLists returns the queues of jobs that wait all at once: the default one, or one each.
func queueLists() (lists [2][]string) {
	for i := range weightedQueues {
		lists[0], lists[1] = append(lists[0], ""), append(lists[1], fmt.Sprintf("bench-%d", i+1))
	}
	return lists
}

// setWeights gives each of these queues, except the default one, a weight of its own.
func setWeights(ctx context.Context, cl *client.Client, queues []string) error {
	for i, name := range queues {
		if name == "" {
			continue
		}
		if _, err := cl.SetQueue(ctx, name, &dtaskv1.QueueSettings{Weight: uint32(i + 1)}, 0); err != nil { //nolint:gosec // small
			return err //nolint:wrapcheck // says what it did
		}
	}
	return nil
}

// queues measures what queues of unequal weights cost: throughput, CPU and log of tasks, and the
// memory of pending ones.
func queues(ctx context.Context, b *bench) error {
	what := fmt.Sprintf("%d jobs at once", weightedQueues)
	err := with(ctx, b.usualCluster(), func(c *cluster.Cluster) error {
		all, err := b.queueRounds(ctx, c)
		if err != nil {
			return err
		}
		queueNames.workRows(b, what, fmt.Sprintf("%d tasks of 32 B in turns, %s", b.tasks, b.usual()), workTargets{tasks: "target: at least 0.90 x"}, all)
		return nil
	})
	if err != nil {
		return err
	}
	lists := queueLists()
	return queueNames.memoryRows(ctx, b, what, [2]pendingTasks{{queues: lists[0]}, {queues: lists[1]}})
}

// queueRounds runs jobs in one queue and in a queue each, in turns on one cluster, after a round of
// each that warms up.
func (b *bench) queueRounds(ctx context.Context, c *cluster.Cluster) (all [2][]round, err error) {
	cl, err := c.Client()
	if err != nil {
		return all, err //nolint:wrapcheck // says what it did
	}
	defer func() { _ = cl.Close() }() // nothing is written
	lists := queueLists()
	if err := setWeights(ctx, cl, lists[1]); err != nil {
		return all, err
	}
	for n := range b.rounds + 1 {
		for i, list := range lists {
			r, err := queuesRound(ctx, c, cl, b.tasks, list)
			if err != nil {
				return all, fmt.Errorf("%s: %w", queueNames[i], err)
			}
			if n > 0 {
				all[i] = append(all[i], r)
			}
		}
	}
	return all, nil
}

// queuesRound runs n tasks, in a job for each of these queues.
func queuesRound(ctx context.Context, c *cluster.Cluster, cl *client.Client, n int, queues []string) (round, error) {
	each := n / len(queues)
	return ownRound(ctx, c, cl, each*len(queues), func() error {
		group, groupCtx := errgroup.WithContext(ctx)
		for _, queue := range queues {
			group.Go(func() error {
				_, err := jobRate(groupCtx, cl, each, taskForm{queue: queue}, "noop", strings.Repeat("x", 32))
				return err
			})
		}
		return group.Wait() //nolint:wrapcheck // jobRate says what it is
	})
}
