package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newRetry(a *app) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "retry JOB|JOB/TASK…",
		Short: "Run again what failed: of whole jobs, or single tasks",
		Long: `Let jobs go on with the tasks that ended without completing: all of a job, or
those that are named. Tasks that were cancelled because of these come back with
them. Retries are counted anew; attempt numbers go on.`,
		Example: `  dtaskctl retry 42
  dtaskctl retry 42 --wait
  dtaskctl retry 42/fetch 42/count 43
  dtaskctl list -q --state failed | xargs dtaskctl retry`,
		Args: atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			picks, err := picksOf(args)
			if err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			return a.retry(cmd.Context(), c, picks, wait)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&wait, "wait", false, "wait until the jobs have ended; exit 1 if one did not complete")
	fl.BoolVarP(&a.quiet, "quiet", "q", false, "print the ids of the jobs only")
	return cmd
}

// atLeastOne wants some arguments.
func atLeastOne(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("an argument is missing: %s", cmd.UseLine())
	}
	return nil
}

// A pick is some tasks of a job, or all of it.
type pick struct {
	job   string
	tasks []string // none means all
}

// picksOf groups ids like 42 and 42/fetch by job, in the order of the jobs'
// first. A job that is named as a whole is meant as a whole.
func picksOf(ids []string) ([]pick, error) {
	var picks []pick
	at := make(map[string]int)
	whole := make(map[string]bool)
	for _, id := range ids {
		job, task, err := taskRef(id)
		if err != nil {
			return nil, err
		}
		i, known := at[job]
		if !known {
			i = len(picks)
			at[job], picks = i, append(picks, pick{job: job})
		}
		switch {
		case task == "":
			whole[job], picks[i].tasks = true, nil
		case !whole[job] && !slices.Contains(picks[i].tasks, task):
			picks[i].tasks = append(picks[i].tasks, task)
		}
	}
	return picks, nil
}

// retry brings back what was picked and, with wait, sees it to its end.
func (a *app) retry(ctx context.Context, c *client.Client, picks []pick, wait bool) error {
	var jobs []*dtaskv1.Job
	failed := a.each(picks, func(p pick) error {
		job, err := c.Retry(ctx, p.job, p.tasks)
		if err == nil {
			jobs = append(jobs, job)
		}
		return err
	})
	if a.quiet && a.people() {
		if err := a.ids(idsOf(jobs)); err != nil {
			return err
		}
	}
	if wait {
		limited, cancel := a.waiting(ctx)
		defer cancel()
		for i, job := range jobs {
			a.say("%s", retried(job))
			ended, err := a.seeOut(limited, c, job.GetId())
			if err != nil {
				return err
			}
			jobs[i] = ended
			if v := verdict(ended); failed == nil {
				failed = v
			}
		}
	}
	if len(jobs) == 0 || (a.people() && (wait || a.quiet)) {
		return failed
	}
	return firstOf(failed, a.print(document.NewJobs(jobs, false), func(w io.Writer) error {
		for _, job := range jobs {
			if _, err := fmt.Fprintln(w, retried(job)); err != nil {
				return fmt.Errorf("writing: %w", err)
			}
		}
		return nil
	}))
}

// retried tells how a job stands that was brought back. What was retried may
// have ended since.
func retried(job *dtaskv1.Job) string {
	how := "goes on"
	if client.Ended(job.GetState()) {
		how = "has " + document.JobState(job.GetState()) + " since it was retried"
		if job.GetState() == dtaskv1.JobState_JOB_STATE_CANCELLED {
			how = "was cancelled since it was retried"
		}
	}
	text := fmt.Sprintf("job %s (%s) %s: %s of %s completed", job.GetId(), show.Clean(job.GetName()), how,
		show.Count(job.GetTasksCompleted()), show.Plural(job.GetTasksTotal(), "task"))
	if detail := progressOf(job).detail; detail != "" {
		text += ", " + detail
	}
	return text
}

func idsOf(jobs []*dtaskv1.Job) []string {
	ids := make([]string, 0, len(jobs))
	for _, job := range jobs {
		ids = append(ids, job.GetId())
	}
	return ids
}

// each does something with one pick after the other. One that is not found, or
// in no state for it, does not keep the rest from being done: the first such
// error is returned, and further ones are told at once.
func (a *app) each(picks []pick, do func(pick) error) error {
	var first error
	for _, p := range picks {
		err := do(p)
		switch {
		case err == nil:
		case !errors.Is(err, client.ErrNotFound) && !errors.Is(err, client.ErrConflict):
			return err
		case first == nil:
			first = err
		default:
			a.line("dtaskctl: %s", show.Clean(err.Error()))
		}
	}
	return first
}

// firstOf is the first error of several; nil if there is none.
func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
