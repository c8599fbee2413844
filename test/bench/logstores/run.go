package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/coordinator"
	"github.com/dtask/dtask/coordinator/logstore"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/worker"
)

const (
	replicas    = 3
	workers     = 2
	slots       = 1024
	submissions = 8
	// startLimit is a guard against hanging.
	startLimit = 30 * time.Second
)

// A result is what one run came to.
type result struct {
	perSecond float64
	cpuMicros float64 // user and system time of all, for each task
	latencyMS float64 // median
}

// measure runs a cluster on one kind of store.
func measure(ctx context.Context, o options, name string) (r result, err error) {
	dir, err := os.MkdirTemp(o.dir, "logstores-")
	if err != nil {
		return r, fmt.Errorf("making a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	running, stop := context.WithCancel(ctx)
	group, running := errgroup.WithContext(running)
	defer func() {
		stop()
		err = errors.Join(err, group.Wait())
	}()
	addrs, err := start(running, group, dir, name)
	if err != nil {
		return r, err
	}
	c, err := client.New(client.Config{Addrs: addrs})
	if err != nil {
		return r, fmt.Errorf("making a client: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := ready(ctx, c); err != nil {
		return r, err
	}
	if err := submitAll(ctx, c, o, o.tasks/10); err != nil { // a run that does not count
		return r, err
	}
	profiled, err := profile(o, name)
	if err != nil {
		return r, err
	}
	used, began := cpu(), time.Now()
	err = submitAll(ctx, c, o, o.tasks)
	r.perSecond = float64(o.tasks) / time.Since(began).Seconds()
	r.cpuMicros = float64((cpu() - used).Microseconds()) / float64(o.tasks)
	if err := errors.Join(err, profiled()); err != nil {
		return r, err
	}
	r.latencyMS, err = probe(ctx, c, o)
	return r, err
}

// start starts coordinators and workers, and returns the addresses.
func start(ctx context.Context, group *errgroup.Group, dir, name string) ([]string, error) {
	var peers []coordinator.Peer
	var addrs []string
	for i := range replicas {
		addr, err := cluster.FreePort(ctx)
		if err != nil {
			return nil, err
		}
		peers, addrs = append(peers, coordinator.Peer{ID: fmt.Sprintf("n%d", i+1), Address: addr}), append(addrs, addr)
	}
	quiet := slog.New(slog.DiscardHandler)
	for _, p := range peers {
		own := filepath.Join(dir, p.ID)
		cfg := coordinator.Config{ID: p.ID, DataDir: own, Listen: p.Address, Peers: peers, Logger: quiet, MinFree: &coordinator.MinFree{}}
		if name == storeWAL {
			cfg.Seams.Store = func(b logstore.Backend) logstore.Backend {
				s, err := newWALStore(own, b)
				if err != nil {
					panic(err) // the hook has no other way to report it, and the run is useless
				}
				return s
			}
		}
		group.Go(func() error { return coordinator.Run(ctx, cfg) })
	}
	for i := range workers {
		id := fmt.Sprintf("w%d", i+1)
		w, err := worker.New(worker.Config{Join: addrs, Name: id, Slots: slots, WorkDir: filepath.Join(dir, id), DrainTimeout: -1})
		if err != nil {
			return nil, fmt.Errorf("making a worker: %w", err)
		}
		w.Handle("noop", func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
		group.Go(func() error { return w.Run(ctx) })
	}
	return addrs, nil
}

// ready returns once all workers are up.
func ready(ctx context.Context, c *client.Client) error {
	return cluster.Until(ctx, "all workers are up", startLimit, func(ctx context.Context) error {
		up := 0
		for w, err := range c.Workers(ctx, client.WorkerFilter{}) {
			if err != nil {
				return fmt.Errorf("listing workers: %w", err)
			}
			if w.GetState() == "up" {
				up++
			}
		}
		if up < workers {
			return cluster.ErrNotYet
		}
		return nil
	})
}

// submitAll submits jobs, some at a time, and returns when all have completed.
func submitAll(ctx context.Context, c *client.Client, o options, tasks int) error {
	job, err := jobOf(min(tasks, o.perJob), o.payload)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(submissions)
	var ids []string
	var mu sync.Mutex // guards ids
	for range max(1, tasks/o.perJob) {
		group.Go(func() error {
			got, err := c.Submit(ctx, job, client.SubmitOptions{})
			if err != nil {
				return fmt.Errorf("submitting: %w", err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, got.ID)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, id := range ids {
		if err := completes(ctx, c, id); err != nil {
			return err
		}
	}
	return nil
}

func completes(ctx context.Context, c *client.Client, id string) error {
	job, err := c.Wait(context.WithoutCancel(ctx), id)
	if err != nil {
		return fmt.Errorf("waiting for a job: %w", err)
	}
	if job.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED {
		return fmt.Errorf("the job is %s: %s", job.GetState(), job.GetError())
	}
	return nil
}

// probe is the median time of a job of one task, in milliseconds.
func probe(ctx context.Context, c *client.Client, o options) (float64, error) {
	job, err := jobOf(1, o.payload)
	if err != nil {
		return 0, err
	}
	var took []float64
	for range o.probes {
		began := time.Now()
		got, err := c.Submit(ctx, job, client.SubmitOptions{})
		if err != nil {
			return 0, fmt.Errorf("submitting: %w", err)
		}
		if err := completes(ctx, c, got.ID); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(began).Microseconds())/1000)
	}
	return median(took), nil
}

func jobOf(tasks, payload int) (*dtaskv1.JobSpec, error) {
	job, err := spec.Single(spec.SingleTask{Type: "noop", Payload: make([]byte, payload), Name: "logstores"})
	if err != nil {
		return nil, fmt.Errorf("making a job: %w", err)
	}
	body := job.GetTasks()[0].GetBody()
	job.Tasks = make([]*dtaskv1.TaskSpec, tasks)
	for i := range job.GetTasks() {
		job.Tasks[i] = &dtaskv1.TaskSpec{Id: fmt.Sprintf("t%d", i), Body: body}
	}
	return job, nil
}

// cpu is the user and system time of this process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // it has no way to fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// profile takes a CPU profile of a run until what it returns is called.
func profile(o options, name string) (stop func() error, err error) {
	if o.profiles == "" {
		return func() error { return nil }, nil
	}
	file, err := os.CreateTemp(o.profiles, name+"-*.pprof")
	if err != nil {
		return nil, fmt.Errorf("making a file for the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the profile: %w", err), file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}
