package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

// logstore compares the log stores: a cluster on each, with alternating rounds,
// because disk speed varies over time.
func logstore(ctx context.Context, b *bench) error {
	if err := b.onBoth(ctx, b.usualCluster(), pair.throughput); err != nil {
		return err
	}
	return b.onBoth(ctx, cluster.Config{}, pair.latency) // the loader has workers of its own
}

// onBoth starts a cluster on each store.
func (b *bench) onBoth(ctx context.Context, cfg cluster.Config, measure func(pair, context.Context) error) error {
	on := func(store string) cluster.Config {
		cfg.CoordinatorFlags = []string{"--log-store", store}
		return cfg
	}
	return with(ctx, on("bolt"), func(bolt *cluster.Cluster) error {
		return with(ctx, on("wal"), func(wal *cluster.Cluster) error {
			return measure(pair{bench: b, bolt: bolt, wal: wal}, ctx)
		})
	})
}

// A pair is a cluster on each store of the log.
type pair struct {
	*bench

	bolt, wal *cluster.Cluster
}

// Sizes of large payloads.
const (
	pagePayload  = 4 << 10
	largePayload = 16 << 10
)

// throughput measures small and large jobs, and tasks with large payloads.
func (p pair) throughput(ctx context.Context) error {
	for _, f := range []struct {
		what  string
		tasks int
		size  int // of a payload
		args  []string
	}{
		{"jobs of 10 tasks, one call each, 64 callers", p.tasks / 5, pendingPayload, []string{"--tasks-per-job", "10", "--clients", "64"}},
		{"jobs of 10 tasks, one call each, 8 callers", p.tasks / 10, pendingPayload, []string{"--tasks-per-job", "10", "--clients", "8"}},
		{"jobs of 10 tasks, 100 in a call", p.tasks / 5, pendingPayload, []string{"--tasks-per-job", "10", "--batch", "100"}},
		{"jobs of 10,000 tasks", p.tasks, pendingPayload, nil},
		{"tasks of 4 KiB", p.tasks / 10, pagePayload, []string{"--payload", strconv.Itoa(pagePayload)}},
		{"tasks of 16 KiB", p.tasks / 50, largePayload, []string{"--payload", strconv.Itoa(largePayload)}},
	} {
		setting := fmt.Sprintf("%d tasks of %d B, %s", f.tasks, f.size, p.usual())
		rate, cpu := figure{f.what, "tasks/s", setting}, figure{f.what + ": CPU", "µs/task", "all processes"}
		err := p.inTurn(ctx, []figure{rate, cpu}, func(ctx context.Context, c *cluster.Cluster) ([]float64, error) {
			r, err := oneRound(ctx, c, f.tasks, f.args)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.what, err)
			}
			var used time.Duration
			for _, one := range r.cpu {
				used += one
			}
			return []float64{r.TasksPerSecond, float64(used.Microseconds()) / r.Tasks}, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// latency measures how fast tasks start: with little load, and at 50,000 tasks per
// second.
func (p pair) latency(ctx context.Context) error {
	for _, at := range []struct {
		what         string
		rate, perJob int
	}{
		{"idle", 50, 1},
		{"50,000 tasks/s", halfLoad, halfLoad / 100},
	} {
		f := fleet{workers: fewWorkers, slots: manySlots, rate: at.rate, perJob: at.perJob, tasks: int(float64(at.rate) * p.during.Seconds())}
		setting := fmt.Sprintf("%d tasks/s in jobs of %d for %s, including the call; %s", at.rate, at.perJob, p.during, f)
		figures := []figure{{"start latency, " + at.what + ": p50", "ms", setting}, {"start latency, " + at.what + ": p99", "ms", ""}}
		err := p.inTurn(ctx, figures, func(ctx context.Context, c *cluster.Cluster) ([]float64, error) {
			l, err := p.load(ctx, c, f)
			if err != nil {
				return nil, err
			}
			p50, p99, err := l.waits()
			return []float64{p50, p99}, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// A figure is one result of a round.
type figure struct{ what, unit, setting string }

// inTurn runs rounds alternately on both, without counting the first, and adds for
// each figure its values and the ratio of consecutive pairs.
func (p pair) inTurn(ctx context.Context, figures []figure, run func(context.Context, *cluster.Cluster) ([]float64, error)) error {
	onBolt, onWAL := make([][]float64, len(figures)), make([][]float64, len(figures))
	for n := range p.rounds + 1 {
		first, second := p.bolt, p.wal
		if n%2 == 1 {
			first, second = second, first
		}
		for _, c := range []*cluster.Cluster{first, second} {
			got, err := run(ctx, c)
			if err != nil {
				return err
			}
			into := onBolt
			if c == p.wal {
				into = onWAL
			}
			for i := range figures {
				if n > 0 {
					into[i] = append(into[i], got[i])
				}
			}
		}
	}
	for i, f := range figures {
		if slices.Contains(onBolt[i], 0) {
			continue // not measurable here
		}
		ratios := make([]float64, p.rounds)
		for n := range ratios {
			ratios[n] = onWAL[i][n] / onBolt[i][n]
		}
		p.table.add(f.what+", bolt", f.unit, f.setting, onBolt[i]...)
		p.table.add(f.what+", wal", f.unit, "", onWAL[i]...)
		p.table.add("  wal ÷ bolt", "", "of consecutive pairs of rounds", ratios...)
	}
	return nil
}

// useLogStore makes every cluster of this run use one log store.
func (o *options) useLogStore() error {
	if o.logStore == "" {
		return nil
	}
	o.note = strings.TrimPrefix(o.note+", log in "+o.logStore, ", ")
	if err := os.Setenv(cluster.StoreVariable, o.logStore); err != nil {
		return fmt.Errorf("-log-store: %w", err)
	}
	return nil
}
