package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newLogs(a *app) *cobra.Command {
	var r client.LogsRequest
	var stdout, stderr bool
	cmd := &cobra.Command{
		Use:   "logs JOB/TASK",
		Short: "Print the output of a task",
		Long: `Print the standard output and standard error of an attempt, both to standard output.
The worker keeps the output within a bound. With --follow, the exit code is 1 if the
task failed.`,
		Example: `  dtaskctl logs 42/fetch
  dtaskctl logs 42/fetch --follow
  dtaskctl logs 42/fetch --attempt 1 --stderr
  dtaskctl logs @last/fetch`,
		Args: oneArg,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			ref, err := a.taskRef(ctx, c, args[0])
			if err != nil {
				return view{}, err
			}
			r.Job, r.Task = ref.job, ref.task
			var out, errs strings.Builder
			r.Stdout, r.Stderr = &out, &errs
			if a.textOutput() {
				r.Stdout, r.Stderr = a.out, a.out
				if isTerminal(a.out) {
					r.Stdout, r.Stderr = escapeFilter{a.out}, escapeFilter{a.out}
				}
			}
			if stdout && !stderr {
				r.Stderr = nil
			}
			if stderr && !stdout {
				r.Stdout = nil
			}
			attempt, err := c.Logs(ctx, r)
			if errors.Is(err, client.ErrNotFound) {
				return view{}, withHint(err, "workers keep output within a bound; dtaskctl status %s shows the tasks and their attempts", r.Job)
			}
			if err != nil {
				return view{}, err
			}
			var v view
			if !a.textOutput() {
				v.doc = document.Logs{
					ID: ref.String(), Attempt: attempt, Stdout: out.String(),
					Stderr: errs.String(),
				}
			}
			if r.Follow {
				err = taskError(ctx, c, r.Job, r.Task)
			}
			return v, err
		}),
	}
	fl := cmd.Flags()
	bind(fl, &r.Attempt, "attempt", "", "attempt number `N` (0 = the last)",
		integer[uint32](0, math.MaxUint32))
	fl.BoolVarP(&r.Follow, "follow", "f", false, "continue until the attempt finishes")
	fl.BoolVar(&stdout, "stdout", false, "only standard output")
	fl.BoolVar(&stderr, "stderr", false, "only standard error")
	return cmd
}

// taskError is an error if a task has failed, died, been lost or been cancelled.
func taskError(ctx context.Context, c *client.Client, job, id string) error {
	for t, err := range c.Tasks(ctx, job, client.TaskFilter{Task: id}) {
		if err != nil {
			return err
		}
		switch t.GetState() { //nolint:exhaustive // only states of failure
		case dtaskv1.TaskState_TASK_STATE_FAILED, dtaskv1.TaskState_TASK_STATE_DEAD,
			dtaskv1.TaskState_TASK_STATE_LOST, dtaskv1.TaskState_TASK_STATE_CANCELLED:
			return &commandError{err: fmt.Errorf("task %s/%s %s: %s", job, id,
				document.TaskState(t.GetState()), t.GetError()), code: exitFailed}
		}
	}
	return nil
}

// An escapeFilter removes terminal escape sequences. Of a sequence that two writes
// split it removes only the start, which makes the rest harmless too.
type escapeFilter struct{ w io.Writer }

func (f escapeFilter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(f.w, show.CleanText(string(p))); err != nil {
		return 0, fmt.Errorf("writing: %w", err)
	}
	return len(p), nil
}
