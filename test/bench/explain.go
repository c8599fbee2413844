package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
)

// explainRate and planRate are how often a task is explained and a job planned, per second.
const explainRate, planRate = 20, 1

// explains measures what answers about waiting tasks and plans cost others: the start latency
// under load alone, while tasks are explained 20 times per second, and while a job is planned
// each second by a coordinator that does not lead, as clients have it. All that share the processors
// of this machine: at the load of other sections, which takes most of a small one, and at a fifth of
// it. Then plans again, with the coordinator that makes them on a processor of its own, as on a
// machine of its own.
func explains(ctx context.Context, b *bench) error {
	return with(ctx, cluster.Config{}, func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		defer func() { _ = cl.Close() }() // nothing is written
		explain, err := b.explainers(ctx, cl)
		if err != nil {
			return err
		}
		leader, err := c.AwaitLeader(ctx)
		if err != nil {
			return err //nolint:wrapcheck // says what it waited for
		}
		follower := c.Followers(leader)[0]
		conn, err := follower.Dial()
		if err != nil {
			return err //nolint:wrapcheck // says where
		}
		defer func() { _ = conn.Close() }() // nothing is written
		plan, err := b.planner(conn)
		if err != nil {
			return err
		}
		for _, rate := range []int{b.steadyRate(), b.steadyRate() / 5} {
			s := &besides{load: fmt.Sprintf("at %d tasks/s: ", rate), rate: rate, explained: asksInTurns(explainRate, explain...), planned: asksInTurns(planRate, plan)}
			if err := s.measure(ctx, b, c); err != nil {
				return err
			}
		}
		rate := b.steadyRate() / 5
		s := &besides{load: fmt.Sprintf("at %d tasks/s, plans on a processor of their own: ", rate), rate: rate, planned: asksInTurns(planRate, plan)}
		return separated(c, follower, func() error { return s.measure(ctx, b, c) })
	})
}

// explainers returns functions that explain tasks. Half of the answers are the cheapest ones, of a
// task that no worker fits and that has nothing before it. The other half are of a task behind a
// backlog.
func (b *bench) explainers(ctx context.Context, cl *client.Client) ([]func(context.Context) error, error) {
	alone, err := b.explained(ctx, cl, 1, func(p *dtaskv1.TaskPolicy) { p.Require = map[string]string{"zone": "nowhere"} })
	if err != nil {
		return nil, err
	}
	// One task of the backlog starts every 10 s, so that it lasts and takes nothing from the load.
	if _, err = cl.SetLimit(ctx, backlogLimit, &dtaskv1.LimitSettings{Rate: 1, PeriodMs: 10_000}, 0); err != nil {
		return nil, err //nolint:wrapcheck // says what it did
	}
	behind, err := b.explained(ctx, cl, b.backlog(), func(p *dtaskv1.TaskPolicy) { p.Uses = []string{backlogLimit} })
	if err != nil {
		return nil, err
	}
	return []func(context.Context) error{alone, behind}, nil
}

// separated runs f while a coordinator has the last processor of this machine for itself, and all others,
// with this process, share the rest. Where that is not possible, f does not run.
func separated(c *cluster.Cluster, n *cluster.Coordinator, f func() error) error {
	cpus := runtime.NumCPU()
	if cpus < 2 || !canPin {
		return nil
	}
	others := []int{os.Getpid()}
	for _, x := range c.Followers(n) {
		others = append(others, x.Pid())
	}
	defer func() {
		for _, pid := range append(others, n.Pid()) {
			_ = pin(pid, 0, cpus) // f has returned its error
		}
	}()
	failed := pin(n.Pid(), cpus-1, cpus)
	for _, pid := range others {
		failed = errors.Join(failed, pin(pid, 0, cpus-1))
	}
	if failed != nil {
		return failed
	}
	return f()
}

// backlogLimit is the limit of the tasks that wait in front of one that is explained.
const backlogLimit = "bench-backlog"

// backlog is how many tasks wait, of which the last one is explained.
func (b *bench) backlog() int { return b.million / 100 }

