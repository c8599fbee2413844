package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxTaskRows is how many tasks a table shows; JSON has all.
const maxTaskRows = 100

func newStatus(a *app) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status [JOB[/TASK]]",
		Short: "Show a job and its tasks, one task, or the cluster and what runs",
		Long: `Show a job and its tasks, one task with how its attempts ended, or the cluster
and what runs. Of an array, the tasks that failed or run and how many are in
which state; JOB/ARRAY shows each of its tasks. The exit code is 0 for a failed
job too.`,
		Example: `  dtaskctl status
  dtaskctl status 42
  dtaskctl status 42/fetch
  dtaskctl status '42/map[17]'
  dtaskctl status 42 --watch
  dtaskctl status 42 -o json`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch && !a.people() {
				return &usageError{err: fmt.Errorf("--watch draws again and again, which -o %s cannot", a.output), command: cmd.CommandPath()}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			if len(args) == 0 {
				return a.statusOfCluster(cmd.Context(), c, watch)
			}
			job, task, err := taskRef(args[0])
			if err != nil {
				return err
			}
			return a.statusOfJob(cmd.Context(), c, job, task, watch)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "draw again after each change, until the job has ended")
	return cmd
}

// statusOfJob shows a job, or one task of it if task is not empty.
func (a *app) statusOfJob(ctx context.Context, c *client.Client, id, task string, watch bool) error {
	draw := func() error { return a.jobOnce(ctx, c, id) }
	if task != "" {
		draw = func() error { return a.taskOnce(ctx, c, id, task) }
	}
	if !watch {
		return draw()
	}
	for _, err := range c.Watch(ctx, id) {
		if err != nil {
			return err
		}
		if err := a.redraw(draw); err != nil {
			return err
		}
	}
	return nil
}

// jobOnce reads the job first and its tasks after, so that the tasks are never
// behind the job.
func (a *app) jobOnce(ctx context.Context, c *client.Client, id string) error {
	job, err := c.Job(ctx, id, client.ReadOptions{Levels: true})
	if err != nil {
		return err
	}
	var tasks []*dtaskv1.Task
	// Of arrays people see how many tasks are in which state, and those that failed
	// or run.
	for task, err := range c.Tasks(ctx, id, client.TaskFilter{Brief: a.people()}) {
		if err != nil {
			return err
		}
		tasks = append(tasks, task)
	}
	doc := document.NewJobWithTasks(job, tasks)
	return a.print(doc, func(w io.Writer) error {
		if err := a.jobHead(w, job); err != nil {
			return err
		}
		if err := a.arraysTable(w, job.GetArrays()); err != nil {
			return err
		}
		if len(tasks) == 0 && len(job.GetArrays()) > 0 {
			return nil
		}
		return a.tasksTable(w, tasks)
	})
}

