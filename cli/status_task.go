package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// taskOnce shows one task with what became of its attempts.
func (a *app) taskOnce(ctx context.Context, c *client.Client, job, id string) error {
	var task *dtaskv1.Task
	for t, err := range c.Tasks(ctx, job, client.TaskFilter{Task: id, History: true}) {
		if err != nil {
			return err
		}
		task = t
	}
	return a.print(show.TaskWithHistoryOf(job, task), func(w io.Writer) error { return a.task(w, job, task) })
}

// task shows a task to people.
func (a *app) task(w io.Writer, job string, t *dtaskv1.Task) error {
	now, paint := a.now(), a.paint(w)
	state := show.TaskState(t.GetState())
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s\n", paint.Bold("task "+job+"/"+show.Clean(t.GetId())), paint.State(state))
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-10s %s\n", name, show.Clean(value))
		}
	}
	row("type", t.GetType())
	if t.GetAttempt() > 0 {
		row("attempt", show.Count(t.GetAttempt()))
	}
	row("worker", t.GetWorker())
	row("started", show.Ago(t.GetStartedAt(), now))
	if t.GetDueAt() == 0 {
		row("took", show.Took(t.GetStartedAt(), t.GetCompletedAt(), now))
	} else {
		row("due", clock(t.GetDueAt()))
	}
	if p := t.GetProgressPermille(); p > 0 && state == "running" {
		row("progress", fmt.Sprintf("%d%% %s", p/10, t.GetProgressText()))
	}
	if len(t.GetHistory()) == 0 || t.GetHistory()[len(t.GetHistory())-1].GetError() != t.GetError() {
		row("error", t.GetError()) // the history tells it otherwise
	}
	a.history(&b, t.GetHistory())
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