// explained submits a job whose tasks wait, and returns a function that explains its last task.
func (b *bench) explained(ctx context.Context, cl *client.Client, tasks int, waits func(*dtaskv1.TaskPolicy)) (func(context.Context) error, error) {
	job, err := pending("explained", tasks, nil)
	if err != nil {
		return nil, err
	}
	waits(job.GetHeader().GetPolicies()[0])
	submitted, err := cl.Submit(ctx, job, client.SubmitOptions{})
	if err != nil {
		return nil, fmt.Errorf("submitting the job that is explained: %w", err)
	}
	last := job.GetTasks()[tasks-1].GetId()
	return func(ctx context.Context) error {
		got, err := cl.Explain(ctx, submitted.ID, last)
		if err == nil && got.GetState() != dtaskv1.TaskState_TASK_STATE_PENDING {
			err = fmt.Errorf("explained task: got state %v, want pending", got.GetState())
		}
		return err //nolint:wrapcheck // says what it did
	}, nil
}

// besides is one comparison of the start latency with nothing else, with answers and with plans.
type besides struct {
	load      string // for the names of its rows
	rate      int    // tasks per second
	explained *asking
	planned   *asking
}

// measure does them in turns, so that other load of the machine meets all.
func (s *besides) measure(ctx context.Context, b *bench, c *cluster.Cluster) error {
	f := fleet{workers: 1000, slots: 16, rate: s.rate, perJob: max(1, s.rate/100), tasks: int(float64(s.rate) * b.during.Seconds())}
	var p50, p99 [3][]float64
	for range b.rounds {
		for i, a := range []*asking{nil, s.explained, s.planned} {
			if i > 0 && a == nil {
				continue
			}
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
	setting := fmt.Sprintf("%d tasks/s in jobs of %d for %s; %s", s.rate, f.perJob, b.during, f)
	alone := "start latency " + s.load
	for _, q := range []struct {
		name, target string
		values       [3][]float64
	}{{"p50", "", p50}, {"p99", "target: below 1.10 x", p99}} {
		b.table.add(alone+q.name, "ms", setting, q.values[0]...)
		b.table.compare("  with 20 answers of explain per second "+s.load+q.name, "ms", q.target, alone+q.name, q.values[1]...)
		b.table.compare("  with a plan each second "+s.load+q.name, "ms", q.target, alone+q.name, q.values[2]...)
	}
	s.answers(b)
	return nil
}

// answers adds how long the answers and plans took.
func (s *besides) answers(b *bench) {
	if s.explained != nil {
		for i, setting := range []string{
			"one task, which no worker fits; 1,000 workers",
			fmt.Sprintf("behind %d tasks that use the same limit, in turns with the task above", b.backlog()-1),
		} {
			name := "answer of explain " + []string{"", "behind a backlog "}[i] + s.load
			b.table.add(name+"p50", "ms", setting, s.explained.quantile(i, 500))
			b.table.add(name+"p99", "ms", "", s.explained.quantile(i, 990))
		}
	}
	b.table.add("plan "+s.load+"p50", "ms", fmt.Sprintf("%d tasks, two dependencies each", b.million/10), s.planned.quantile(0, 500))
}

// An asking repeats calls in turns, and has how long each took.
type asking struct {
	every time.Duration // from the start of one to that of the next
	asks  []func(context.Context) error
	took  [][]time.Duration // of each
}

// asksInTurns makes so many calls per second together.
func asksInTurns(rate int, asks ...func(context.Context) error) *asking {
	return &asking{every: time.Second / time.Duration(rate), asks: asks, took: make([][]time.Duration, len(asks))}
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
		for i := 0; more.Err() == nil; i = (i + 1) % len(a.asks) {
			began := time.Now()
			if err := a.asks[i](ctx); err != nil {
				ended <- err
				return
			}
			a.took[i] = append(a.took[i], time.Since(began))
			_ = cluster.Pause(more, time.Until(began.Add(a.every))) // it ends early with more
		}
		ended <- nil
	}()
	err := f()
	stop()
	return errors.Join(err, <-ended)
}

// quantile returns how long the calls of one kind took, in ms.
func (a *asking) quantile(kind, permille int) float64 {
	took := a.took[kind]
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[(len(took)-1)*permille/1000].Seconds() * 1000
}
