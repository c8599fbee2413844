package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// logsFlags are the flags of `logs`.
type logsFlags struct {
	attempt        uint32
	follow, failed bool
	stdout, stderr bool
	control        bool
	tail           uint32
	since          time.Duration
}

func newLogs(a *app) *cobra.Command {
	var f logsFlags
	cmd := &cobra.Command{
		Use:   "logs JOB[/TASK]",
		Short: "Print the output of a task, an array or a job",
		Long: `Print the standard output and standard error of the last attempt of a task, in the order
in which its worker has received them, both to standard output. Of an array or a job, print the
output of each task that has begun, with the ID of the task before each line.

Workers keep output within limits, also over restarts. If it is gone, the error gives the
reason. Of a long output, about the first and the last MiB are kept. Lines by which a
command reports, ::progress and ::checkpoint, are hidden.

With --follow, the exit code is 1 if the task failed or, of an array or a job, if the job
did not complete.`,
		Example: `  dtaskctl logs 42/fetch
  dtaskctl logs 42/fetch --follow --tail 20
  dtaskctl logs 42/fetch --attempt 1 --stderr
  dtaskctl logs 42 --failed --tail 5
  dtaskctl logs @last/map --follow --since 1m`,
		Args: oneArg,
		RunE: a.connected(func(ctx context.Context, c *client.Client, args []string) (view, error) {
			ref, err := a.ref(ctx, c, args[0])
			if err != nil {
				return view{}, err
			}
			if f.attempt > 0 && (ref.task == "" || f.failed) {
				return view{}, usagef("--attempt requires a task: use JOB/TASK without --failed")
			}
			if f.failed && f.follow {
				return view{}, usagef("--failed and --follow are mutually exclusive")
			}
			return a.logs(ctx, c, ref, f)
		}),
	}
	fl := cmd.Flags()
	bind(fl, &f.attempt, "attempt", "", "attempt number `N` of the task (0 = the last)", integer[uint32](0, math.MaxUint32))
	fl.BoolVarP(&f.follow, "follow", "f", false, "continue until the attempt, or the job, finishes")
	fl.BoolVar(&f.failed, "failed", false, "only tasks that failed")
	fl.BoolVar(&f.stdout, "stdout", false, "only standard output")
	fl.BoolVar(&f.stderr, "stderr", false, "only standard error")
	fl.BoolVar(&f.control, "control", false, "include the lines ::progress and ::checkpoint by which a command reports")
	bind(fl, &f.tail, "tail", "0", "only the last `N` lines of each task (0 = all)", integer[uint32](0, client.MaxTail))
	bind(fl, &f.since, "since", "", "only output of the last `DURATION`, such as 10m", duration(time.Millisecond, math.MaxInt64))
	return cmd
}

// logs prints the output of the tasks that the user named.
func (a *app) logs(ctx context.Context, c *client.Client, ref jobRef, f logsFlags) (view, error) {
	tasks, err := f.tasks(ctx, c, ref)
	switch {
	case err != nil:
		return view{}, err
	case len(tasks) == 1 && ref.task != "" && tasks[0].GetArray() != ref.task:
		return a.logOf(ctx, c, ref.job, tasks[0].GetId(), f)
	case f.follow:
		return a.followLogs(ctx, c, ref, f)
	}
	out, listed, gone := newLockedOutput(a.out, a.out, a.quiet), document.LogList{Logs: []document.Logs{}}, goneLogs{a: a}
	for _, t := range tasks {
		if t.GetAttempt() == 0 {
			continue
		}
		if a.textOutput() {
			w := out.stdoutOf(t.GetId() + ": ")
			_, err = c.Logs(ctx, f.request(ref.job, t.GetId(), w, w))
			err = firstError(err, w.flush())
		} else {
			var one document.Logs
			if one, err = readLog(ctx, c, ref.job, t.GetId(), f); err == nil {
				listed.Logs = append(listed.Logs, one)
			}
		}
		if errors.Is(err, client.ErrNotFound) && isFunction(t) {
			continue
		}
		if err = gone.add(err); err != nil {
			return view{}, err
		}
	}
	if err := gone.end(); err != nil || a.textOutput() {
		return view{}, err
	}
	return view{doc: listed}, nil
}

// isFunction reports whether a task calls a function of a worker, which has output only
// if it panics.
func isFunction(t *dtaskv1.Task) bool { return t.GetType() != "command" && t.GetType() != "run" }

