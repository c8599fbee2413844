package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
)

// withSecured starts two clusters that differ in nothing but TLS, tokens and keys of workers.
func withSecured(ctx context.Context, cfg cluster.Config, f func(clusterPair) error) error {
	secure := cfg
	secure.TLS = true
	return withPair(ctx, cfg, secure, f)
}

// securedNames are those of both clusters.
var securedNames = pairNames{"plaintext", "TLS"}

// secured measures what TLS, tokens and keys of workers cost.
func secured(ctx context.Context, b *bench) error {
	for _, measure := range []func(context.Context) error{b.securedWork, b.securedLatency, b.securedMemory} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// securedWork measures throughput, and the CPU time of all processes.
func (b *bench) securedWork(ctx context.Context) error {
	return withSecured(ctx, b.usualCluster(), func(p clusterPair) error {
		for _, f := range []struct {
			what  string
			tasks int
			args  []string
		}{
			{"jobs of 10,000 tasks", b.tasks, nil},
			{"jobs of 10 tasks, 256 callers", b.tasks / 5, []string{"--tasks-per-job", "10", "--clients", "256"}},
		} {
			all, err := b.roundsOf(ctx, p, f.tasks, f.args)
			if err != nil {
				return err
			}
			plain, secure := all[0], all[1]
			setting := fmt.Sprintf("%d tasks of 32 B, %s", f.tasks, b.usual())
			securedNames.rows(b, f.what, "tasks/s", setting, "target: at least 0.92 x", rates(plain), rates(secure))
			if len(plain[0].cpu) > 0 {
				securedNames.rows(b, "  "+f.what+": CPU", "µs/task", "all processes", "target: at most 1.10 x", values(plain, round.perTask), values(secure, round.perTask))
			}
		}
		return nil
	})
}

// perTask is the CPU time of all processes for each task, in µs.
func (r round) perTask() float64 {
	total := time.Duration(0)
	for _, used := range r.cpu {
		total += used
	}
	return float64(total.Microseconds()) / r.Tasks
}

// securedLatency measures the start latency of single tasks on idle clusters.
func (b *bench) securedLatency(ctx context.Context) error {
	return withSecured(ctx, cluster.Config{}, func(p clusterPair) error {
		const rate = 50
		f := fleet{workers: fewWorkers, slots: manySlots, direct: true, rate: rate, perJob: 1, tasks: int(rate * b.during.Seconds())}
		var p50, p99 [2][]float64
		for range b.rounds {
			for i, c := range p {
				l, err := b.load(ctx, c, f)
				if err != nil {
					return err
				}
				half, most, err := l.waits()
				if err != nil {
					return err
				}
				p50[i], p99[i] = append(p50[i], half), append(p99[i], most)
			}
		}
		setting := fmt.Sprintf("%d tasks/s in jobs of 1 for %s, including the call; %s", rate, b.during, f)
		securedNames.rows(b, "start latency, idle, direct workers: p50", "ms", setting, "target: at most 0.3 ms more", p50[0], p50[1])
		securedNames.rows(b, "start latency, idle, direct workers: p99", "ms", "", "", p99[0], p99[1])
		return nil
	})
}

// maxDirect bounds the workers whose memory is measured: in a cluster with TLS, they join
// one by one.
const maxDirect = 1000

// securedMemory measures the memory of the leader for each worker that has a connection of
// its own.
func (b *bench) securedMemory(ctx context.Context) error {
	f := fleet{workers: min(maxDirect, b.idle), slots: 4, direct: true}
	var sizes [2][]float64
	for range max(1, b.rounds/2) {
		err := withSecured(ctx, cluster.Config{}, func(p clusterPair) error {
			for i, c := range p {
				size, err := b.memoryOfWorkers(ctx, c, f)
				if err != nil {
					return err
				}
				sizes[i] = append(sizes[i], size)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	securedNames.rows(b, "memory of the leader per direct worker", "KB", "live heap and stacks; "+f.String(), "target: at most 52 KB", sizes[0], sizes[1])
	return nil
}

// memoryOfWorkers returns how much the memory of the leader grows by each worker of a fleet,
// in KB.
func (b *bench) memoryOfWorkers(ctx context.Context, c *cluster.Cluster, f fleet) (size float64, err error) {
	cl, err := c.Client()
	if err != nil {
		return 0, err
	}
	defer func() { _ = cl.Close() }()
	before, leader, err := leaderMemory(ctx, c, cl)
	if err != nil {
		return 0, err
	}
	f.idle = joinLimit // ended earlier
	holding, end := context.WithCancel(ctx)
	done := make(chan error, 1) // size 1: one result
	go func() {
		_, err := b.load(holding, c, f)
		if holding.Err() != nil && ctx.Err() == nil {
			err = nil // it was ended
		}
		done <- err
	}()
	defer func() {
		end()
		err = errors.Join(err, <-done)
	}()
	err = cluster.Until(ctx, "all workers are up", joinLimit, func(ctx context.Context) error {
		up := 0
		for w, err := range cl.Workers(ctx, client.WorkerFilter{}) {
			if err != nil {
				return fmt.Errorf("listing workers: %w", err)
			}
			if w.GetState() == "up" {
				up++
			}
		}
		if up < f.workers {
			return fmt.Errorf("%d of %d: %w", up, f.workers, cluster.ErrNotYet)
		}
		return cluster.Pause(ctx, time.Second)
	})
	if err != nil {
		return 0, err
	}
	after, now, err := leaderMemory(ctx, c, cl)
	if err == nil && now != leader {
		err = fmt.Errorf("the leader changed from %s to %s: measure again on a calmer machine", leader, now)
	}
	return (after - before) / float64(f.workers), err
}

// joinLimit is a guard against hanging.
const joinLimit = 2 * time.Minute

// leaderMemory returns the live heap and the stacks of the leader in KB, and its name.
func leaderMemory(ctx context.Context, c *cluster.Cluster, cl *client.Client) (size float64, name string, err error) {
	if err := cluster.Pause(ctx, settling); err != nil {
		return 0, "", err
	}
	leader, err := c.AwaitLeader(ctx)
	if err != nil {
		return 0, "", err
	}
	for range 2 { // the first one collects, which also shrinks stacks; the second one measures
		replicas, err := cl.Debug(ctx, 0)
		if err != nil {
			return 0, "", fmt.Errorf("reading metrics: %w", err)
		}
		for _, r := range replicas {
			for _, f := range r.Files {
				if r.Address == leader.Addr && f.Name == "metrics.txt" {
					if size, err = metric(f.Data, "go_memstats_stack_inuse_bytes"); err != nil {
						return 0, "", fmt.Errorf("the leader %s: %w", leader.Name, err)
					}
				}
			}
		}
	}
	stats, err := cl.Stats(ctx) // without what was allocated since the collection, such as the files
	if err != nil {
		return 0, "", fmt.Errorf("reading counters: %w", err)
	}
	for _, r := range stats {
		if r.Address == leader.Addr {
			return (size + float64(r.Stats.GetHeapBytes())) / 1000, leader.Name, nil
		}
	}
	return 0, "", fmt.Errorf("the leader %s sent no counters", leader.Name)
}

// metric returns the value of a metric without labels.
func metric(text []byte, name string) (float64, error) {
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64) //nolint:wrapcheck // names the text
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}
