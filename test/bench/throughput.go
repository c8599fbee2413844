package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/dtask/dtask/test/cluster"
)

// Names of rows that other rows are compared with.
const (
	mainRow    = "tasks of 32 B"
	replicaRow = "3 replicas"
)

// usual describes the cluster of most rows.
func (b *bench) usual() string {
	return fmt.Sprintf("3 coordinators, %d workers x %d slots, sync on", b.workers, b.slots)
}

func (b *bench) usualCluster() cluster.Config {
	return cluster.Config{Workers: b.workers, Slots: b.slots}
}

// throughput measures no-op tasks by payload size.
func throughput(ctx context.Context, b *bench) error {
	return with(ctx, b.usualCluster(), func(c *cluster.Cluster) error {
		for _, payload := range []int{32, 256, 4096} {
			tasks := b.tasks
			if payload > 1024 {
				tasks /= 5
			}
			all, err := b.measure(ctx, c, tasks, "--payload", strconv.Itoa(payload))
			if err != nil {
				return err
			}
			what := fmt.Sprintf("tasks of %d B", payload)
			setting := fmt.Sprintf("%d tasks, 10,000 in a job, %s", tasks, b.usual())
			b.table.compare(what, "tasks/s", setting, applyYardstick, rates(all)...)
			b.costs(what, all)
		}
		return nil
	})
}

// A form is a shape of jobs to measure.
type form struct {
	what, unit string
	tasks      int
	args       []string
	figure     func(round) float64
}

// shapes measures no-op tasks by the shape of their jobs.
func shapes(ctx context.Context, b *bench) error {
	perSecond := func(r round) float64 { return r.TasksPerSecond }
	jobsPerSecond := func(r round) float64 { return r.JobsPerSecond }
	eachMS := func(r round) float64 { return 1000 * r.TotalSeconds / r.Tasks }
	const hundred = 100
	forms := []form{
		{"independent tasks", "tasks/s", b.tasks, nil, perSecond},
		{"10 graphs, 100 wide, two dependencies each", "tasks/s", b.tasks / 5, []string{"--shape", "wide", "--width", "100", "--jobs", "10"}, perSecond},
		{"one graph, 100 wide, two dependencies each", "tasks/s", min(10_000, b.tasks), []string{"--shape", "wide", "--width", "100", "--jobs", "1"}, perSecond},
		{"one chain, from task to task", "ms", min(2_000, b.tasks/hundred), []string{"--shape", "chain", "--jobs", "1"}, eachMS},
		{"jobs of 10 tasks, one call each, 64 callers", "jobs/s", b.tasks / 5, []string{"--tasks-per-job", "10", "--clients", "64"}, jobsPerSecond},
		{"jobs of 10 tasks, one call each, 256 callers", "jobs/s", b.tasks / 5, []string{"--tasks-per-job", "10", "--clients", "256"}, jobsPerSecond},
		{"jobs of 10 tasks, 100 in a call", "jobs/s", b.tasks / 5, []string{"--tasks-per-job", "10", "--batch", "100"}, jobsPerSecond},
		{"jobs of 10 tasks, 100 in a call, for longer", "jobs/s", b.tasks, []string{"--tasks-per-job", "10", "--batch", "100"}, jobsPerSecond},
	}
	return with(ctx, b.usualCluster(), func(c *cluster.Cluster) error {
		for _, f := range forms {
			all, err := b.measure(ctx, c, f.tasks, f.args...)
			if err != nil {
				return fmt.Errorf("%s: %w", f.what, err)
			}
			against := applyYardstick
			if f.unit == "ms" {
				against = ""
			}
			b.table.compare(f.what, f.unit, fmt.Sprintf("%d tasks of 32 B, %s", f.tasks, b.usual()), against, values(all, f.figure)...)
			if f.unit == "jobs/s" {
				b.costs(f.what, all)
			}
		}
		return nil
	})
}

// replicas measures the cost of each additional replica.
func replicas(ctx context.Context, b *bench) error {
	for _, n := range []int{1, 3, 5} {
		cfg := b.usualCluster()
		cfg.Coordinators = n
		var all []round
		err := with(ctx, cfg, func(c *cluster.Cluster) (err error) {
			all, err = b.measure(ctx, c, b.tasks)
			return err
		})
		if err != nil {
			return err
		}
		what := replicaRow
		if n != 3 {
			what = strconv.Itoa(n) + " replicas"
		}
		setting := fmt.Sprintf("%d tasks of 32 B, %d workers x %d slots, all on this machine", b.tasks, b.workers, b.slots)
		b.table.compare(what, "tasks/s", setting, applyYardstick, rates(all)...)
	}
	return nil
}
