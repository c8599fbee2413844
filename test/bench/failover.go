package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/bench/load"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/worker"
)

const (
	// failoverLimit is a guard against hanging.
	failoverLimit = 5 * time.Minute
	// loadFor is the duration of the load around the loss of a leader, in seconds,
	// and mostLoad the maximum number of its tasks.
	loadFor  = 6
	mostLoad = 1_000_000
)

// A loss has the effects of the loss of a leader.
type loss struct {
	longest, back float64 // ms
	missing       float64 // completed tasks that never started
	twice         float64 // tasks that started more than once
}

// failover kills leaders under full load, and measures the time without completions,
// missing tasks and tasks that started twice. The workers run in this process, so
// that starts can be counted: a few real ones, and thousands of simulated ones.
func failover(ctx context.Context, b *bench) error {
	err := b.killLeaders(ctx, "leader killed", fmt.Sprintf("%d workers x %d slots", b.workers, b.slots), b.kills, b.ownWorkers)
	for _, f := range b.fleets() {
		if err != nil {
			return err
		}
		err = b.killLeaders(ctx, fmt.Sprintf("leader of %d workers killed", f.workers), f.String(), max(1, b.kills/2),
			func(ctx context.Context, c *cluster.Cluster, begins *begins) (stop func(), err error) {
				return ownFleet(ctx, c, f, begins)
			})
	}
	return err
}

// killLeaders kills one leader after another of a cluster with workers from start,
// and adds the rows.
func (b *bench) killLeaders(
	ctx context.Context, what, who string, kills int, start func(context.Context, *cluster.Cluster, *begins) (stop func(), err error),
) error {
	var all []loss
	var rate float64
	err := with(ctx, cluster.Config{}, func(c *cluster.Cluster) error {
		cl, err := c.Client()
		if err != nil {
			return err
		}
		defer func() { _ = cl.Close() }()
		begins := new(begins)
		stop, err := start(ctx, c, begins)
		if err != nil {
			return err
		}
		defer stop()
		if rate, err = pace(ctx, cl, begins, b.tasks); err != nil {
			return err
		}
		tasks := min(mostLoad, max(10_000, int(rate)*loadFor))
		for range kills {
			l, err := oneKill(ctx, c, cl, begins, tasks, func() {})
			if err != nil {
				return err
			}
			all = append(all, l)
		}
		return nil
	})
	if err != nil {
		return err
	}
	setting := fmt.Sprintf("%d x SIGKILL of the leader at %.0f tasks/s, %s", kills, rate, who)
	b.table.add(what+": longest time without a completion", "ms", setting, values(all, func(l loss) float64 { return l.longest })...)
	b.table.add(what+": until completions resume", "ms", "", values(all, func(l loss) float64 { return l.back })...)
	b.table.add(what+": tasks missing", "", "", values(all, func(l loss) float64 { return l.missing })...)
	b.table.add(what+": tasks started twice", "", "", values(all, func(l loss) float64 { return l.twice })...)
	return nil
}

// begins counts the starts of each task of the current job.
type begins struct {
	mu    sync.Mutex // guards tasks itself; its elements are counted without
	tasks []atomic.Uint32
}

func (b *begins) reset(tasks int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks = make([]atomic.Uint32, tasks)
}

func (b *begins) list() []atomic.Uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tasks
}

func (b *begins) handle(_ context.Context, t *worker.Task) ([]byte, error) {
	b.note(t.Index)
	return nil, nil
}

func (b *begins) note(task uint32) {
	if tasks := b.list(); int(task) < len(tasks) {
		tasks[task].Add(1)
	}
}

// count returns the number of tasks that never started, and of those that started
// more than once.
func (b *begins) count() (never, twice float64) {
	tasks := b.list()
	for i := range tasks {
		switch tasks[i].Load() {
		case 0:
			never++
		case 1:
		default:
			twice++
		}
	}
	return never, twice
}

