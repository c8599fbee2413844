package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/array"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// submitFlags are those of `submit`.
type submitFlags struct {
	single

	wait   bool
	key    string
	dryRun bool
}

// submitted is what `submit` prints.
type submitted struct {
	ID         string `json:"id"`
	Existed    bool   `json:"existed"`
	TasksTotal int    `json:"tasks_total"`
}

// planned is what `submit --dry-run` prints.
type planned struct {
	Name       string   `json:"name"`
	TasksTotal int      `json:"tasks_total"`
	Levels     []uint32 `json:"levels"`
}

func newSubmit(a *app) *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:   "submit FILE|-...",
		Short: "Submit jobs: files, standard input, or one task by flags",
		Long: `Submit a job. Several files, or a file of several YAML documents, are several
jobs: they go in as few calls as possible, each is stored or refused for itself,
and the exit code is that of the first that was refused. Under --idempotency-key
KEY they have the keys KEY-1, KEY-2 and so on, in order.`,
		Example: `  dtaskctl submit job.yaml
  dtaskctl submit job.yaml --wait
  generate-job | dtaskctl submit - --wait -o json
  dtaskctl submit nightly.yaml --idempotency-key nightly-2026-05-01
  dtaskctl submit monday.yaml tuesday.yaml
  dtaskctl submit --type prime --payload 999999937 --priority high --wait
  dtaskctl submit --batch 500 --random-priority
  dtaskctl submit job.yaml --dry-run`,
		Args: f.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			jobs, err := f.jobs(a, args)
			if err != nil {
				return err
			}
			if f.dryRun {
				return a.planAll(jobs)
			}
			if len(jobs) > 1 {
				return a.submitMany(cmd.Context(), jobs, f)
			}
			return a.submit(cmd.Context(), jobs[0], f)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.wait, "wait", false, "wait until the job has ended; exit 1 if it did not complete")
	fl.StringVar(&f.key, "idempotency-key", "", "submit under this `KEY`: repeated with it, the same job is stored once")
	fl.BoolVar(&f.dryRun, "dry-run", false, "check the job and print its levels; submit nothing")
	fl.StringVar(&f.kind, "type", "", "submit one task of this handler `TYPE`, without a file")
	fl.StringVar(&f.payload, "payload", "", "its payload `TEXT`")
	fl.StringVar(&f.priority, "priority", "", "its `PRIORITY`: low, normal, high, urgent")
	fl.StringVar(&f.name, "name", "", "the job's `NAME`")
	fl.IntVar(&f.batch, "batch", 0, "submit `N` such tasks as one job (default type: "+batchType+")")
	fl.BoolVar(&f.randomPriority, "random-priority", false, "each of them with a random priority")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print the job's id only")
	return cmd
}

// args wants a file, or the flags of a job without one.
func (f *submitFlags) args(cmd *cobra.Command, args []string) error {
	flagged := ""
	for _, name := range []string{"type", "payload", "priority", "name", "batch", "random-priority"} {
		if cmd.Flags().Changed(name) {
			flagged = name
		}
	}
	switch {
	case len(args) > 0 && flagged != "":
		return fmt.Errorf("--%s is for a job without a file", flagged)
	case len(args) == 0 && f.kind == "" && !cmd.Flags().Changed("batch"):
		return errors.New("a job file is missing; - is standard input, --type makes a job without a file")
	case cmd.Flags().Changed("batch") && f.batch < 1:
		return fmt.Errorf("--batch %d is not above zero", f.batch)
	}
	return nil
}

// jobs reads or makes the jobs.
func (f *submitFlags) jobs(a *app, args []string) ([]*dtaskv1.JobSpec, error) {
	if len(args) > 0 {
		return a.readJobs(args)
	}
	job, err := f.build(a.specOptions())
	if err == nil {
		return []*dtaskv1.JobSpec{job}, nil
	}
	// Without a file its faults are those of the command line.
	return nil, &usageError{err: err, command: "dtaskctl submit"}
}

// planOf is what becomes of a job.
func planOf(job *dtaskv1.JobSpec) planned {
	return planned{Name: job.GetHeader().GetName(), TasksTotal: tasksOf(job), Levels: spec.Levels(job)}
}

// tasksOf is how many tasks a job has, those of its arrays one by one.
func tasksOf(job *dtaskv1.JobSpec) int {
	n := 0
	for _, t := range job.GetTasks() {
		n += int(array.Tasks(t)) //nolint:gosec // at most a million
	}
	return n
}

// plan shows a job that is not submitted.
func (a *app) plan(job *dtaskv1.JobSpec) error {
	doc := planOf(job)
	return a.print(doc, func(w io.Writer) error {
		if _, err := fmt.Fprintf(w, "%s: %s\n", doc.Name, show.Levels(doc.Levels)); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		return nil
	})
}

// submit stores the job and, with --wait, sees it to its end.
func (a *app) submit(ctx context.Context, job *dtaskv1.JobSpec, f submitFlags) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	a.say("%s", show.Levels(spec.Levels(job)))
	got, err := c.Submit(ctx, job, client.SubmitOptions{Key: f.key})
	if err != nil {
		return notStored(err)
	}
	if !f.wait {
		return a.printSubmitted(job, got)
	}
	if a.quiet {
		if err := a.ids([]string{got.ID}); err != nil {
			return err
		}
	}
	a.say("job %s (%s) %s", got.ID, show.Clean(job.GetHeader().GetName()), verb(got))
	ctx, cancel := a.waiting(ctx)
	defer cancel()
	return a.waitFor(ctx, c, got.ID)
}

// notStored is what a user sees of the error of a submission.
func notStored(err error) error {
	switch {
	case errors.Is(err, client.ErrInvalid):
		return &jobFileError{err: err} // the coordinators know limits that this side does not
	case errors.Is(err, client.ErrConflict):
		return &hintedError{err: err, hint: "this key belongs to another job: take another --idempotency-key, or submit that very job"}
	}
	return err
}

func (a *app) printSubmitted(job *dtaskv1.JobSpec, got client.Submitted) error {
	if a.quiet && a.people() {
		return a.ids([]string{got.ID})
	}
	doc := submitted{ID: got.ID, Existed: got.Existed, TasksTotal: tasksOf(job)}
	return a.print(doc, func(w io.Writer) error {
		if _, err := fmt.Fprintf(w, "job %s (%s) %s\n", got.ID, show.Clean(job.GetHeader().GetName()), verb(got)); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		return nil
	})
}

func verb(s client.Submitted) string {
	if s.Existed {
		return "was submitted before with this key"
	}
	return "submitted"
}