// maxGoneLogs is how many logs that are gone are reported one by one.
const maxGoneLogs = 10

// goneLogs are the logs of several tasks that cannot be read.
type goneLogs struct {
	a           *app
	first       error
	n, readable int
}

// add reports that a log is gone, and returns any other error.
func (g *goneLogs) add(err error) error {
	switch {
	case err == nil:
		g.readable++
		return nil
	case !errors.Is(err, client.ErrNotFound):
		return err
	}
	if g.n++; g.n == 1 {
		g.first = err // reported by end if no log is readable
	} else if g.n <= maxGoneLogs {
		g.a.warn("dtaskctl: %s", show.Clean(err.Error()))
	}
	return nil
}

// end reports the rest. It is an error if no log could be read.
func (g *goneLogs) end() error {
	if g.n > maxGoneLogs {
		g.a.warn("dtaskctl: the logs of %d more tasks cannot be read", g.n-maxGoneLogs)
	}
	if g.readable == 0 {
		return g.first
	}
	if g.n > 0 {
		g.a.warn("dtaskctl: %s", show.Clean(g.first.Error()))
	}
	return nil
}

// tasks lists the tasks that the user named, of those that failed if asked for.
func (f *logsFlags) tasks(ctx context.Context, c *client.Client, ref jobRef) ([]*dtaskv1.Task, error) {
	filter := client.TaskFilter{Task: ref.task}
	if f.failed {
		filter.States = failedStates
	}
	return collect(c.Tasks(ctx, ref.job, filter))
}

// failedStates are the states of tasks that failed permanently.
var failedStates = []dtaskv1.TaskState{
	dtaskv1.TaskState_TASK_STATE_FAILED, dtaskv1.TaskState_TASK_STATE_DEAD, dtaskv1.TaskState_TASK_STATE_LOST,
}

// request is the request for the log of a task.
func (f *logsFlags) request(job, task string, stdout, stderr io.Writer) client.LogsRequest {
	r := client.LogsRequest{Job: job, Task: task, Attempt: f.attempt, Follow: f.follow, Tail: int(f.tail), Stdout: stdout, Stderr: stderr, ControlLines: f.control}
	if f.since > 0 {
		r.Since = time.Now().Add(-f.since)
	}
	if f.stdout && !f.stderr {
		r.Stderr = nil
	}
	if f.stderr && !f.stdout {
		r.Stdout = nil
	}
	return r
}

// logOf prints the log of one task.
func (a *app) logOf(ctx context.Context, c *client.Client, job, task string, f logsFlags) (view, error) {
	var v view
	var err error
	if a.textOutput() {
		out := terminalSafe(a.out)
		_, err = c.Logs(ctx, f.request(job, task, out, out))
	} else {
		var doc document.Logs
		if doc, err = readLog(ctx, c, job, task, f); err == nil {
			v.doc = doc
		}
	}
	if errors.Is(err, client.ErrNotFound) {
		return view{}, withHint(err, "dtaskctl status %s/%s shows its attempts", job, task)
	}
	if err == nil && f.follow {
		err = taskError(ctx, c, job, task)
	}
	return v, err
}

// readLog reads the log of a task into a document.
func readLog(ctx context.Context, c *client.Client, job, task string, f logsFlags) (document.Logs, error) {
	var out, errs strings.Builder
	attempt, err := c.Logs(ctx, f.request(job, task, &out, &errs))
	return document.Logs{ID: job + "/" + task, Attempt: attempt, Stdout: out.String(), Stderr: errs.String()}, err
}

// followLogs prints the logs of several tasks until their job finishes.
func (a *app) followLogs(ctx context.Context, c *client.Client, ref jobRef, f logsFlags) (view, error) {
	if !a.textOutput() {
		return view{}, usagef("--follow of several tasks cannot be used with --output %s", a.format)
	}
	follow := newFollower(c, ref.job, true, newLockedOutput(a.out, a.out, a.quiet))
	follow.flags = f
	follow.wanted = func(t *dtaskv1.Task) bool {
		return !isFunction(t) && (ref.task == "" || t.GetArray() == ref.task || t.GetId() == ref.task)
	}
	job, err := follow.follow(ctx)
	if err != nil {
		return view{}, err
	}
	if err := follow.missing(); err != nil {
		a.warn("dtaskctl: %s", show.Clean(err.Error()))
	}
	return view{}, jobError(job)
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
