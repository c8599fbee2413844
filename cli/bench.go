package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dtask/dtask/cli/bench"
	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

func newBench(a *app) *cobra.Command {
	var cfg bench.Config
	var taskType string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure throughput and task latency",
		Long: `Submit jobs of tasks that do nothing, and wait for them. Tasks per second are measured
from the start of the first submission to the end of the last job.

--shape sets the dependencies of a job's tasks: independent, a chain, or levels of
--width tasks that depend on two tasks of the previous level (wide). --rate submits this
many tasks per second, and measures a submission from the time at which it was due.

"Ready to running" starts when a task's last dependency completes, or when its job is
accepted. "End to end" starts when the job is accepted and ends when the task completes.
Both are measured by the leader's clock for a sample of the tasks. A start time is
derived from the time at which the leader received the task's outcome, so "ready to
running" is an upper bound. Counters are sums over all coordinators for the run.

Ctrl-C cancels the unfinished jobs.`,
		Example: `  dtaskctl bench
  dtaskctl bench --tasks 200000 -o json
  dtaskctl bench --tasks 50000 --tasks-per-job 10 --payload 1024
  dtaskctl bench --tasks 50000 --tasks-per-job 10 --batch 100
  dtaskctl bench --shape wide --width 100 --tasks 100000
  dtaskctl bench --rate 50000 --duration 30s`,
		Args: noArgs,
	}
	fl := cmd.Flags()
	bind(fl, &cfg.Tasks, "tasks", "200000",
		"total number `N` of tasks (unlimited with --duration)", integer[int](1, math.MaxInt32))
	bind(fl, &cfg.Jobs, "jobs", "", "number `N` of jobs of equal size",
		integer[int](1, math.MaxInt32))
	bind(fl, &cfg.JobSize, "tasks-per-job", "", "number `N` of tasks in a job (default 10000; 100 for chains; 10 ms of tasks with --rate)", integer[int](1, maxJobTasks))
	bind(fl, &cfg.Clients, "clients", "8", "number `N` of concurrent submissions",
		integer[int](1, bench.MaxClients))
	bind(fl, &cfg.Batch, "batch", "1", "number `N` of jobs in one call",
		integer[int](1, bench.MaxBatch))
	bind(fl, &cfg.Sample, "sample", "100000",
		"number `N` of tasks, in at most 200 jobs, to measure latency (0 = none)", integer[int](0, math.MaxInt32))
	bind(fl, &cfg.PayloadSize, "payload", "32", "payload size in `BYTES`",
		integer[int](0, spec.MaxPayload))
	fl.StringVar(&taskType, "type", "noop", "handler `TYPE` of the tasks")
	bindEnum(cmd, fl, &cfg.Shape, "shape", "", "`SHAPE` of the jobs", bench.Independent,
		bench.Chain, bench.Wide)
	bind(fl, &cfg.Width, "width", "100", "number `N` of tasks in each level of a wide job",
		integer[int](1, maxJobTasks))
	bind(fl, &cfg.Rate, "rate", "", "submission rate, `N` tasks per second (0 = unlimited)",
		parseRate)
	bind(fl, &cfg.Duration, "duration", "", "`DURATION` of the submissions, such as 30s",
		duration(0, math.MaxInt64))
	// --payload-size is an alias that shell completion and help don't show.
	fl.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "payload-size" {
			name = "payload"
		}
		return pflag.NormalizedName(name)
	})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if err := completeBench(&cfg, fl); err != nil {
			return usage(err)
		}
		return nil
	}
	cmd.RunE = a.connected(func(ctx context.Context, c *client.Client, _ []string) (view, error) {
		var err error
		if cfg.Template, err = benchTemplate(cfg, taskType, a.specOptions()); err != nil {
			return view{}, err
		}
		ctx, cancel := a.waitContext(ctx)
		defer cancel()
		return a.bench(ctx, c, cfg)
	})
	return cmd
}

func parseRate(text string) (float64, error) {
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil || rate < 0 || math.IsInf(rate, 0) || math.IsNaN(rate) {
		return 0, errors.New("must be a number, 0 or more")
	}
	return rate, nil
}

