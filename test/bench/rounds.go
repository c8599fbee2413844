package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
)

// report is the part of the output of dtaskctl bench that is used here.
type report struct {
	Tasks          float64 `json:"tasks"`
	Jobs           float64 `json:"jobs"`
	TotalSeconds   float64 `json:"end_to_end_seconds"`
	TasksPerSecond float64 `json:"tasks_per_second"`
	JobsPerSecond  float64 `json:"jobs_per_second"`
	TasksFailed    int     `json:"tasks_failed"`
	Retries        int     `json:"retries"`
	Entries        float64 `json:"entries"`
	PerEntry       float64 `json:"operations_per_entry"`
	LogBytes       float64 `json:"log_bytes"`
	Syncs          float64 `json:"syncs"`
	LeaderChanges  float64 `json:"leader_changes"`
}

// A round is one run of dtaskctl bench, with the CPU time that each role used
// meanwhile.
type round struct {
	report

	cpu map[string]time.Duration // leader, followers, workers, client; empty if unknown
}

// Roles of processes.
const (
	roleLeader    = "leader"
	roleFollowers = "followers"
	roleWorkers   = "workers"
	roleClient    = "client"
)

// measure runs dtaskctl bench with these arguments once per round, after a small
// warm-up run.
func (b *bench) measure(ctx context.Context, c *cluster.Cluster, tasks int, args ...string) ([]round, error) {
	if _, err := oneRound(ctx, c, max(1, tasks/10), args); err != nil {
		return nil, err
	}
	var all []round
	for range b.rounds {
		r, err := oneRound(ctx, c, tasks, args)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func oneRound(ctx context.Context, c *cluster.Cluster, tasks int, args []string) (round, error) {
	var answer cluster.Answer
	used, err := cpuDuring(ctx, c, func() error {
		answer = c.Run(ctx, append([]string{"bench", "-o", "json", "--sample", "0", "--tasks", strconv.Itoa(tasks)}, args...)...)
		return answer.Err()
	})
	if err != nil {
		return round{}, err
	}
	r := round{cpu: used}
	if err := answer.Into(&r.report); err != nil {
		return round{}, err
	}
	if r.TasksFailed > 0 || r.LeaderChanges > 0 {
		return round{}, fmt.Errorf("invalid run: %s", answer)
	}
	if len(used) > 0 {
		r.cpu[roleClient] = answer.CPU
	}
	return r, nil
}

// ownRound is a round whose tasks this process submits: do returns after all of them have completed.
func ownRound(ctx context.Context, c *cluster.Cluster, cl *client.Client, tasks int, do func() error) (r round, err error) {
	before, err := cl.Stats(ctx)
	if err != nil {
		return r, fmt.Errorf("reading counters: %w", err)
	}
	began := time.Now()
	if r.cpu, err = cpuDuring(ctx, c, do); err != nil {
		return r, err
	}
	r.TotalSeconds = time.Since(began).Seconds()
	after, err := cl.Stats(ctx)
	if err != nil {
		return r, fmt.Errorf("reading counters: %w", err)
	}
	if r.LogBytes, err = proposedBytes(before, after); err != nil {
		return r, err
	}
	r.Tasks = float64(tasks)
	r.TasksPerSecond = r.Tasks / r.TotalSeconds
	return r, nil
}

// proposedBytes returns how many bytes the leader proposed between two readings of the counters of
// the same replicas. The round is invalid if the leader has changed meanwhile.
func proposedBytes(before, after []client.ReplicaStats) (float64, error) {
	total := uint64(0)
	for i, now := range after {
		if len(before) != len(after) || before[i].Address != now.Address {
			return 0, fmt.Errorf("reading counters: %d replicas answered before and %d after, not the same ones", len(before), len(after))
		}
		was := before[i].Stats
		if was.GetLeaderChanges() != now.Stats.GetLeaderChanges() {
			return 0, errors.New("invalid run: the leader has changed")
		}
		total += now.Stats.GetBytes() - was.GetBytes()
	}
	return float64(total), nil
}

// cpuDuring returns the CPU time that each role of a cluster used while do ran; empty if unknown.
func cpuDuring(ctx context.Context, c *cluster.Cluster, do func() error) (map[string]time.Duration, error) {
	leader, err := c.AwaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	before := cpuByRole(c, leader)
	if err := do(); err != nil {
		return nil, err
	}
	used := make(map[string]time.Duration)
	for role, at := range cpuByRole(c, leader) {
		used[role] = at - before[role]
	}
	return used, nil
}

// cpuByRole returns the CPU time of a cluster's processes so far; empty if unknown.
func cpuByRole(c *cluster.Cluster, leader *cluster.Coordinator) map[string]time.Duration {
	total := make(map[string]time.Duration)
	add := func(role string, p *cluster.Process) bool {
		used, err := cpuOf(p.Pid())
		total[role] += used
		return err == nil
	}
	for _, n := range c.Coordinators() {
		role := roleFollowers
		if n == leader {
			role = roleLeader
		}
		if !add(role, n.Process) {
			return nil
		}
	}
	for _, w := range c.Workers() {
		if !add(roleWorkers, w.Process) {
			return nil
		}
	}
	return total
}

// values returns one figure of each round.
func values[T any](all []T, of func(T) float64) []float64 {
	list := make([]float64, 0, len(all))
	for _, r := range all {
		list = append(list, of(r))
	}
	return list
}

func rates(all []round) []float64 {
	return values(all, func(r round) float64 { return r.TasksPerSecond })
}

// costs adds the CPU time, log bytes and syncs per task.
func (b *bench) costs(what string, all []round) {
	if len(all) == 0 {
		return
	}
	for _, role := range []string{roleLeader, roleFollowers, roleWorkers, roleClient} {
		if !slices.ContainsFunc(all, func(r round) bool { return r.cpu[role] > 0 }) {
			continue
		}
		b.table.add("  "+what+": CPU of "+role, "µs/task", "user and system time, sum", values(all, func(r round) float64 {
			return float64(r.cpu[role].Microseconds()) / r.Tasks
		})...)
	}
	b.table.add("  "+what+": operations per entry", "", "", values(all, func(r round) float64 { return r.PerEntry })...)
	b.table.add("  "+what+": log", "B/task", "one replica", values(all, func(r round) float64 { return r.LogBytes / r.Tasks })...)
	b.table.add("  "+what+": synced writes", "per 1,000 tasks", "all replicas", values(all, func(r round) float64 { return 1000 * r.Syncs / r.Tasks })...)
}
