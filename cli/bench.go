package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/spec"
)

// benchFlags are those of `bench`.
type benchFlags struct {
	tasks, jobs, perJob int
	payload             int
	kind                string
}

// benchReport is what `bench` prints. Counters are null if no coordinator told
// its own before and after.
type benchReport struct {
	Tasks          int      `json:"tasks"`
	Jobs           int      `json:"jobs"`
	PayloadSize    int      `json:"payload_size"` // bytes
	SubmitSeconds  float64  `json:"submit_seconds"`
	TotalSeconds   float64  `json:"end_to_end_seconds"`
	TasksPerSecond float64  `json:"tasks_per_second"`
	TasksFailed    uint64   `json:"tasks_failed"`
	Retries        uint64   `json:"retries"`
	Entries        *uint64  `json:"entries"`
	Operations     *uint64  `json:"operations"`
	PerEntry       *float64 `json:"operations_per_entry"`
	LogBytes       *uint64  `json:"log_bytes"`
	Syncs          *uint64  `json:"syncs"`
	LeaderChanges  *uint64  `json:"leader_changes"`
}

func newBench(a *app) *cobra.Command {
	f := benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how many tasks a second the cluster brings to their end",
		Long: `Submit jobs of tasks that do nothing and wait for them. Tasks per second count
from the start of the first submission to the end of the last job. The counters
are those of all coordinators together, their difference over the run.`,
		Example: `  dtaskctl bench
  dtaskctl bench --tasks 200000 -o json
  dtaskctl bench --tasks 50000 --tasks-per-job 10 --payload-size 1024`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(); err != nil {
				return &usageError{err: err, command: cmd.CommandPath()}
			}
			ctx, cancel := a.waiting(cmd.Context())
			defer cancel()
			return a.bench(ctx, f)
		},
	}
	fl := cmd.Flags()
	fl.IntVar(&f.tasks, "tasks", 200_000, "`N` tasks in all")
	fl.IntVar(&f.jobs, "jobs", 0, "in `N` jobs of the same size")
	fl.IntVar(&f.perJob, "tasks-per-job", 0, "in jobs of `N` tasks (default 10000)")
	fl.IntVar(&f.payload, "payload-size", 32, "with `BYTES` of payload each")
	fl.StringVar(&f.kind, "type", "noop", "of this handler `TYPE`")
	return cmd
}

// complete checks the flags and works out how many tasks a job has.
func (f *benchFlags) complete() error {
	switch {
	case f.tasks < 1 || f.jobs < 0 || f.perJob < 0:
		return errors.New("--tasks, --jobs and --tasks-per-job are numbers above zero")
	case f.jobs > 0 && f.perJob > 0:
		return errors.New("--jobs and --tasks-per-job exclude each other")
	case f.jobs > f.tasks:
		return fmt.Errorf("--jobs %d is more than --tasks %d", f.jobs, f.tasks)
	case f.payload < 0 || f.payload > spec.MaxPayload:
		return fmt.Errorf("--payload-size %d is not from 0 to %d", f.payload, spec.MaxPayload)
	}
	if f.jobs == 0 {
		if f.perJob == 0 {
			f.perJob = 10_000
		}
		f.jobs = (f.tasks + f.perJob - 1) / f.perJob
	}
	if most := (f.tasks + f.jobs - 1) / f.jobs; most > maxBatch {
		return fmt.Errorf("a job of %d tasks is larger than %d", most, maxBatch)
	}
	return nil
}

// size is the number of tasks of job i.
func (f *benchFlags) size(i int) int {
	n := f.tasks / f.jobs
	if i < f.tasks%f.jobs {
		n++
	}
	return n
}

func (a *app) bench(ctx context.Context, f benchFlags) error {
	opts := a.specOptions()
	opts.MaxPayload = spec.MaxPayload
	template, err := spec.Single(spec.SingleTask{
		Type: f.kind, Payload: bytes.Repeat([]byte("x"), f.payload), Name: "bench", Options: opts,
	})
	if err != nil {
		return &usageError{err: err, command: "dtaskctl bench"}
	}
	template.Tasks = repeat(template.GetTasks()[0], f.size(0))
	c, err := a.client()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	before, err := c.Stats(ctx)
	if errors.Is(err, client.ErrUnreachable) {
		before = nil // submitting waits for a leader; this does not
	} else if err != nil {
		return err
	}
	l := load{app: a, client: c, flags: f, template: template}
	if err = l.run(ctx); err != nil {
		return err
	}
	after, err := c.Stats(ctx)
	if err != nil {
		after = nil
	}
	report := l.report(before, after)
	if err := a.print(report, report.table); err != nil {
		return err
	}
	if l.unfinished > 0 {
		return fmt.Errorf("%s did not complete: %w", show.Plural(l.unfinished, "job"), errWorkFailed)
	}
	return nil
}

// report puts the figures together.
func (l *load) report(before, after []client.ReplicaStats) benchReport {
	r := benchReport{
		Tasks: l.flags.tasks, Jobs: l.flags.jobs, PayloadSize: l.flags.payload,
		SubmitSeconds: round3(l.submitted.Seconds()), TotalSeconds: round3(l.ended.Seconds()),
		TasksPerSecond: round3(float64(l.flags.tasks) / max(l.ended.Seconds(), 1e-9)),
		TasksFailed:    l.failed, Retries: l.retries,
	}
	if len(before) == 0 || len(after) == 0 {
		return r
	}
	var entries, operations, written, syncs, changes uint64
	for _, now := range after {
		for _, then := range before {
			if then.Address != now.Address {
				continue
			}
			x, y := then.Stats, now.Stats
			entries += grown(x.GetEntries(), y.GetEntries())
			operations += grown(x.GetOperations(), y.GetOperations())
			written += grown(x.GetBytes(), y.GetBytes())
			syncs += grown(x.GetSyncs(), y.GetSyncs())
			changes = max(changes, grown(x.GetLeaderChanges(), y.GetLeaderChanges())) // all see the same ones
		}
	}
	r.Entries, r.Operations, r.LogBytes, r.Syncs, r.LeaderChanges = &entries, &operations, &written, &syncs, &changes
	if entries > 0 {
		per := round3(float64(operations) / float64(entries))
		r.PerEntry = &per
	}
	return r
}

// grown is by how much a counter grew; one that fell began anew with its
// process.
func grown(before, after uint64) uint64 {
	if after < before {
		return after
	}
	return after - before
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }

// table shows the report to people.
func (r benchReport) table(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s in %s, %d bytes of payload each\n", show.Plural(r.Tasks, "task"), show.Plural(r.Jobs, "job"), r.PayloadSize)
	fmt.Fprintf(&b, "submitted in          %.3fs\n", r.SubmitSeconds)
	fmt.Fprintf(&b, "end to end            %.3fs\n", r.TotalSeconds)
	fmt.Fprintf(&b, "tasks per second      %s\n", show.Count(int64(r.TasksPerSecond)))
	fmt.Fprintf(&b, "failed, retries       %s, %s\n", show.Count(r.TasksFailed), show.Count(r.Retries))
	if r.Entries != nil {
		fmt.Fprintf(&b, "log entries           %s of %s bytes\n", show.Count(*r.Entries), show.Count(*r.LogBytes))
		fmt.Fprintf(&b, "syncs, all replicas   %s\n", show.Count(*r.Syncs))
		fmt.Fprintf(&b, "leader changes        %s\n", show.Count(*r.LeaderChanges))
	}
	if r.PerEntry != nil {
		fmt.Fprintf(&b, "operations per entry  %.1f\n", *r.PerEntry)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
