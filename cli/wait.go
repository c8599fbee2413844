package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newWait(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait JOB...",
		Short: "Wait until jobs have ended",
		Long: `Wait until a job, or all of several jobs, have ended. Exit 0 if they completed, 1 if
one failed or was cancelled, 4 if there is no such job, 8 if --timeout passed.`,
		Example: `  dtaskctl wait 42
  dtaskctl wait 42 --timeout 10m -o json
  dtaskctl submit -q monday.yaml tuesday.yaml | xargs dtaskctl wait`,
		Args: atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := jobIDs(args)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			ctx, cancel := a.waiting(cmd.Context())
			defer cancel()
			if len(ids) > 1 {
				return a.waitForMany(ctx, c, ids, c.WaitMany(ctx, ids))
			}
			return a.waitFor(ctx, c, ids[0])
		},
	}
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "no progress and no summary")
	return cmd
}

// waitFor sees a job to its end, prints it and its summary, and returns
// errWorkFailed if it did not complete.
func (a *app) waitFor(ctx context.Context, c *client.Client, id string) error {
	job, err := a.seeOut(ctx, c, id)
	if err != nil {
		return err
	}
	if !a.people() {
		if err := a.print(document.NewJob(job), nil); err != nil {
			return err
		}
	}
	return verdict(job)
}

// seeOut watches a job to its end with a progress bar and prints its summary:
// to standard error where standard output is for programs.
func (a *app) seeOut(ctx context.Context, c *client.Client, id string) (*dtaskv1.Job, error) {
	job, err := a.follow(ctx, c, id)
	if err != nil {
		if errors.Is(err, errWaited) || ctx.Err() != nil {
			return nil, &hintedError{err: err, hint: "the job goes on: dtaskctl wait " + id}
		}
		return nil, err
	}
	summary := a.err
	if a.people() {
		summary = a.out
	}
	if a.quiet {
		return job, nil
	}
	return job, a.summarize(ctx, c, summary, job)
}

// verdict is nil for a job that completed.
func verdict(job *dtaskv1.Job) error {
	if job.GetState() == dtaskv1.JobState_JOB_STATE_COMPLETED {
		return nil
	}
	id := job.GetId()
	what := fmt.Errorf("job %s %s: %w", id, document.JobState(job.GetState()), errWorkFailed)
	if why := job.GetError(); why != "" {
		what = fmt.Errorf("%w: %s", what, why)
	}
	return &hintedError{err: what, hint: fmt.Sprintf("dtaskctl status %s shows which tasks, dtaskctl logs %s/TASK what one wrote", id, id)}
}

// follow shows the progress of a job until it has ended.
func (a *app) follow(ctx context.Context, c *client.Client, id string) (*dtaskv1.Job, error) {
	p := a.newProgress("job " + id)
	defer p.end()
	var last *dtaskv1.Job
	for job, err := range c.Watch(ctx, id) {
		if err != nil {
			return nil, err
		}
		last = job
		p.update(progressOf(job))
	}
	return last, nil
}

// summarize tells how a job went: total time, failures recovered, tasks per
// worker, and which tasks failed.
func (a *app) summarize(ctx context.Context, c *client.Client, w io.Writer, job *dtaskv1.Job) error {
	perWorker := make(map[string]int)
	var failed []string
	for task, err := range c.Tasks(ctx, job.GetId(), client.TaskFilter{}) {
		if err != nil {
			return err
		}
		switch task.GetState() {
		case dtaskv1.TaskState_TASK_STATE_COMPLETED, dtaskv1.TaskState_TASK_STATE_AGGREGATED:
			perWorker[executedBy(task)]++
		case dtaskv1.TaskState_TASK_STATE_FAILED, dtaskv1.TaskState_TASK_STATE_DEAD, dtaskv1.TaskState_TASK_STATE_LOST:
			failed = append(failed, failure(job, task))
		case dtaskv1.TaskState_TASK_STATE_UNSPECIFIED, dtaskv1.TaskState_TASK_STATE_BLOCKED, dtaskv1.TaskState_TASK_STATE_SCHEDULED,
			dtaskv1.TaskState_TASK_STATE_PENDING, dtaskv1.TaskState_TASK_STATE_ASSIGNED, dtaskv1.TaskState_TASK_STATE_RUNNING,
			dtaskv1.TaskState_TASK_STATE_CANCELLED:
		}
	}
	lines := []string{howEnded(job), "failures recovered: " + show.Count(job.GetRecovered())}
	if len(perWorker) > 0 {
		lines = append(lines, "tasks per worker: "+workerCounts(perWorker))
	}
	const most = 5
	if len(failed) > most {
		failed = append(failed[:most], fmt.Sprintf("  … %s more failed", show.Count(len(failed)-most)))
	}
	lines = append(lines, failed...)
	if _, err := fmt.Fprintln(w, strings.Join(lines, "\n")); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// howEnded tells in a line how a job went.
func howEnded(job *dtaskv1.Job) string {
	took := time.Duration(max(job.GetCompletedAt()-job.GetSubmittedAt(), 0)) * time.Millisecond
	return fmt.Sprintf("job %s (%s) %s in %s: %s of %s completed", job.GetId(), show.Clean(job.GetName()), document.JobState(job.GetState()),
		show.Duration(took), show.Count(job.GetTasksCompleted()), show.Plural(job.GetTasksTotal(), "task"))
}

// executedBy names the worker that completed a task, or says that none had to.
func executedBy(t *dtaskv1.Task) string {
	if t.GetReusedTask() != "" {
		return "(reused)"
	}
	return show.Clean(t.GetWorker())
}

func failure(job *dtaskv1.Job, t *dtaskv1.Task) string {
	on := ""
	if t.GetWorker() != "" {
		on = " on " + show.Clean(t.GetWorker())
	}
	return fmt.Sprintf("  %s/%s: %s%s in attempt %d: %s", job.GetId(), show.Clean(t.GetId()), document.TaskState(t.GetState()), on, t.GetAttempt(), show.Clean(t.GetError()))
}

// workerCounts lists workers with their numbers of tasks, the busiest first,
// and no more than fit into a line or two.
func workerCounts(counts map[string]int) string {
	type count struct {
		name string
		n    int
	}
	all := make([]count, 0, len(counts))
	for name, n := range counts {
		all = append(all, count{name, n})
	}
	slices.SortFunc(all, func(x, y count) int { return cmp.Or(cmp.Compare(y.n, x.n), cmp.Compare(x.name, y.name)) })
	const most = 12
	words := make([]string, 0, most+1)
	for i, c := range all {
		if i == most {
			words = append(words, fmt.Sprintf("… %d more", len(all)-most))
			break
		}
		words = append(words, c.name+" "+show.Count(c.n))
	}
	return strings.Join(words, ", ")
}
