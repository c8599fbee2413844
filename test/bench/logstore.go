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

// Names of the log stores.
const (
	boltStore = "bolt"
	walStore  = "wal"
)

// on returns the configuration of a cluster on a log store.
func on(store string, cfg cluster.Config) cluster.Config {
	cfg.CoordinatorFlags = []string{"--log-store", store}
	return cfg
}

// logstore compares the log stores: a cluster on each, with alternating rounds,
// because disk speed varies over time.
func logstore(ctx context.Context, b *bench) error {
	if err := b.payloads(ctx); err != nil {
		return err
	}
	if err := b.onBoth(ctx, b.usualCluster(), pair.throughput); err != nil {
		return err
	}
	return b.onBoth(ctx, cluster.Config{}, pair.latency) // the loader has workers of its own
}

// onBoth starts a cluster on each store.
func (b *bench) onBoth(ctx context.Context, cfg cluster.Config, measure func(pair, context.Context) error) error {
	return withPair(ctx, on(boltStore, cfg), on(walStore, cfg), func(p clusterPair) error {
		return measure(pair{bench: b, bolt: p[0], wal: p[1]}, ctx)
	})
}

// A pair is a cluster on each store of the log.
type pair struct {
	*bench

	bolt, wal *cluster.Cluster
}

// payloads measures tasks with large payloads. Each round has a cluster of its own, alone
// on the machine: the disk is still busy with what the one before has written.
func (b *bench) payloads(ctx context.Context) error {
	for _, f := range []struct {
		what        string
		size, tasks int
	}{
		{"tasks of 4 KiB", 4 << 10, b.tasks / 20},
		{"tasks of 16 KiB", 16 << 10, b.tasks / 100},
	} {
		args := []string{"--payload", strconv.Itoa(f.size)}
		err := b.alternate(ctx, rateAndCPU(f.what, f.tasks, f.size, b.usual()), func(ctx context.Context, store string) (got []float64, err error) {
			err = with(ctx, on(store, b.usualCluster()), func(c *cluster.Cluster) error {
				if _, err := oneRound(ctx, c, max(1, f.tasks/10), args); err != nil {
					return err
				}
				r, err := oneRound(ctx, c, f.tasks, args)
				got = r.rateAndCPU()
				return err
			})
			return got, err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", f.what, err)
		}
	}
	return nil
}

// rateAndCPU are the figures of a load on both stores.
func rateAndCPU(what string, tasks, size int, usual string) []figure {
	return []figure{
		{what, "tasks/s", fmt.Sprintf("%d tasks of %d B, %s", tasks, size, usual)},
		{what + ": CPU", "µs/task", "all processes"},
	}
}

func (r round) rateAndCPU() []float64 {
	var used time.Duration
	for _, one := range r.cpu {
		used += one
	}
	return []float64{r.TasksPerSecond, float64(used.Microseconds()) / r.Tasks}
}

// throughput measures small and large jobs.
func (p pair) throughput(ctx context.Context) error {
	for _, f := range []struct {
		what  string
		tasks int
		args  []string
	}{
		{"jobs of 10 tasks, one call each, 64 callers", p.tasks / 5, []string{"--tasks-per-job", "10", "--clients", "64"}},
		{"jobs of 10 tasks, one call each, 8 callers", p.tasks / 10, []string{"--tasks-per-job", "10", "--clients", "8"}},
		{"jobs of 10 tasks, 100 in a call", p.tasks / 5, []string{"--tasks-per-job", "10", "--batch", "100"}},
		{"jobs of 10,000 tasks", p.tasks, nil},
	} {
		err := p.inTurn(ctx, rateAndCPU(f.what, f.tasks, pendingPayload, p.usual()), func(ctx context.Context, c *cluster.Cluster) ([]float64, error) {
			r, err := oneRound(ctx, c, f.tasks, f.args)
			return r.rateAndCPU(), err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", f.what, err)
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

// inTurn is alternate with the two clusters.
func (p pair) inTurn(ctx context.Context, figures []figure, run func(context.Context, *cluster.Cluster) ([]float64, error)) error {
	return p.alternate(ctx, figures, func(ctx context.Context, store string) ([]float64, error) {
		if store == boltStore {
			return run(ctx, p.bolt)
		}
		return run(ctx, p.wal)
	})
}

// alternate runs rounds alternately on both stores, without counting the first, and adds
// for each figure its values and the ratio of consecutive pairs.
func (b *bench) alternate(ctx context.Context, figures []figure, run func(ctx context.Context, store string) ([]float64, error)) error {
	onBolt, onWAL := make([][]float64, len(figures)), make([][]float64, len(figures))
	for n := range b.rounds + 1 {
		first, second := boltStore, walStore
		if n%2 == 1 {
			first, second = second, first
		}
		for _, store := range []string{first, second} {
			got, err := run(ctx, store)
			if err != nil {
				return err
			}
			into := onBolt
			if store == walStore {
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
		ratios := make([]float64, b.rounds)
		for n := range ratios {
			ratios[n] = onWAL[i][n] / onBolt[i][n]
		}
		b.table.add(f.what+", bolt", f.unit, f.setting, onBolt[i]...)
		b.table.add(f.what+", wal", f.unit, "", onWAL[i]...)
		b.table.add("  wal ÷ bolt", "", "of consecutive pairs of rounds", ratios...)
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
