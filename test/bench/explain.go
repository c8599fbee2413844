package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
)

// explainRate and planRate are how often a task is explained and a job planned, per second.
const explainRate, planRate = 20, 1

// explains measures what answers about waiting tasks and plans cost others: the start latency
// under load alone, while a task is explained 20 times per second, and while a job is planned
// each second.
func explains(ctx context.Context, b *bench) error {
	return with(ctx, cluster.Config{}, func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		defer func() { _ = cl.Close() }() // nothing is written
		job, err := pending("explained", 1, map[string]string{"zone": "nowhere"})
		if err != nil {
			return err
		}
		submitted, err := cl.Submit(ctx, job, client.SubmitOptions{})
		if err != nil {
			return fmt.Errorf("submitting the job that is explained: %w", err)
		}
		plan, err := b.planner(cl)
		if err != nil {
			return err
		}
		explained := &asking{every: time.Second / explainRate, ask: func(ctx context.Context) error {
			_, err := cl.Explain(ctx, submitted.ID, job.GetTasks()[0].GetId())
			return err //nolint:wrapcheck // says what it did
		}}
		planned := &asking{every: time.Second / planRate, ask: func(ctx context.Context) error {
			_, err := plan(ctx)
			return err
		}}
		return b.beside(ctx, c, explained, planned)
	})
}

// beside measures the start latency with nothing else, with answers and with plans, in turns,
// so that other load of the machine meets all three.
func (b *bench) beside(ctx context.Context, c *cluster.Cluster, explained, planned *asking) error {
	rate := b.steadyRate()
	f := fleet{workers: 1000, slots: 16, rate: rate, perJob: max(1, rate/100), tasks: int(float64(rate) * b.during.Seconds())}
	var p50, p99 [3][]float64
	for range b.rounds {
		for i, a := range []*asking{nil, explained, planned} {
			var l loaded
			err := a.during(ctx, func() (err error) {
				l, err = b.load(ctx, c, f)
				return err
			})
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
	setting := fmt.Sprintf("%d tasks/s in jobs of %d for %s; %s", rate, f.perJob, b.during, f)
	const alone = "start latency under load: "
	for _, q := range []struct {
		name, target string
		values       [3][]float64
	}{{"p50", "", p50}, {"p99", "target: below 1.10 x", p99}} {
		b.table.add(alone+q.name, "ms", setting, q.values[0]...)
		b.table.compare("  with 20 answers of explain per second: "+q.name, "ms", q.target, alone+q.name, q.values[1]...)
		b.table.compare("  with a plan each second: "+q.name, "ms", q.target, alone+q.name, q.values[2]...)
	}
	b.table.add("answer of explain under load: p50", "ms", "one task, which no worker fits; 1,000 workers", explained.quantile(500))
	b.table.add("answer of explain under load: p99", "ms", "", explained.quantile(990))
	b.table.add("plan under load: p50", "ms", fmt.Sprintf("%d tasks, two dependencies each", b.million/10), planned.quantile(500))
	return nil
}

// An asking repeats a call, and has how long each took.
type asking struct {
	every time.Duration // from the start of one to that of the next; 0: one after another
	ask   func(context.Context) error
	took  []time.Duration
}

// during asks while f runs. The last answer comes after f. A nil asking only runs f.
func (a *asking) during(ctx context.Context, f func() error) error {
	if a == nil {
		return f()
	}
	more, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1) // size 1: the result
	go func() {
		for more.Err() == nil {
			began := time.Now()
			if err := a.ask(ctx); err != nil {
				ended <- err
				return
			}
			a.took = append(a.took, time.Since(began))
			_ = cluster.Pause(more, time.Until(began.Add(a.every))) // it ends early with more
		}
		ended <- nil
	}()
	err := f()
	stop()
	return errors.Join(err, <-ended)
}

// quantile returns how long the calls took, in ms.
func (a *asking) quantile(permille int) float64 {
	if len(a.took) == 0 {
		return 0
	}
	slices.Sort(a.took)
	return a.took[(len(a.took)-1)*permille/1000].Seconds() * 1000
}
