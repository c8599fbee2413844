package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

// model measures the cost of a task and of a log entry: the same tasks in few large
// and in many small entries, at several rates. The CPU time of a process per task is
// nearly a line, a + b ÷ (tasks of an entry), without its idle CPU time.
func model(ctx context.Context, b *bench) error {
	return with(ctx, b.usualCluster(), func(c *cluster.Cluster) error {
		still, err := idleCPU(ctx, c, b.during)
		if err != nil {
			return err
		}
		points := make(map[string][]point)
		for _, m := range []struct{ rate, perJob int }{{0, 10_000}, {10_000, 500}, {5_000, 50}, {2_000, 10}, {500, 1}} {
			args, tasks := []string{"--tasks-per-job", strconv.Itoa(m.perJob)}, b.tasks/5
			if m.rate > 0 {
				args = append(args, "--rate", strconv.Itoa(m.rate))
				tasks = int(float64(m.rate) * b.during.Seconds() / 2)
			}
			for range b.rounds {
				r, err := oneRound(ctx, c, tasks, args)
				if err != nil {
					return err
				}
				for role, used := range r.cpu {
					busy := float64(used.Microseconds()) - still[role]*r.TotalSeconds*1e6
					points[role] = append(points[role], point{x: r.Entries / r.Tasks, y: busy / r.Tasks})
				}
			}
		}
		for _, role := range []string{roleLeader, roleFollowers, roleWorkers, roleClient} {
			if len(points[role]) == 0 {
				continue
			}
			a, slope := fit(points[role])
			setting := "line through rounds of 1 to thousands of tasks in an entry; " + b.usual()
			b.table.add(role+": CPU of a task", "µs", setting, a)
			b.table.add(role+": CPU of an entry", "µs", "", slope)
			b.table.add(role+": CPU when idle", "cores", "", still[role])
		}
		return nil
	})
}

// idleCPU returns the CPU use of each role without work, in cores.
func idleCPU(ctx context.Context, c *cluster.Cluster, during time.Duration) (map[string]float64, error) {
	leader, err := c.AwaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	before := cpuByRole(c, leader)
	began := time.Now()
	if err := cluster.Pause(ctx, during); err != nil {
		return nil, fmt.Errorf("waiting: %w", err)
	}
	cores := make(map[string]float64)
	for role, used := range cpuByRole(c, leader) {
		cores[role] = (used - before[role]).Seconds() / time.Since(began).Seconds()
	}
	return cores, nil
}

// A point is one round: entries per task, and the cost of a task.
type point struct{ x, y float64 }

// fit returns the line a + b·x that is nearest to the points relative to their size,
// so that points of expensive tasks do not dominate.
func fit(points []point) (a, b float64) {
	var n, sx, sy, sxx, sxy float64
	for _, p := range points {
		w := 1 / max(p.y*p.y, 1e-6)
		n, sx, sy, sxx, sxy = n+w, sx+w*p.x, sy+w*p.y, sxx+w*p.x*p.x, sxy+w*p.x*p.y
	}
	spread := n*sxx - sx*sx
	if spread <= 0 {
		return sy / n, 0
	}
	b = (n*sxy - sx*sy) / spread
	return (sy - b*sx) / n, b
}
