package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// benchLabel is the label by which the jobs of one run are known.
const benchLabel = "bench-run"

// benchFlags are those of `bench`.
type benchFlags struct {
	tasks, jobs, perJob int // tasks 0: until duration is over
	payload             int
	kind                string
	shape               shape
	width               int
	rate                float64 // tasks a second; 0 = as fast as they are taken
	duration            time.Duration
	clients             int
	batch               int // jobs in a call
	sample              int // tasks whose times are asked for
}

func newBench(a *app) *cobra.Command {
	f := benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how many tasks a second the cluster brings to their end, and how fast each",
		Long: `Submit jobs of tasks that do nothing, and wait for them. Tasks per second count
from the start of the first submission to the end of the last job.

--shape says how the tasks of a job hang together: independent, in a chain, or in
levels of --width tasks that depend on two of the level before (wide). --rate
submits so many tasks per second in the place of as many as are taken, and counts
a submission from when it was due; --duration goes on for so long.

Ready to running is from when the last dependency had ended, or the job was
accepted, until the task began; end to end is from when the job was accepted until
the task had ended. Both are by the leader's clock, in milliseconds, for a sample
of the tasks; the beginning is counted back from when the leader heard of the
end, so that the first is too long rather than too short. The counters are those
of all coordinators together, their difference over the run.

Ctrl-C cancels the jobs that have not ended.`,
		Example: `  dtaskctl bench
  dtaskctl bench --tasks 200000 -o json
  dtaskctl bench --tasks 50000 --tasks-per-job 10 --payload 1024
  dtaskctl bench --tasks 50000 --tasks-per-job 10 --batch 100
  dtaskctl bench --shape wide --width 100 --tasks 100000
  dtaskctl bench --rate 50000 --duration 30s`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(cmd.Flags()); err != nil {
				return &usageError{err: err, command: cmd.CommandPath()}
			}
			ctx, cancel := a.waiting(cmd.Context())
			defer cancel()
			return a.bench(ctx, f)
		},
	}
	fl := cmd.Flags()
	fl.IntVar(&f.tasks, "tasks", 200_000, "`N` tasks in all (default with --duration: no end of them)")
	fl.IntVar(&f.jobs, "jobs", 0, "in `N` jobs of the same size")
	fl.IntVar(&f.perJob, "tasks-per-job", 0, "in jobs of `N` tasks (default 10000; of a chain 100; with --rate 10 ms worth of it)")
	fl.IntVar(&f.clients, "clients", 8, "`N` submissions at a time")
	fl.IntVar(&f.batch, "batch", 1, "`N` jobs in one call")
	fl.IntVar(&f.sample, "sample", usualSample, "ask for the times of `N` tasks, of 200 jobs at most; 0: of none")
	fl.IntVar(&f.payload, "payload", 32, "with `BYTES` of payload each")
	fl.StringVar(&f.kind, "type", "noop", "of this handler `TYPE`")
	fl.StringVar((*string)(&f.shape), "shape", string(shapeIndependent), "`SHAPE` of a job: independent, chain or wide")
	fl.IntVar(&f.width, "width", 100, "`N` tasks in each level of a wide job")
	fl.Float64Var(&f.rate, "rate", 0, "submit `N` tasks per second; 0: as many as are taken")
	fl.DurationVar(&f.duration, "duration", 0, "go on for this long, such as 30s")
	fl.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "payload-size" {
			name = "payload"
		}
		return pflag.NormalizedName(name)
	})
	return cmd
}

