package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newWait(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait JOB...",
		Short: "Wait for jobs to finish",
		Long: `Wait for one or more jobs to finish. The exit code is 0 if all completed, 1 if one
failed or was cancelled, 4 if one is unknown, and 8 if --timeout passed.`,
		Example: `  dtaskctl wait 42
  dtaskctl wait 42 --timeout 10m -o json
  dtaskctl wait @last
  dtaskctl submit -q monday.yaml tuesday.yaml | xargs dtaskctl wait`,
		Args: atLeastOne,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			ids, err := a.jobs(ctx, c, args)
			if err != nil {
				return view{}, err
			}
			ctx, cancel := a.waitContext(ctx)
			defer cancel()
			w := waiter{&a.output, c}
			if len(ids) > 1 {
				return w.many(ctx, ids, c.WaitMany(ctx, ids))
			}
			return w.one(ctx, ids[0])
		}),
	}
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "no progress and no summary")
	return cmd
}

// A waiter waits for jobs with a progress bar, and prints how they finished. Its
// views are for programs only, because the text is printed already.
type waiter struct {
	*output

	client *client.Client
}

// one waits for a job. The error is nil if it completed.
func (w waiter) one(ctx context.Context, id string) (view, error) {
	job, err := w.follow(ctx, id)
	if err != nil {
		return view{}, err
	}
	return w.view(document.NewJob(job)), jobError(job)
}

// view returns the document, or nothing if standard output has the text.
func (w waiter) view(doc any) view {
	if w.textOutput() {
		return view{}
	}
	return view{doc: doc}
}

// follow waits for a job and prints a summary.
func (w waiter) follow(ctx context.Context, id string) (*dtaskv1.Job, error) {
	p := w.newProgress("job " + id)
	stall := newStallReporter(w.client, id, p.note)
	stop := stall.start(ctx)
	var job *dtaskv1.Job
	var failed error
	for j, err := range w.client.Watch(ctx, id) {
		if failed = err; err != nil {
			break
		}
		job = j
		stall.observe(j)
		p.update(jobStep(j))
	}
	stop()
	p.end()
	if failed != nil {
		return nil, waitError(ctx, failed, id)
	}
	if w.quiet {
		return job, nil
	}
	return job, w.summarize(ctx, job)
}

// waitError adds a hint to an error of waiting: how to wait again for the jobs.
func waitError(ctx context.Context, err error, ids ...string) error {
	const maxIDs = 10
	if !errors.Is(err, errWaitTimeout) && ctx.Err() == nil {
		return err
	}
	noun, verb := "job", "is"
	if len(ids) > 1 {
		noun, verb = "jobs", "are"
	}
	return withHint(err, "the %s %s still running: run dtaskctl wait %s", noun, verb,
		strings.Join(ids[:min(len(ids), maxIDs)], " "))
}

// jobError is nil for a job that completed.
func jobError(job *dtaskv1.Job) error {
	if job.GetState() == dtaskv1.JobState_JOB_STATE_COMPLETED {
		return nil
	}
	id := job.GetId()
	text := fmt.Sprintf("job %s %s", id, document.JobState(job.GetState()))
	if job.GetError() != "" {
		text += ": " + job.GetError()
	}
	return &commandError{
		err: errors.New(text), code: exitFailed,
		hint: fmt.Sprintf("dtaskctl status %s shows its tasks; dtaskctl logs %s/TASK shows their output", id, id),
	}
}

// many waits for several jobs and prints how each finished, in the order of the
// IDs. The error is that of the first that did not complete or is unknown.
func (w waiter) many(ctx context.Context, ids []string, all iter.Seq2[client.Ends, error]) (view, error) {
	finished, err := w.followMany(ids, all)
	if err != nil {
		return view{}, waitError(ctx, err, ids...)
	}
	var first error
	var jobs []*dtaskv1.Job
	for _, id := range ids {
		job := finished[id]
		if job == nil {
			first = firstError(first, notFound("job %s not found: unknown or expired", id))
			continue
		}
		jobs = append(jobs, job)
		failed := jobError(job)
		first = firstError(first, failed)
		switch {
		case w.quiet:
		case failed != nil:
			err = w.summarize(ctx, job)
		default:
			_, err = fmt.Fprintln(w.summaryWriter(), show.Finished(job))
		}
		if err != nil {
			return view{}, err
		}
	}
	return w.view(document.NewJobs(jobs, false)), first
}

// followMany shows the progress of jobs until all have finished. It returns the
// known jobs by ID.
func (w waiter) followMany(ids []string, all iter.Seq2[client.Ends, error]) (map[string]*dtaskv1.Job, error) {
	p := w.newProgress(show.Plural(len(ids), "job"))
	defer p.end()
	finished := make(map[string]*dtaskv1.Job, len(ids))
	for ends, err := range all {
		if err != nil {
			return nil, err
		}
		for _, job := range ends.Jobs {
			finished[job.GetId()] = job
		}
		now := step{done: int64(len(ids) - ends.Left), total: int64(len(ids))}
		if ends.Completed > 0 {
			now.detail = show.Plural(ends.Completed, "task") + " of the running jobs completed"
		}
		p.update(now)
	}
	return finished, nil
}

// summarize prints how a job finished, with its tasks per worker and its failures.
func (w waiter) summarize(ctx context.Context, job *dtaskv1.Job) error {
	tasks, err := collect(w.client.Tasks(ctx, job.GetId(), client.TaskFilter{}))
	if err != nil {
		return err
	}
	p := show.NewPrinter(false, w.now())
	p.Summary(job, tasks)
	if _, err := w.summaryWriter().Write(p.Bytes()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