// ownWorkers starts workers in this process; stop ends them.
func (b *bench) ownWorkers(ctx context.Context, c *cluster.Cluster, begins *begins) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	stop = func() {
		cancel()
		running.Wait()
	}
	for i := range b.workers {
		name := fmt.Sprintf("own%d", i+1)
		w, err := worker.New(worker.Config{Join: c.Addrs, Name: name, Slots: b.slots, WorkDir: c.Dir + "/" + name, DrainTimeout: -1})
		if err != nil {
			stop()
			return nil, fmt.Errorf("creating worker: %w", err)
		}
		w.Handle("noop", begins.handle)
		running.Go(func() { _ = w.Run(ctx) }) // a failed worker shows in the figures
		if err := c.AwaitWorker(ctx, name, "up"); err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

// ownFleet starts simulated workers in this process; stop ends them.
func ownFleet(ctx context.Context, c *cluster.Cluster, f fleet, begins *begins) (stop func(), err error) {
	_, stop, err = openFleet(ctx, load.Config{
		Addrs: c.Addrs, Workers: f.workers, Slots: f.slots, HeartbeatInterval: time.Second,
		OnStart: func(_ uint64, task uint32) { begins.note(task) },
	})
	return stop, err
}

// openFleet starts simulated workers and waits until all their sessions are open; stop ends
// them.
func openFleet(ctx context.Context, cfg load.Config) (l *load.Load, stop func(), err error) {
	if l, err = load.New(cfg); err != nil {
		return nil, nil, err //nolint:wrapcheck // the error is complete
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	stop = func() {
		cancel()
		running.Wait()
	}
	running.Go(func() { l.Run(ctx) })
	opening, cancelOpening := context.WithTimeout(ctx, failoverLimit)
	defer cancelOpening()
	if err := l.Await(opening, cfg.Workers); err != nil {
		stop()
		return nil, nil, fmt.Errorf("%w; lost because of %v", err, l.Reasons())
	}
	return l, stop, nil
}

// pace measures the throughput in tasks per second without failures.
func pace(ctx context.Context, cl *client.Client, begins *begins, tasks int) (float64, error) {
	begins.reset(0)
	job, err := pending("pace", tasks, nil)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	submitted, err := cl.Submit(ctx, job, client.SubmitOptions{})
	if err != nil {
		return 0, fmt.Errorf("submitting: %w", err)
	}
	if err := completes(ctx, cl, submitted.ID); err != nil {
		return 0, err
	}
	return float64(tasks) / time.Since(began).Seconds(), nil
}

func completes(ctx context.Context, cl *client.Client, id string) error {
	ended, err := cl.Wait(ctx, id)
	if err != nil {
		return fmt.Errorf("waiting for job: %w", err)
	}
	if ended.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED {
		return fmt.Errorf("job is %s: %s", ended.GetState(), ended.GetError())
	}
	return nil
}

// oneKill kills the leader when a quarter of a job has completed, and calls lost then.
func oneKill(ctx context.Context, c *cluster.Cluster, cl *client.Client, begins *begins, tasks int, lost func()) (loss, error) {
	ctx, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	job, err := pending("failover", tasks, nil)
	if err != nil {
		return loss{}, err
	}
	leader, err := c.AwaitLeader(ctx)
	if err != nil {
		return loss{}, err
	}
	begins.reset(tasks)
	submitted, err := cl.Submit(ctx, job, client.SubmitOptions{})
	if err != nil {
		return loss{}, fmt.Errorf("submitting: %w", err)
	}
	observer := c.Observe(ctx, submitted.ID)
	defer observer.Stop()
	if _, err := observer.Await(ctx, tasks/4); err != nil {
		return loss{}, err
	}
	killed := time.Now()
	if err := leader.Kill(); err != nil {
		return loss{}, err
	}
	lost()
	if _, err := observer.Await(ctx, tasks); err != nil {
		return loss{}, err
	}
	observer.Stop()
	gap, found := cluster.GapAround(observer.Seen(), killed)
	if !found {
		return loss{}, fmt.Errorf("no completion after the kill")
	}
	if err := completes(ctx, cl, submitted.ID); err != nil {
		return loss{}, err
	}
	l := loss{longest: float64(gap.Longest.Milliseconds()), back: float64(gap.Back.Milliseconds())}
	l.missing, l.twice = begins.count()
	if err := leader.Start(ctx); err != nil {
		return l, err
	}
	return l, c.AwaitCaughtUp(ctx, leader)
}
