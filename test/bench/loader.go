package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

// A loaded is the part of the load tool's output that is used here.
type loaded struct {
	OpenSeconds    float64           `json:"sessions_open_after_s"`
	Lost           int64             `json:"Lost"`
	BegunMin       float64           `json:"started_by_a_worker_min"`
	BegunMax       float64           `json:"started_by_a_worker_max"`
	TasksPerSecond float64           `json:"tasks_per_second"`
	WaitMS         map[string]string `json:"ready_to_started_ms"`
	Idle, Work     []coordinatorCost
}

// waits returns the waiting times of tasks in ms: the median and the 99th
// percentile.
func (l loaded) waits() (p50, p99 float64, err error) {
	p50, err = strconv.ParseFloat(l.WaitMS["p50"], 64)
	if err == nil {
		p99, err = strconv.ParseFloat(l.WaitMS["p99"], 64)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("reading latencies: %w", err)
	}
	return p50, p99, nil
}

// A coordinatorCost is the resource use of one coordinator during a measurement.
type coordinatorCost struct {
	Leader   bool    `json:"leader"`
	Cores    float64 `json:"cores"`
	PerTask  float64 `json:"cpu_us_per_task"`
	Resident float64 `json:"resident_mb"`
}

// A fleet is a set of workers simulated by the load tool.
type fleet struct {
	workers, slots int
	tasks, rate    int // rate 0 = as fast as they complete
	perJob         int
	direct         bool          // each worker has a connection and a stream of its own
	idle           time.Duration // afterwards
	heartbeat      time.Duration // between two of a worker; 0 = 1 s
}

func (f fleet) String() string {
	connections := "16 connections and streams"
	if f.direct {
		connections = "connections of their own"
	}
	often := "one heartbeat per second"
	if f.heartbeat != 0 {
		often = "a heartbeat every " + f.heartbeat.String()
	}
	return fmt.Sprintf("%d simulated workers x %d slots on %s, %s", f.workers, f.slots, connections, often)
}

// load runs a fleet against a cluster.
func (b *bench) load(ctx context.Context, c *cluster.Cluster, f fleet) (loaded, error) {
	var hosts []string
	for _, n := range c.Coordinators() {
		hosts = append(hosts, n.HTTP)
	}
	if f.perJob == 0 {
		f.perJob = 10_000
	}
	path, err := b.tools.need(ctx, "loader")
	if err != nil {
		return loaded{}, err
	}
	var l loaded
	args := []string{
		"--addr", strings.Join(c.Addrs, ","), "--http", strings.Join(hosts, ","),
		"--workers", strconv.Itoa(f.workers), "--slots", strconv.Itoa(f.slots),
		"--tasks", strconv.Itoa(f.tasks), "--rate", strconv.Itoa(f.rate), "--tasks-per-job", strconv.Itoa(f.perJob),
		"--for", f.idle.String(),
	}
	if f.direct {
		args = append(args, "--streams", "own", "--connections", strconv.Itoa(f.workers))
	}
	if c.Secured() {
		files := c.Secrets()
		args = append(args, "--ca-file", files.CA, "--token-file", files.Token, "--join-file", files.Join)
	}
	err = into(ctx, &l, path, args...)
	return l, err
}

// leaderOf returns the cost of the leader, or of the first coordinator if none
// leads.
func leaderOf(costs []coordinatorCost) (leader coordinatorCost) {
	for i, c := range costs {
		if i == 0 || c.Leader {
			leader = c
		}
	}
	return leader
}

func (c coordinatorCost) perTask() float64  { return c.PerTask }
func (c coordinatorCost) cores() float64    { return c.Cores }
func (c coordinatorCost) resident() float64 { return c.Resident }

// ofAll adds up a figure of all coordinators.
func ofAll(costs []coordinatorCost, figure func(coordinatorCost) float64) (sum float64) {
	for _, c := range costs {
		sum += figure(c)
	}
	return sum
}

// fleets returns fleets of many workers with few slots, up to the number of -idle.
func (b *bench) fleets() []fleet {
	return []fleet{{workers: min(1000, b.idle), slots: 8, tasks: b.tasks}, {workers: b.idle, slots: 4, tasks: b.tasks}}
}

// workers measures no-op tasks by the number of workers.
func workers(ctx context.Context, b *bench) error {
	few := []fleet{{workers: 8, slots: 128, tasks: b.tasks}, {workers: 8, slots: 2048, tasks: b.tasks}}
	for _, f := range append(few, b.fleets()...) {
		var rate, opened, uneven, leader, followers []float64
		for range b.rounds {
			err := with(ctx, cluster.Config{}, func(c *cluster.Cluster) error {
				l, err := b.load(ctx, c, f)
				rate = append(rate, l.TasksPerSecond)
				opened = append(opened, l.OpenSeconds)
				uneven = append(uneven, (l.BegunMax-l.BegunMin)*float64(f.workers)/float64(f.tasks))
				leader = append(leader, leaderOf(l.Work).PerTask)
				followers = append(followers, ofAll(l.Work, coordinatorCost.perTask)-leaderOf(l.Work).PerTask)
				return err
			})
			if err != nil {
				return err
			}
		}
		what := fmt.Sprintf("%d workers x %d slots", f.workers, f.slots)
		b.table.compare(what, "tasks/s", fmt.Sprintf("%d tasks of 32 B, 3 coordinators, %s", f.tasks, f), applyYardstick, rate...)
		b.table.add("  "+what+": CPU of leader", "µs/task", "", leader...)
		b.table.add("  "+what+": CPU of followers", "µs/task", "sum", followers...)
		b.table.add("  "+what+": all sessions open after", "s", "", opened...)
		b.table.add("  "+what+": spread of tasks per worker (max − min)", "of the mean", "", uneven...)
	}
	return nil
}

// idle measures the cost of idle workers.
func idle(ctx context.Context, b *bench) error {
	f := fleet{workers: b.idle, slots: 4, idle: 2 * b.during}
	var opened, leader, followers, resident, behind []float64
	for range max(1, b.rounds/2) {
		err := with(ctx, cluster.Config{}, func(c *cluster.Cluster) error {
			l, err := b.load(ctx, c, f)
			if err != nil {
				return err
			}
			first := leaderOf(l.Idle)
			others := max(1, float64(len(l.Idle)-1))
			opened = append(opened, l.OpenSeconds)
			leader, resident = append(leader, first.Cores), append(resident, first.Resident)
			followers = append(followers, (ofAll(l.Idle, coordinatorCost.cores)-first.Cores)/others)
			behind = append(behind, (ofAll(l.Idle, coordinatorCost.resident)-first.Resident)/others)
			return nil
		})
		if err != nil {
			return err
		}
	}
	b.table.add("idle workers: CPU of the leader", "cores", f.String(), leader...)
	b.table.add("idle workers: CPU of a follower", "cores", "", followers...)
	b.table.add("idle workers: resident memory of the leader", "MB", "", resident...)
	b.table.add("idle workers: resident memory of a follower", "MB", "", behind...)
	b.table.add("idle workers: all sessions open after", "s", "", opened...)
	return nil
}