// completeBench derives the number of jobs and their size from the flags.
func completeBench(cfg *bench.Config, fl *pflag.FlagSet) error {
	if err := exclusive(fl, "jobs", "tasks-per-job"); err != nil {
		return err
	}
	if cfg.Jobs > cfg.Tasks {
		return fmt.Errorf("invalid --jobs %d: must be at most --tasks (%d)", cfg.Jobs, cfg.Tasks)
	}
	// With --duration and without --tasks or --jobs, the duration alone ends the run.
	endless := cfg.Duration > 0 && !fl.Changed("tasks") && cfg.Jobs == 0
	if cfg.Jobs > 0 {
		cfg.JobSize = (cfg.Tasks + cfg.Jobs - 1) / cfg.Jobs
	} else {
		if cfg.JobSize == 0 {
			cfg.JobSize = defaultJobSize(cfg)
		}
		cfg.Jobs = (cfg.Tasks + cfg.JobSize - 1) / cfg.JobSize
	}
	if cfg.JobSize > maxJobTasks {
		return fmt.Errorf("invalid --jobs %d: a job of %d tasks exceeds %d", cfg.Jobs, cfg.JobSize,
			maxJobTasks)
	}
	if endless {
		cfg.Tasks, cfg.Jobs = 0, 0
	}
	return nil
}

// defaultJobSize is large, except for chains, whose tasks run one after another,
// and with a rate, for which a large job would be a burst.
func defaultJobSize(cfg *bench.Config) int {
	n := 10_000
	if cfg.Shape == bench.Chain {
		n = 100
	}
	if cfg.Rate > 0 {
		const jobsPerSecond = 100
		n = min(n, max(1, int(cfg.Rate/jobsPerSecond)))
	}
	return n
}

// benchTemplate makes the largest job of a run, with a random name of the run.
func benchTemplate(cfg bench.Config, taskType string, opts spec.Options) (*dtaskv1.JobSpec, error) {
	opts.MaxPayload = spec.MaxPayload
	payload := bytes.Repeat([]byte("x"), cfg.PayloadSize)
	job, err := spec.Single(spec.SingleTask{Type: taskType, Payload: payload, Name: "bench", Options: opts})
	if err != nil {
		return nil, usage(err)
	}
	size := cfg.JobSize
	if cfg.Jobs > 0 {
		size = (cfg.Tasks + cfg.Jobs - 1) / cfg.Jobs
	}
	job.Tasks = repeatTask(job.GetTasks()[0], size)
	for i, t := range job.GetTasks() {
		t.Dependencies = cfg.Shape.Dependencies(i, cfg.Width)
	}
	var run [8]byte
	_, _ = rand.Read(run[:]) // never fails
	job.Header.Labels = map[string]string{bench.Label: hex.EncodeToString(run[:])}
	return job, nil
}

func (a *app) bench(ctx context.Context, c *client.Client, cfg bench.Config) (view, error) {
	if err := requireWorker(ctx, c); err != nil {
		return view{}, err
	}
	p := a.newProgress("bench")
	cfg.Progress = func(completed, total int64) { p.update(step{done: completed, total: total}) }
	load := bench.New(c, cfg)
	err := load.Run(ctx)
	p.end()
	if err != nil {
		n, failed := load.Cancel(ctx)
		if failed != nil {
			return view{}, withHint(err, "some jobs may still be running: run dtaskctl list --label %s=%s", bench.Label, cfg.Template.GetHeader().GetLabels()[bench.Label])
		}
		return view{}, withHint(err, "cancelled %s of this run", show.Plural(n, "job"))
	}
	report, err := load.Report(ctx)
	if err != nil {
		return view{}, err
	}
	if n := load.Unfinished(); n > 0 {
		err = &commandError{
			err:  fmt.Errorf("%s did not complete", show.Plural(n, "job")),
			code: exitFailed,
		}
	}
	return view{doc: report, text: func(p *show.Printer) { p.Bench(report) }}, err
}

// requireWorker is an error unless a worker is up.
func requireWorker(ctx context.Context, c *client.Client) error {
	for w, err := range c.Workers(ctx, client.WorkerFilter{}) {
		if err != nil {
			return err
		}
		if w.GetState() == "up" && w.GetSlots() > 0 {
			return nil
		}
	}
	return withHint(&client.Error{Kind: client.ErrRefused, Message: "no worker is up"},
		"start one with dtask-worker --join HOST:PORT; dtaskctl worker list shows the known workers")
}
