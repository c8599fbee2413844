package client

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// errCut is the error of a stream that ended too early: it is resumed at
// another coordinator.
var errCut = status.Error(codes.Unavailable, "stream ended early")

// TaskFilter selects tasks and their fields.
type TaskFilter struct {
	Task         string                   // only this task, the tasks of this array, or those with items of NAME[1-3]; empty = all
	Dependencies bool                     // fill Task.dependencies
	Results      bool                     // fill Task.result
	History      bool                     // fill Task.history
	Stale        bool                     // any replica may answer
	Fresh        func(*dtaskv1.Freshness) // as in ReadOptions
	// States selects tasks by state; empty = all.
	States []dtaskv1.TaskState
	// Brief omits tasks of arrays that neither failed nor run. Job.arrays, with
	// ReadOptions.Levels, counts them.
	Brief bool
}

func (f TaskFilter) request(job string) *dtaskv1.ListTasksRequest {
	return &dtaskv1.ListTasksRequest{
		Job: job, Task: f.Task, WithDependencies: f.Dependencies, WithResults: f.Results, WithHistory: f.History,
		Consistency: consistency(f.Stale), States: f.States, Brief: f.Brief,
	}
}

// MostUrgentTasks lists at most limit tasks of a job, from 1 to 1,000, the most urgent
// ones first: those that failed, run, wait for a retry, are pending, are blocked, were
// cancelled, and have completed. It also returns how many tasks f selects in total. It
// takes much less time than Tasks if these are many.
func (c *Client) MostUrgentTasks(ctx context.Context, job string, f TaskFilter, limit int) (tasks []*dtaskv1.Task, selected int, err error) {
	_, tasks, selected, err = c.mostUrgent(ctx, f.request(job), limit, f.Fresh)
	return tasks, selected, err
}

// JobWithTasks reads a job, with its levels, and what MostUrgentTasks lists, all in the
// same state. It takes less time than Job before MostUrgentTasks.
func (c *Client) JobWithTasks(ctx context.Context, id string, f TaskFilter, limit int) (job *dtaskv1.Job, tasks []*dtaskv1.Task, selected int, err error) {
	req := f.request(id)
	req.WithJob = true
	job, tasks, selected, err = c.mostUrgent(ctx, req, limit, f.Fresh)
	if err == nil && job == nil { // the coordinator is of a version without this field
		job, err = c.Job(ctx, id, ReadOptions{Stale: f.Stale, Levels: true, Fresh: f.Fresh})
	}
	return job, tasks, selected, err
}

func (c *Client) mostUrgent(ctx context.Context, req *dtaskv1.ListTasksRequest, limit int, fresh func(*dtaskv1.Freshness)) (job *dtaskv1.Job, tasks []*dtaskv1.Task, selected int, err error) {
	req.MostUrgent = uint32(max(limit, 1)) //nolint:gosec // checked by the coordinator
	name := "listing the tasks of job " + req.GetJob()
	if req.GetWithJob() {
		name = "reading job " + req.GetJob()
	}
	err = c.do(ctx, operation{
		name: name, stale: req.GetConsistency() == dtaskv1.Consistency_CONSISTENCY_STALE,
		run: func(ctx context.Context, t try) error {
			job, tasks, selected = nil, nil, 0
			return taskPages(ctx, t, req, func(page *dtaskv1.ListTasksResponse) error {
				report(fresh, page.GetFreshness())
				if page.GetJob() != nil {
					job = page.GetJob()
				}
				tasks = append(tasks, page.GetTasks()...)
				selected += int(page.GetSelected())
				return nil
			})
		},
	})
	return job, tasks, selected, err
}

// Tasks lists the tasks of a job in topological order. After a failure it
// resumes after the last task that was yielded. It ends with the first error.
func (c *Client) Tasks(ctx context.Context, job string, f TaskFilter) iter.Seq2[*dtaskv1.Task, error] {
	return func(yield func(*dtaskv1.Task, error) bool) {
		req := f.request(job)
		want := uint32(0) // lowest index that was not yielded
		stopped := false
		err := c.do(ctx, operation{
			name: "listing the tasks of job " + job, stale: f.Stale,
			run: func(ctx context.Context, t try) error {
				return taskPages(ctx, t, req, func(page *dtaskv1.ListTasksResponse) error {
					report(f.Fresh, page.GetFreshness())
					for _, task := range page.GetTasks() {
						if task.GetIndex() < want {
							continue
						}
						want = task.GetIndex() + 1
						if stopped = !yield(task, nil); stopped {
							return errDone
						}
					}
					return nil
				})
			},
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}

// taskPages calls do with each page of a listing of tasks. It ends with the first error.
func taskPages(ctx context.Context, t try, req *dtaskv1.ListTasksRequest, do func(*dtaskv1.ListTasksResponse) error) error {
	stream, err := t.jobs().ListTasks(ctx, req)
	if err != nil {
		return err
	}
	for {
		page, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		t.connected()
		if err := do(page); err != nil {
			return err
		}
	}
}

// Ended reports whether a state is final. Only Retry leaves it.
func Ended(s dtaskv1.JobState) bool {
	switch s {
	case dtaskv1.JobState_JOB_STATE_COMPLETED, dtaskv1.JobState_JOB_STATE_FAILED, dtaskv1.JobState_JOB_STATE_CANCELLED:
		return true
	case dtaskv1.JobState_JOB_STATE_UNSPECIFIED, dtaskv1.JobState_JOB_STATE_PENDING, dtaskv1.JobState_JOB_STATE_RUNNING:
	}
	return false
}

// Wait waits until a job has ended and returns it.
func (c *Client) Wait(ctx context.Context, id string) (*dtaskv1.Job, error) {
	var last *dtaskv1.Job
	for job, err := range c.Watch(ctx, id) {
		if err != nil {
			return nil, err
		}
		last = job
	}
	return last, nil
}
