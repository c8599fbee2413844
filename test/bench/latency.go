package main

import (
	"context"
	"fmt"
	"os"

	"github.com/dtask/dtask/test/cluster"
)

// fewWorkers is the number of workers that execute the tasks whose latency is
// measured.
const (
	fewWorkers = 8
	manySlots  = 512
	halfLoad   = 50_000 // tasks per second
)

// latency measures the time from just before a job is sent until its task starts at
// a worker: with little load, at 50,000 tasks per second, and at 80 % of the
// maximum.
func latency(ctx context.Context, b *bench) error {
	return with(ctx, cluster.Config{}, func(c *cluster.Cluster) error {
		f := fleet{workers: fewWorkers, slots: manySlots, tasks: b.tasks}
		most, err := b.load(ctx, c, f)
		if err != nil {
			return err
		}
		ceiling := int(most.TasksPerSecond)
		b.table.compare("ceiling", "tasks/s", fmt.Sprintf("%d tasks, %s", f.tasks, f), applyYardstick, most.TasksPerSecond)
		for _, at := range []struct {
			what         string
			rate, perJob int
		}{
			{"idle", 50, 1},
			{"50,000 tasks/s", halfLoad, halfLoad / 100},
			{"80 % of the ceiling", ceiling * 8 / 10, max(1, ceiling*8/1000)},
		} {
			if at.rate > ceiling {
				fmt.Fprintf(os.Stderr, "        left out: %s is more than the %d tasks/s of this run\n", at.what, ceiling)
				continue
			}
			if err := b.latencyAt(ctx, c, at.what, at.rate, at.perJob, "start latency"); err != nil {
				return err
			}
		}
		return nil
	})
}

// latencyAt adds p50 and p99 of tasks that are submitted at a rate.
func (b *bench) latencyAt(ctx context.Context, c *cluster.Cluster, where string, rate, perJob int, what string) error {
	f := fleet{workers: fewWorkers, slots: manySlots, rate: rate, perJob: perJob, tasks: int(float64(rate) * b.during.Seconds())}
	leader, err := c.AwaitLeader(ctx)
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	var p50, p99, waiting []float64
	for range b.rounds {
		ran, waited, _ := queuedOf(leader.Pid()) // known afterwards, or not at all
		l, err := b.load(ctx, c, f)
		if err != nil {
			return err
		}
		half, most, err := l.waits()
		if err != nil {
			return err
		}
		p50, p99 = append(p50, half), append(p99, most)
		if on, queued, err := queuedOf(leader.Pid()); err == nil {
			waiting = append(waiting, (queued-waited).Seconds()/(on-ran+queued-waited).Seconds())
		}
	}
	setting := fmt.Sprintf("%d tasks/s in jobs of %d for %s, including the call; %s", rate, perJob, b.during, f)
	b.table.add(what+", "+where+": p50", "ms", setting, p50...)
	b.table.add(what+", "+where+": p99", "ms", "", p99...)
	if len(waiting) > 0 {
		b.table.add("  "+what+", "+where+": leader waits for a processor", "of its time", "threads that could run; the more, the less the latency is that of dtask", waiting...)
	}
	return nil
}
