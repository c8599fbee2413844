package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// taskOnce shows one task with what became of its attempts.
func (a *app) taskOnce(ctx context.Context, c *client.Client, job, id string) error {
	var tasks []*dtaskv1.Task
	for t, err := range c.Tasks(ctx, job, client.TaskFilter{Task: id, History: true}) {
		if err != nil {
			return err
		}
		tasks = append(tasks, t)
	}
	if len(tasks) > 1 || len(tasks) > 0 && tasks[0].GetArray() == id {
		return a.arrayOnce(job, id, tasks)
	}
	task := tasks[len(tasks)-1]
	return a.print(document.NewTaskWithHistory(job, task), func(w io.Writer) error { return a.task(w, job, task) })
}

// arrayOnce shows the tasks of an array.
func (a *app) arrayOnce(job, id string, tasks []*dtaskv1.Task) error {
	doc := document.NewArrayWithTasks(job, id, tasks)
	return a.print(doc, func(w io.Writer) error { return a.tasksTable(w, tasks) })
}

// task shows a task to people.
func (a *app) task(w io.Writer, job string, t *dtaskv1.Task) error {
	now, paint := a.now(), a.paint(w)
	state := document.TaskState(t.GetState())
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
	row("checkpoint", show.Ago(t.GetCheckpointAt(), now))
	if len(t.GetHistory()) == 0 || t.GetHistory()[len(t.GetHistory())-1].GetError() != t.GetError() {
		row("error", t.GetError()) // the history tells it otherwise
	}
	a.history(&b, t.GetHistory())
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