// complete checks the flags and works out how many tasks a job has, and how
// many jobs there are; no end of jobs is 0.
func (f *benchFlags) complete(given *pflag.FlagSet) error {
	switch {
	case f.tasks < 1 || f.jobs < 0 || f.perJob < 0 || f.width < 1:
		return errors.New("--tasks, --jobs, --tasks-per-job and --width are numbers above zero")
	case f.jobs > 0 && f.perJob > 0:
		return errors.New("--jobs and --tasks-per-job exclude each other")
	case f.jobs > f.tasks:
		return fmt.Errorf("--jobs %d is more than --tasks %d", f.jobs, f.tasks)
	case f.payload < 0 || f.payload > spec.MaxPayload:
		return fmt.Errorf("--payload %d is not from 0 to %d", f.payload, spec.MaxPayload)
	case f.clients < 1 || f.clients > mostClients:
		return fmt.Errorf("--clients %d is not from 1 to %d", f.clients, mostClients)
	case f.batch < 1 || f.batch > mostBatch:
		return fmt.Errorf("--batch %d is not from 1 to %d", f.batch, mostBatch)
	case f.sample < 0:
		return fmt.Errorf("--sample %d is negative", f.sample)
	case f.rate < 0 || math.IsInf(f.rate, 0) || math.IsNaN(f.rate):
		return fmt.Errorf("--rate %v is not a number of at least zero", f.rate)
	case !f.shape.known():
		return fmt.Errorf("--shape %q is not independent, chain or wide", f.shape)
	case f.duration < 0:
		return fmt.Errorf("--duration %s is negative", f.duration)
	}
	endless := f.duration > 0 && !given.Changed("tasks") && f.jobs == 0
	if f.jobs == 0 {
		if f.perJob == 0 {
			f.perJob = f.usualJob()
		}
		f.jobs = (f.tasks + f.perJob - 1) / f.perJob
	} else {
		f.perJob = (f.tasks + f.jobs - 1) / f.jobs
	}
	if f.perJob > maxBatch {
		return fmt.Errorf("a job of %d tasks is larger than %d", f.perJob, maxBatch)
	}
	if endless {
		f.tasks, f.jobs = 0, 0
	}
	return nil
}

// usualJob is how many tasks a job has if nobody said: large, but for chains,
// whose tasks wait for one another, and at a rate, at which a large job would
// be a burst.
func (f *benchFlags) usualJob() int {
	n := 10_000
	if f.shape == shapeChain {
		n = 100
	}
	if f.rate > 0 {
		const jobsPerSecond = 100
		n = min(n, max(1, int(f.rate/jobsPerSecond)))
	}
	return n
}

// size is the number of tasks of job i.
func (f *benchFlags) size(i int) int {
	if f.jobs == 0 {
		return f.perJob
	}
	n := f.tasks / f.jobs
	if i < f.tasks%f.jobs {
		n++
	}
	return n
}

// interval is the time from one job to the next at the rate; 0 = none.
func (f *benchFlags) interval() time.Duration {
	if f.rate == 0 {
		return 0
	}
	return time.Duration(float64(f.perJob) / f.rate * float64(time.Second))
}

func (a *app) bench(ctx context.Context, f benchFlags) error {
	template, run, err := a.benchJob(f)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := someWorker(ctx, c); err != nil {
		return err
	}
	before, err := c.Stats(ctx)
	if errors.Is(err, client.ErrUnreachable) {
		before = nil // submitting waits for a leader; this does not
	} else if err != nil {
		return err
	}
	l := newLoad(a, c, f, template)
	if err := l.run(ctx); err != nil {
		return l.cleanUp(ctx, run, err)
	}
	after, err := c.Stats(ctx)
	if err != nil {
		after = nil
	}
	times, err := l.sample(ctx)
	if err != nil {
		return err
	}
	report := l.report(before, after, times)
	if err := a.print(report, report.table); err != nil {
		return err
	}
	if l.unfinished > 0 {
		return fmt.Errorf("%s did not complete: %w", show.Plural(l.unfinished, "job"), errWorkFailed)
	}
	return nil
}

// benchJob makes the largest job of a run, and the name of the run.
func (a *app) benchJob(f benchFlags) (*dtaskv1.JobSpec, string, error) {
	opts := a.specOptions()
	opts.MaxPayload = spec.MaxPayload
	job, err := spec.Single(spec.SingleTask{
		Type: f.kind, Payload: bytes.Repeat([]byte("x"), f.payload), Name: "bench", Options: opts,
	})
	if err != nil {
		return nil, "", &usageError{err: err, command: "dtaskctl bench"}
	}
	job.Tasks = f.shape.tasks(job.GetTasks()[0], f.size(0), f.width)
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	run := hex.EncodeToString(id[:])
	job.Header.Labels = map[string]string{benchLabel: run}
	return job, run, nil
}

// someWorker is an error unless a worker is there to take tasks.
func someWorker(ctx context.Context, c *client.Client) error {
	for w, err := range c.Workers(ctx, client.WorkerFilter{}) {
		if err != nil {
			return err
		}
		if w.GetState() == "up" && w.GetSlots() > 0 {
			return nil
		}
	}
	return &hintedError{
		err:  &client.Error{Kind: client.ErrRefused, Message: "no worker is up: nothing would ever be done"},
		hint: "start one with dtask-worker --join HOST:PORT; dtaskctl worker list shows those that are known",
	}
}
