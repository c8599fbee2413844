package cli

import (
	"context"
	"errors"

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
		Use:   "retry JOB|JOB/TASK...",
		Short: "Retry failed jobs or tasks",
		Long: `Rerun the tasks that finished without completing: all of a job, or the named ones.
Tasks that were cancelled because of them are rerun too. Retry counts restart at 0;
attempt numbers continue.`,
		Example: `  dtaskctl retry 42
  dtaskctl retry 42 --wait
  dtaskctl retry 42/fetch 42/count 43
  dtaskctl retry @etl --wait
  dtaskctl retry 42 --if-version 3
  dtaskctl list -q --state failed | xargs dtaskctl retry`,
		Args: atLeastOne,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			selected, err := a.selections(ctx, c, args)
			if err != nil {
				return view{}, err
			}
			return a.retry(ctx, c, selected, &p, wait)
		}),
	}
	fl := cmd.Flags()
	fl.BoolVar(&wait, "wait", false, "wait until the jobs finish (exit code 1 unless all completed)")
	bindPrecondition(fl, &p, "retry")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print job IDs only")
	return cmd
}

// retry retries what was selected and, with wait, waits for the jobs.
func (a *app) retry(ctx context.Context, c *client.Client, selected []selection, p *precondition, wait bool) (view, error) {
	if err := p.check(len(selected)); err != nil {
		return view{}, err
	}
	var jobs []*dtaskv1.Job
	failed := a.each(selected, func(n int, s selection) error {
		retried, err := c.Retry(ctx, &dtaskv1.RetryRequest{
			Job: s.job, Tasks: s.tasks, IfVersion: p.ifVersion, IdempotencyKey: p.keyOf(n, len(selected)),
		})
		if err == nil {
			jobs = append(jobs, retried.Job)
		}
		return err
	})
	if a.quiet && a.textOutput() {
		if err := a.printIDs(jobIDs(jobs)); err != nil {
			return view{}, err
		}
	}
	if wait {
		limited, cancel := a.waitContext(ctx)
		defer cancel()
		w := waiter{&a.output, c}
		for i, job := range jobs {
			a.note("%s", show.Retried(job))
			finished, err := w.follow(limited, job.GetId())
			if err != nil {
				return view{}, err
			}
			jobs[i] = finished
			failed = firstError(failed, jobError(finished))
		}
	}
	if len(jobs) == 0 || (a.textOutput() && (wait || a.quiet)) {
		return view{}, failed
	}
	return view{doc: document.NewJobs(jobs, false), text: func(p *show.Printer) {
		for _, job := range jobs {
			p.Line("%s", show.Retried(job))
		}
	}}, failed
}

// each calls do for every selection, numbered from 0. A selection that is not found, or in the
// wrong state, doesn't stop the others: each returns the first such error and
// prints the others.
func (o *output) each(selected []selection, do func(n int, s selection) error) error {
	var first error
	for n, s := range selected {
		err := do(n, s)
		switch {
		case err == nil:
		case !errors.Is(err, client.ErrNotFound) && !errors.Is(err, client.ErrConflict):
			return err
		case first == nil:
			first = err
		default:
			o.report(err.Error(), nil, "")
		}
	}
	return first
}
