package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newRetry(a *app) *cobra.Command {
	var wait bool
	var p precondition
	cmd := &cobra.Command{
		Use:   "retry JOB[/TASK]...",
		Short: "Retry failed jobs or tasks",
		Long: `Rerun the tasks that finished without completing: all of a job, or the named ones, or
those of all jobs that match filters, by default of failed and cancelled jobs. Tasks
that were cancelled because of them are rerun too. Retry counts restart at 0; attempt
numbers continue. Jobs that have moved to the history can't be retried. To run a whole
job again as a new job, use dtaskctl rerun.

` + selectorHelp,
		Example: `  dtaskctl retry 42
  dtaskctl retry 42 --wait
  dtaskctl retry 42/fetch 42/count 43
  dtaskctl retry @etl --wait
  dtaskctl retry 42 --if-version 3
  dtaskctl retry --state failed --since 24h --dry-run
  dtaskctl retry --name nightly --state failed --yes`,
	}
	s := &jobSelector{
		grouped: true, explicit: []string{"idempotency-key", "if-version"},
		usual: []dtaskv1.JobState{dtaskv1.JobState_JOB_STATE_FAILED, dtaskv1.JobState_JOB_STATE_CANCELLED},
		// Tasks may have failed in a job that runs, or that tolerates failures.
		possible: allJobStates[1:],
	}
	change := &jobChange{
		verb: "retry", gerund: "retrying", past: "retried", check: p.check,
		apply: func(ctx context.Context, c *client.Client, t *target, n, total int) (changed, error) {
			retried, err := c.Retry(ctx, &dtaskv1.RetryRequest{
				Job: t.job, Tasks: t.tasks, IfVersion: p.ifVersion, IdempotencyKey: p.keyOf(n, total),
			})
			return changed{line: show.Retried(retried.Job), job: retried.Job}, err
		},
		single: func(_ *target, done *changed) any {
			return document.NewJobs([]*dtaskv1.Job{done.job}, false)
		},
		element: func(_ *target, done *changed) any { return document.NewJob(done.job) },
	}
	a.bindJobSelector(cmd, s)
	cmd.RunE = a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
		r, err := a.newChangeRun(ctx, c, s, change, args)
		switch {
		case err != nil:
			return view{}, err
		case wait && !s.dryRun:
			return r.runAndWait(ctx)
		}
		return r.run(ctx)
	})
	fl := cmd.Flags()
	fl.BoolVar(&wait, "wait", false, "wait until the jobs finish (exit code 1 unless all completed)")
	bindPrecondition(fl, &p, "retry")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print job IDs only")
	return cmd
}

// runAndWait changes jobs and waits for those that it changed.
func (r *changeRun) runAndWait(ctx context.Context) (view, error) {
	var changed []*outcome
	for o := range r.outcomes(ctx) {
		switch {
		case o.changed != nil:
			changed = append(changed, o)
		case len(r.targets) > 1:
			r.warn("%s", o.line)
		}
	}
	failed := r.err()
	if r.quiet && r.textOutput() {
		ids := make([]string, len(changed))
		for i, o := range changed {
			ids[i] = o.target.job
		}
		if err := r.printIDs(ids); err != nil {
			return view{}, err
		}
	}
	limited, cancel := r.waitContext(ctx)
	defer cancel()
	w := waiter{&r.output, r.client}
	jobs := make([]*dtaskv1.Job, len(changed))
	for i, o := range changed {
		r.note("%s", o.line)
		finished, err := w.follow(limited, o.target.job)
		if err != nil {
			return view{}, err
		}
		jobs[i] = finished
		failed = firstError(failed, jobError(finished))
	}
	if len(jobs) == 0 && failed != nil {
		return view{}, failed
	}
	return w.view(document.NewJobs(jobs, false)), failed
}
