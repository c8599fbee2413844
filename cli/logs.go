package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// logged is what `logs` prints as JSON.
type logged struct {
	ID      string `json:"id"` // 42/fetch
	Attempt uint32 `json:"attempt"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
}

func newLogs(a *app) *cobra.Command {
	var r client.LogsRequest
	var stdout, stderr bool
	cmd := &cobra.Command{
		Use:   "logs JOB/TASK",
		Short: "Print what a task wrote",
		Long: `Print what an attempt of a task wrote to its standard output and standard
error, both to standard output, as long as its worker keeps it. With --follow exit
1 if the task has failed at the end.`,
		Example: `  dtaskctl logs 42/fetch
  dtaskctl logs 42/fetch --follow
  dtaskctl logs 42/fetch --attempt 1 --stderr`,
		Args: oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, task, err := taskRef(args[0])
			if err != nil {
				return err
			}
			if task == "" {
				return &usageError{err: fmt.Errorf("%q names no task: write JOB/TASK, like %s/fetch", args[0], job), command: cmd.CommandPath()}
			}
			r.Job, r.Task = job, task
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			var out, errs strings.Builder
			r.Stdout, r.Stderr = io.Writer(&out), io.Writer(&errs)
			if a.people() {
				w := a.out
				if isTerminal(w) {
					w = harmless{w}
				}
				r.Stdout, r.Stderr = w, w
			}
			if stdout && !stderr {
				r.Stderr = nil
			}
			if stderr && !stdout {
				r.Stdout = nil
			}
			attempt, err := c.Logs(cmd.Context(), r)
			if err != nil {
				return noLogs(err, args[0])
			}
			if !a.people() {
				if err := a.print(logged{ID: args[0], Attempt: attempt, Stdout: out.String(), Stderr: errs.String()}, nil); err != nil {
					return err
				}
			}
			if !r.Follow {
				return nil
			}
			for t, err := range c.Tasks(cmd.Context(), job, client.TaskFilter{Task: task}) {
				if err != nil {
					return err
				}
				if wentWrong(t.GetState()) {
					return fmt.Errorf("task %s %s: %w: %s", args[0], document.TaskState(t.GetState()), errWorkFailed, t.GetError())
				}
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.Uint32Var(&r.Attempt, "attempt", 0, "of attempt `N`; 0 = the last")
	fl.BoolVarP(&r.Follow, "follow", "f", false, "go on until the attempt has ended")
	fl.BoolVar(&stdout, "stdout", false, "only its standard output")
	fl.BoolVar(&stderr, "stderr", false, "only its standard error")
	return cmd
}

// noLogs says what can be done about logs that are not there.
func noLogs(err error, ref string) error {
	if errors.Is(err, client.ErrNotFound) {
		job, _, _ := strings.Cut(ref, "/")
		return &hintedError{err: err, hint: "logs stay on the worker within a bound; dtaskctl status " + job + " shows the tasks and their attempts"}
	}
	return err
}

// wentWrong tells whether a task ended other than well.
func wentWrong(s dtaskv1.TaskState) bool {
	return s == dtaskv1.TaskState_TASK_STATE_FAILED || s == dtaskv1.TaskState_TASK_STATE_DEAD ||
		s == dtaskv1.TaskState_TASK_STATE_LOST || s == dtaskv1.TaskState_TASK_STATE_CANCELLED
}

// harmless writes text without terminal escape sequences. One that is cut by
// the border of two writes loses its beginning only, and is harmless then too.
type harmless struct{ w io.Writer }

func (h harmless) Write(p []byte) (int, error) {
	if _, err := io.WriteString(h.w, show.CleanText(string(p))); err != nil {
		return 0, fmt.Errorf("writing: %w", err)
	}
	return len(p), nil
}
