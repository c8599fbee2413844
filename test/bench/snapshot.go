package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
)

// restartLimit is a guard against hanging.
const restartLimit = 2 * time.Minute

// snapshots measures latency with a large pending state, with and without snapshots,
// and how long a replica takes to restart with that state.
func snapshots(ctx context.Context, b *bench) error {
	often := 8 << 20 // bytes of log; a snapshot is not taken more often than every 10 s
	if b.quick {
		often = 1 << 20
	}
	for _, s := range []struct {
		what, bytes string
	}{
		{"no snapshots", strconv.Itoa(1 << 40)},
		{"snapshots", strconv.Itoa(often)},
	} {
		err := with(ctx, cluster.Config{CoordinatorFlags: []string{"--snapshot-bytes", s.bytes}}, func(c *cluster.Cluster) error {
			job, err := b.fill(ctx, c)
			if err != nil {
				return err
			}
			rate := b.steadyRate()
			before, err := counted(ctx, c, "dtask_raft_snapshots_total")
			if err != nil {
				return err
			}
			if err := b.latencyAt(ctx, c, fmt.Sprintf("%d tasks/s and %d pending", rate, b.pending), rate, max(1, rate/100), s.what+": start latency"); err != nil {
				return err
			}
			after, err := counted(ctx, c, "dtask_raft_snapshots_total")
			if err != nil {
				return err
			}
			b.table.add("  "+s.what+": snapshots taken", "", "all replicas", after-before)
			if after == before {
				return nil
			}
			return b.restarts(ctx, c, job)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fill submits tasks that no worker may execute.
func (b *bench) fill(ctx context.Context, c *cluster.Cluster) (job string, err error) {
	cl, err := c.Client()
	if err != nil {
		return "", err
	}
	defer func() { _ = cl.Close() }()
	spec, err := pending("waiting", b.pending, map[string]string{"bench": "nobody"})
	if err != nil {
		return "", err
	}
	submitted, err := cl.Submit(ctx, spec, client.SubmitOptions{})
	if err != nil {
		return "", fmt.Errorf("submitting: %w", err)
	}
	return submitted.ID, nil
}

// restarts kills a follower, then all replicas, and measures the time until they are
// ready.
func (b *bench) restarts(ctx context.Context, c *cluster.Cluster, job string) error {
	var one, all []float64
	for range b.rounds {
		leader, err := c.AwaitLeader(ctx)
		if err != nil {
			return err
		}
		follower := c.Followers(leader)[0]
		if err := follower.Kill(); err != nil {
			return err
		}
		began := time.Now()
		if err := follower.Start(ctx); err != nil {
			return err
		}
		if err := c.AwaitCoordinator(ctx, follower); err != nil {
			return err
		}
		one = append(one, time.Since(began).Seconds())
		took, err := restartAll(ctx, c, job)
		if err != nil {
			return err
		}
		all = append(all, took.Seconds())
	}
	b.table.add("restart of a follower: ready after", "s", fmt.Sprintf("%d pending tasks; SIGKILL before", b.pending), one...)
	b.table.add("restart of all replicas: first answer after", "s", "including an election", all...)
	return nil
}

func restartAll(ctx context.Context, c *cluster.Cluster, job string) (time.Duration, error) {
	cl, err := c.Client()
	if err != nil {
		return 0, err
	}
	defer func() { _ = cl.Close() }()
	for _, n := range c.Coordinators() {
		if err := n.Kill(); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	for _, n := range c.Coordinators() {
		if err := n.Start(ctx); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, restartLimit)
	defer cancel()
	if _, err := cl.Job(ctx, job, client.ReadOptions{}); err != nil {
		return 0, fmt.Errorf("reading job: %w", err)
	}
	took := time.Since(began)
	return took, c.AwaitReady(ctx)
}

// counted returns the sum of a metric over all replicas.
func counted(ctx context.Context, c *cluster.Cluster, name string) (total float64, err error) {
	for _, n := range c.Coordinators() {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTP+"/metrics", http.NoBody)
		if err != nil {
			return 0, fmt.Errorf("reading metrics: %w", err)
		}
		text, err := body(request)
		if err != nil {
			return 0, fmt.Errorf("reading metrics of %s: %w", n.Name, err)
		}
		for line := range strings.Lines(text) {
			if rest, found := strings.CutPrefix(line, name+" "); found {
				value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
				if err != nil {
					return 0, fmt.Errorf("reading %s of %s: %w", name, n.Name, err)
				}
				total += value
			}
		}
	}
	return total, nil
}
