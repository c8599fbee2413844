package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/statetext"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newResult(a *app) *cobra.Command {
	var jsonLines bool
	cmd := &cobra.Command{
		Use:   "result JOB[/TASK]",
		Short: "Print the results of a job, a task or an array",
		Long: `Print the results of a job's terminal tasks, on which no other task depends, or those
of a task or an array. A single result is printed as it is. --lines prints one JSON
object per task and line.

The exit code is 0 if the job, or each of the tasks, completed, 1 if it failed or was
cancelled, and 8 if it has not ended.

` + staleHelp,
		Example: `  dtaskctl result 42
  dtaskctl result 42/fetch
  dtaskctl result 42/map --lines
  dtaskctl result '42/map[10-19]' -o json
  dtaskctl result @last`,
		Args: oneArg,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			if jsonLines && !a.textOutput() {
				return view{}, usagef("--lines cannot be used with --output %s", a.format)
			}
			r, err := a.ref(ctx, c, args[0])
			if err != nil {
				return view{}, err
			}
			id, task := r.job, r.task
			got, err := readResults(ctx, c, id, task, a.readOptions())
			if err != nil {
				return view{}, err
			}
			missing := resultError(got, id, task)
			if jsonLines {
				return view{}, firstError(a.printResultLines(got.GetResults()), missing)
			}
			// Of a job or a single task that has not ended there is nothing to show.
			if isUnended(missing) && a.textOutput() && (task == "" || len(got.GetResults()) == 1) {
				return view{}, missing
			}
			return view{doc: document.NewResults(got), text: func(p *show.Printer) {
				p.Results(got.GetResults(), isTerminal(a.out))
			}}, missing
		}),
	}
	cmd.Flags().BoolVar(&jsonLines, "lines", false, "print one JSON object per task and line")
	a.bindStale(cmd.Flags())
	return cmd
}

// readResults reads the results of a job's terminal tasks, or of some tasks.
func readResults(ctx context.Context, c *client.Client, id, task string, opts client.ReadOptions) (*dtaskv1.GetResultResponse, error) {
	if task == "" {
		return c.Result(ctx, id, opts)
	}
	return c.TaskResults(ctx, id, task, opts)
}

// printResultLines prints one JSON document per task and line.
func (o *output) printResultLines(results []*dtaskv1.TaskResult) error {
	for _, r := range results {
		text, err := document.Marshal(document.NewTaskResult(r))
		if err := o.write(append(text, '\n'), err); err != nil {
			return err
		}
	}
	return nil
}

// resultError returns why results are missing: tasks have not ended, or ended without
// completing. It is nil if there are all.
func resultError(got *dtaskv1.GetResultResponse, id, task string) error {
	if task == "" {
		if client.Ended(got.GetJob().GetState()) {
			return jobError(got.GetJob())
		}
		return unended(fmt.Errorf("job %s is still running", id), id)
	}
	var open, failed []*dtaskv1.TaskResult
	for _, r := range got.GetResults() {
		switch r.GetState() {
		case dtaskv1.TaskState_TASK_STATE_COMPLETED, dtaskv1.TaskState_TASK_STATE_AGGREGATED:
		case dtaskv1.TaskState_TASK_STATE_FAILED, dtaskv1.TaskState_TASK_STATE_DEAD, dtaskv1.TaskState_TASK_STATE_LOST,
			dtaskv1.TaskState_TASK_STATE_CANCELLED:
			failed = append(failed, r)
		case dtaskv1.TaskState_TASK_STATE_UNSPECIFIED, dtaskv1.TaskState_TASK_STATE_BLOCKED, dtaskv1.TaskState_TASK_STATE_SCHEDULED,
			dtaskv1.TaskState_TASK_STATE_PENDING, dtaskv1.TaskState_TASK_STATE_ASSIGNED, dtaskv1.TaskState_TASK_STATE_RUNNING:
			open = append(open, r)
		}
	}
	switch {
	case len(open) > 0:
		return unended(missingResults(id, open, len(got.GetResults()), "have not ended"), id)
	case len(failed) > 0:
		return &commandError{
			err: missingResults(id, failed, len(got.GetResults()), "did not complete"), code: exitFailed,
			hint: fmt.Sprintf("dtaskctl logs %s/TASK shows the output of a task", id),
		}
	}
	return nil
}

// missingResults names a single task, and counts several.
func missingResults(id string, tasks []*dtaskv1.TaskResult, of int, what string) error {
	if of > 1 {
		return fmt.Errorf("%d of %d tasks %s, the first is %s/%s", len(tasks), of, what, id, tasks[0].GetTask())
	}
	text := fmt.Sprintf("task %s/%s %s", id, tasks[0].GetTask(), statetext.Predicate(document.TaskState(tasks[0].GetState())))
	if why := tasks[0].GetError(); why != "" {
		text += ": " + why
	}
	return errors.New(text)
}

func unended(err error, id string) error {
	return &commandError{err: err, code: exitWaitTimeout, hint: "to wait for it, run dtaskctl wait " + id}
}

func isUnended(err error) bool {
	own, ok := errors.AsType[*commandError](err)
	return ok && own.code == exitWaitTimeout
}
