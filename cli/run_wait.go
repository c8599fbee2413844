package cli

import (
	"context"
	"fmt"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/exitstatus"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// runAndWait submits the job of a command, copies its output, and returns how the
// command ended: nil, an *exitError, or the reason for which that is unknown.
func (a *app) runAndWait(ctx context.Context, c *client.Client, job *dtaskv1.JobSpec) (view, error) {
	got, err := c.Submit(ctx, job, client.SubmitOptions{})
	if err != nil {
		return view{}, submitError(err)
	}
	a.remember(c, got.ID)
	a.note("%s", submittedLine(job, got))
	ctx, cancel := a.waitContext(ctx)
	defer cancel()
	f := newFollower(c, got.ID, job.GetTasks()[0].GetArray() != nil, newLockedOutput(a.summaryWriter(), a.err, a.quiet))
	f.stalls = true
	ended, err := f.follow(ctx)
	if err == nil {
		err = a.commandResult(ctx, c, ended, f.missing())
	}
	if err != nil && ctx.Err() != nil {
		err = withHint(err, "the job continues: run dtaskctl wait %s to wait for it, or dtaskctl cancel %s to cancel it", got.ID, got.ID)
	}
	if ended == nil || a.textOutput() {
		return view{}, err
	}
	return view{doc: document.NewJob(ended)}, err
}

// commandResult is nil if the command succeeded and its output is complete. missing is
// why output is missing, or nil.
func (a *app) commandResult(ctx context.Context, c *client.Client, job *dtaskv1.Job, missing error) error {
	if job.GetState() == dtaskv1.JobState_JOB_STATE_COMPLETED {
		if why := show.SkippedJob(job); why != "" {
			a.note("job %s %s", job.GetId(), why)
		}
		return missing
	}
	t, err := firstFailed(ctx, c, job.GetId())
	switch {
	case err != nil:
		return err
	case t == nil:
		return jobError(job)
	}
	id := job.GetId() + "/" + t.GetId()
	hint := ""
	if job.GetTasksTotal() > 1 {
		hint = fmt.Sprintf("%s of %d failed: dtaskctl status %s lists them", show.Plural(int(job.GetTasksFailed()), "task"), job.GetTasksTotal(), job.GetId())
	}
	status, ok := exitstatus.Parse(t.GetError())
	if !ok {
		// The reason is often something that this worker lacks.
		return withHint(fmt.Errorf("task %s %s%s: %s", id, document.TaskState(t.GetState()), show.OnWorker(t), t.GetError()), "%s", hint)
	}
	if missing != nil {
		a.report("warning: "+missing.Error(), nil, "")
	}
	// The rest of the task's error is the last line of the output, which was copied.
	return &exitError{err: fmt.Errorf("task %s %s: %s", id, document.TaskState(t.GetState()), status), code: status.ExitCode(), hint: hint}
}

// firstFailed returns the failed task of a job with the lowest index; nil if none
// failed.
func firstFailed(ctx context.Context, c *client.Client, job string) (*dtaskv1.Task, error) {
	for t, err := range c.Tasks(ctx, job, client.TaskFilter{States: failedStates}) {
		return t, err
	}
	return nil, nil //nolint:nilnil // none failed, which is not an error
}