// arraysTable shows how far the arrays of a job are.
func (a *app) arraysTable(w io.Writer, arrays []*dtaskv1.ArrayStatus) error {
	if len(arrays) == 0 {
		return nil
	}
	t := show.NewTable(a.paint(w), "ARRAY", "TASKS", "AT ONCE", "TASKS BY STATE")
	for _, one := range arrays[:min(len(arrays), maxTaskRows)] {
		atOnce := ""
		if one.GetMaxParallel() > 0 {
			atOnce = show.Count(one.GetMaxParallel())
		}
		t.Row(one.GetId(), show.Count(one.GetTasks()), atOnce, show.States(one.GetTasksByState()))
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if left := len(arrays) - maxTaskRows; left > 0 {
		if _, err := fmt.Fprintf(w, "… %s more; -o json has all\n", show.Plural(left, "array")); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// jobHead shows a job without its tasks to people.
func (a *app) jobHead(w io.Writer, j *dtaskv1.Job) error {
	now, paint := a.now(), a.paint(w)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s  %s\n", paint.Bold("job "+j.GetId()), show.Clean(j.GetName()), paint.State(document.JobState(j.GetState())))
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-10s %s\n", name, show.Clean(value))
		}
	}
	row("owner", j.GetOwner())
	row("priority", document.Priority(j.GetPriority()))
	row("labels", show.Labels(j.GetLabels()))
	row("submitted", show.Ago(j.GetSubmittedAt(), now))
	row("took", show.Took(j.GetStartedAt(), j.GetCompletedAt(), now))
	tasks := fmt.Sprintf("%s of %s completed", show.Count(j.GetTasksCompleted()), show.Count(j.GetTasksTotal()))
	if detail := progressOf(j).detail; detail != "" {
		tasks += ", " + detail
	}
	row("tasks", tasks)
	if j.GetOutcome() != dtaskv1.JobState_JOB_STATE_UNSPECIFIED {
		row("outcome", document.JobState(j.GetOutcome())+", cleaning up")
	}
	if n := j.GetFailuresTolerated(); n > 0 {
		row("note", fmt.Sprintf("%s borne of %s", show.Plural(n, "failure"), show.Count(j.GetMaxFailures())))
	}
	row("retries", show.Count(j.GetRetries()))
	if len(j.GetLevels()) > 0 {
		row("levels", show.Levels(j.GetLevels()))
	}
	row("error", j.GetError())
	b.WriteByte('\n')
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// tasksTable shows tasks to people: of many, those that want attention.
func (a *app) tasksTable(w io.Writer, tasks []*dtaskv1.Task) error {
	now, left := a.now(), 0
	if len(tasks) > maxTaskRows {
		tasks = slices.Clone(tasks)
		slices.SortStableFunc(tasks, func(x, y *dtaskv1.Task) int { return cmp.Compare(interest(x), interest(y)) })
		left = len(tasks) - maxTaskRows
		tasks = tasks[:maxTaskRows]
	}
	t := show.NewTable(a.paint(w), "TASK", "STATE", "ATTEMPT", "WORKER", "STARTED", "TOOK", "NOTE")
	for _, task := range tasks {
		attempt := ""
		if task.GetAttempt() > 0 {
			attempt = fmt.Sprint(task.GetAttempt())
		}
		state := document.TaskState(task.GetState())
		note := task.GetError()
		if job := task.GetReusedJob(); job != "" {
			note = "result of " + job + "/" + task.GetReusedTask()
		}
		if p := task.GetProgressPermille(); p > 0 && state == "running" {
			note = fmt.Sprintf("%d%% %s", p/10, task.GetProgressText())
		}
		t.Row(task.GetId(), state, attempt, task.GetWorker(), show.Ago(task.GetStartedAt(), now),
			show.Took(task.GetStartedAt(), task.GetCompletedAt(), now), note)
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if left > 0 {
		if _, err := fmt.Fprintf(w, "… %s more; -o json has all\n", show.Plural(left, "task")); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
	}
	return nil
}

// interest orders tasks: what went wrong, what goes on, what waits, what is done.
func interest(t *dtaskv1.Task) int {
	switch t.GetState() {
	case dtaskv1.TaskState_TASK_STATE_FAILED, dtaskv1.TaskState_TASK_STATE_DEAD, dtaskv1.TaskState_TASK_STATE_LOST:
		return 0
	case dtaskv1.TaskState_TASK_STATE_RUNNING, dtaskv1.TaskState_TASK_STATE_ASSIGNED:
		return 1
	case dtaskv1.TaskState_TASK_STATE_SCHEDULED:
		return 2
	case dtaskv1.TaskState_TASK_STATE_PENDING:
		return 3
	case dtaskv1.TaskState_TASK_STATE_BLOCKED, dtaskv1.TaskState_TASK_STATE_UNSPECIFIED:
		return 4
	case dtaskv1.TaskState_TASK_STATE_CANCELLED:
		return 5
	case dtaskv1.TaskState_TASK_STATE_COMPLETED, dtaskv1.TaskState_TASK_STATE_AGGREGATED:
	}
	return 6
}

func (a *app) statusOfCluster(ctx context.Context, c *client.Client, watch bool) error {
	if !watch {
		return a.clusterOnce(ctx, c)
	}
	// There is no stream of changes of everything: look every two seconds.
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		if err := a.redraw(func() error { return a.clusterOnce(ctx, c) }); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (a *app) clusterOnce(ctx context.Context, c *client.Client) error {
	status, err := c.ClusterStatus(ctx)
	if err != nil {
		return err
	}
	jobs := []*dtaskv1.Job{}
	if status.GetLeader() != "" { // without one nobody can tell what runs
		active := client.JobFilter{States: []dtaskv1.JobState{dtaskv1.JobState_JOB_STATE_PENDING, dtaskv1.JobState_JOB_STATE_RUNNING}, Limit: maxTaskRows}
		for job, err := range c.Jobs(ctx, active) {
			if err != nil {
				return err
			}
			jobs = append(jobs, job)
		}
	}
	doc := document.NewStatus(status, jobs)
	return a.print(doc, func(w io.Writer) error {
		if err := a.clusterTable(w, status); err != nil {
			return err
		}
		if len(jobs) == 0 {
			if _, err := fmt.Fprintln(w, "\nno job is waiting or running"); err != nil {
				return fmt.Errorf("writing: %w", err)
			}
			return nil
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		return a.jobsTable(w, jobs)
	})
}

// redraw draws in place on a terminal, and one below the other elsewhere.
func (a *app) redraw(draw func() error) error {
	out := a.out
	defer func() { a.out = out }()
	terminal := isTerminal(out)
	paint := a.paint(out)
	var screen bytes.Buffer
	a.out = &screen
	color := a.color
	if a.color = "never"; paint {
		a.color = "always" // the buffer is no terminal, but what it holds goes to one
	}
	err := draw()
	a.color = color
	if err != nil {
		return err
	}
	before := ""
	if terminal {
		before = "\x1b[H\x1b[2J"
	}
	if _, err := fmt.Fprintf(out, "%s%s\n", before, screen.Bytes()); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
