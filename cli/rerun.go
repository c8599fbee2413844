package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// rerunFlags are the flags of `rerun`.
type rerunFlags struct {
	wait     bool
	key      string
	name     string
	priority dtaskv1.Priority
}

func newRerun(a *app) *cobra.Command {
	var f rerunFlags
	cmd := &cobra.Command{
		Use:   "rerun JOB",
		Short: "Submit a job again as a new job",
		Long: `Submit a job again: a new job with the same tasks and the same header as JOB had when
it was submitted, in any state, also from history. It has no later updates of JOB, and
doesn't need the jobs that JOB needed. JOB itself does not change. The new job becomes
@last. To run only what failed of JOB, use dtaskctl retry.

The rerun of a run of a schedule has the tick of that run: its tasks get the same
DTASK_SCHEDULED_AT, DTASK_SCHEDULED_PREVIOUS and ${{ scheduled.date }}. It is not a run of
the schedule, and changes none of its ticks.`,
		Example: `  dtaskctl rerun 42
  dtaskctl rerun 42 --wait
  dtaskctl rerun @nightly --priority high
  dtaskctl rerun 42 --name nightly-again --idempotency-key monday`,
		Args: oneArg,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			if job, _, isTask := strings.Cut(args[0], "/"); isTask {
				return view{}, usagef("rerun takes a whole job: use %s, or dtaskctl retry for a task that failed", job)
			}
			r, err := a.resolve(ctx, c, args[0])
			if err != nil {
				return view{}, err
			}
			return a.rerun(ctx, c, r, &f)
		}),
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.wait, "wait", false, "wait until the new job finishes (exit code 1 unless it completed)")
	fl.StringVar(&f.key, "idempotency-key", "",
		"idempotency `KEY`; repeating it for the same job submits one job")
	fl.StringVar(&f.name, "name", "", "`NAME` of the new job (default that of JOB)")
	bind(fl, &f.priority, "priority", "", "`PRIORITY` of the new job: low, normal, high or urgent, or 0 to 3 (default that of JOB)", parsePriority)
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print the ID of the new job only")
	return cmd
}

// rerun submits a job again and, with --wait, waits for the new one.
func (a *app) rerun(ctx context.Context, c *client.Client, r jobRef, f *rerunFlags) (view, error) {
	job, err := c.JobSpec(ctx, r.job, client.ReadOptions{})
	if err != nil {
		return view{}, err
	}
	header := job.Header()
	header.Needs = nil // they have ended, and may have expired
	if f.name != "" {
		header.Name = f.name
	}
	if f.priority != 0 {
		header.Priority = f.priority
	}
	opts := client.SubmitOptions{Key: f.key}
	if header.GetRun() != nil {
		opts.RerunOf = r.job
	}
	got, err := c.SubmitSpec(ctx, job, opts)
	if err != nil {
		return view{}, submitError(err)
	}
	a.remember(c, got.ID)
	line := fmt.Sprintf("job %s (%s) submitted: a rerun of job %s with %s", got.ID, show.Clean(header.GetName()), r.job, show.Plural(job.Tasks(), "task"))
	if got.Existed {
		line = fmt.Sprintf("job %s (%s) submitted earlier with this key", got.ID, show.Clean(header.GetName()))
	}
	return a.submitted(ctx, c, document.Submission{ID: got.ID, Existed: got.Existed, TasksTotal: job.Tasks()}, line, f.wait)
}

// submitted prints a submission and, if the user wants that, waits for its job.
func (a *app) submitted(ctx context.Context, c *client.Client, doc document.Submission, line string, wait bool) (view, error) {
	if a.quiet && a.textOutput() {
		// Print the ID before waiting, so that a script has it even if the wait fails.
		if err := a.printIDs([]string{doc.ID}); err != nil || !wait {
			return view{}, err
		}
	}
	if !wait {
		return lines(doc, line), nil
	}
	a.note("%s", line)
	ctx, cancel := a.waitContext(ctx)
	defer cancel()
	return waiter{&a.output, c}.one(ctx, doc.ID)
}
