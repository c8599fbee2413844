package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/dtask/dtask/test/cluster"
)

// report is what dtaskctl bench prints.
type report struct {
	TasksPerSecond float64 `json:"tasks_per_second"`
	TasksFailed    int     `json:"tasks_failed"`
	Retries        int     `json:"retries"`
	Entries        float64 `json:"entries"`
	Operations     float64 `json:"operations"`
	PerEntry       float64 `json:"operations_per_entry"`
	LogBytes       float64 `json:"log_bytes"`
	Syncs          float64 `json:"syncs"`
	LeaderChanges  float64 `json:"leader_changes"`
}

// throughput runs dtaskctl bench some times against one cluster.
func throughput(ctx context.Context, o options, t *table) error {
	var all []report
	err := with(ctx, cluster.Config{Workers: o.workers, Slots: o.slots}, func(c *cluster.Cluster) error {
		for range o.rounds {
			answer := c.Run(ctx, "bench", "--tasks", strconv.Itoa(o.tasks), "-o", "json")
			if err := answer.Err(); err != nil {
				return err
			}
			var r report
			if err := answer.Into(&r); err != nil {
				return err
			}
			if r.TasksFailed > 0 || r.LeaderChanges > 0 {
				return fmt.Errorf("the run is worth nothing: %s", answer)
			}
			all = append(all, r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	setting := fmt.Sprintf("%d no-op tasks, 32 B payload, 3 coordinators, %d workers x %d slots, sync on", o.tasks, o.workers, o.slots)
	values := func(of func(report) float64) []float64 {
		var list []float64
		for _, r := range all {
			list = append(list, of(r))
		}
		return list
	}
	tasks := float64(o.tasks)
	t.compare("tasks end to end", "tasks/s", setting, storeYardstick, values(func(r report) float64 { return r.TasksPerSecond })...)
	t.add("  log entries", "entries", "", values(func(r report) float64 { return r.Entries })...)
	t.add("  operations per entry", "", "", values(func(r report) float64 { return r.PerEntry })...)
	t.add("  log bytes per task", "B", "", values(func(r report) float64 { return r.LogBytes / tasks })...)
	t.add("  synced writes", "syncs", "all replicas together", values(func(r report) float64 { return r.Syncs })...)
	t.add("  retries", "", "", values(func(r report) float64 { return float64(r.Retries) })...)
	return nil
}
