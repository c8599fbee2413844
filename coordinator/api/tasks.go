package api

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxPageTasks bounds the tasks of one page of ListTasks.
const maxPageTasks = 1000

// shownTaskStates are the stored task states as callers see them.
var shownTaskStates = map[fsm.TaskState]dtaskv1.TaskState{
	fsm.Blocked:   dtaskv1.TaskState_TASK_STATE_BLOCKED,
	fsm.Scheduled: dtaskv1.TaskState_TASK_STATE_SCHEDULED,
	fsm.Pending:   dtaskv1.TaskState_TASK_STATE_PENDING,
	fsm.Assigned:  dtaskv1.TaskState_TASK_STATE_ASSIGNED,
	fsm.Completed: dtaskv1.TaskState_TASK_STATE_COMPLETED,
	fsm.Failed:    dtaskv1.TaskState_TASK_STATE_FAILED,
	fsm.Cancelled: dtaskv1.TaskState_TASK_STATE_CANCELLED,
	fsm.Dead:      dtaskv1.TaskState_TASK_STATE_DEAD,
	fsm.Lost:      dtaskv1.TaskState_TASK_STATE_LOST,
}

// ListTasks implements JobService.
func (j *jobs) ListTasks(r *dtaskv1.ListTasksRequest, stream grpc.ServerStreamingServer[dtaskv1.ListTasksResponse]) error {
	ctx := stream.Context()
	id, err := jobID(r.GetJob())
	if err != nil {
		return err
	}
	if err = j.allow(ctx, r.GetConsistency()); err != nil {
		return err
	}
	seen := j.observed(id)
	st, job, index, err := j.fork(id)
	if err != nil {
		return err
	}
	first, end := uint32(0), job.Total
	if name := r.GetTask(); name != "" {
		var ok bool
		if first, end, ok = findNamed(st, id, name); !ok {
			return noSuchTask(st, id, name)
		}
	}
	wanted, err := newTaskFilter(st, id, r)
	if err != nil {
		return err
	}
	tasks := taskReader{st: st, job: job, seen: seen, dependencies: r.GetWithDependencies(), results: r.GetWithResults(), history: r.GetWithHistory()}
	page, size := &dtaskv1.ListTasksResponse{Freshness: j.freshness(index)}, 0
	for i := first; i < end; i++ {
		if i%walkStride == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if wanted.skips(&tasks, i) {
			continue
		}
		t := tasks.read(i)
		if !wanted.match(t) {
			continue
		}
		n := proto.Size(t)
		if len(page.GetTasks()) == maxPageTasks || (size+n > maxPage && size > 0) {
			if err := stream.Send(page); err != nil {
				return err
			}
			page, size = &dtaskv1.ListTasksResponse{}, 0
		}
		page.Tasks = append(page.Tasks, t)
		size += n
	}
	return stream.Send(page)
}

// findNamed finds the tasks, from the first up to, not including, end, that a name means: those
// of an array, one task, or all that execute items of a range of an array.
func findNamed(st *fsm.State, id fsm.JobID, name string) (first, end uint32, ok bool) {
	if ref, ok := st.FindArray(id, name); ok {
		return ref.Index, ref.Index + st.Span(ref), true
	}
	if ref, ok := st.FindTask(id, name); ok {
		return ref.Index, ref.Index + 1, true
	}
	for _, a := range st.Arrays(id) {
		if k, behind, ok := a.Covering(name); ok && k < behind {
			return a.First + k, a.First + behind, true
		}
	}
	return 0, 0, false
}

// taskReader shows the tasks of one job.
type taskReader struct {
	st   *fsm.State
	job  fsm.Job
	seen map[uint32]sequencer.Observation

	dependencies, results, history bool
}

func (r *taskReader) read(i uint32) *dtaskv1.Task {
	ref := fsm.TaskRef{Job: r.job.ID, Index: i}
	t, _ := r.st.Task(ref)
	left := r.st.Result(ref)
	view := &dtaskv1.Task{
		Id: r.st.Name(ref), Index: i, State: shownTaskStates[t.State], Attempt: t.Attempt, Error: left.Error,
		StartedAt: t.StartedMS, CompletedAt: t.EndedMS, Retries: max(t.Attempt, 1) - 1, DueAt: t.DueMS,
		Type: r.st.TaskType(ref),
	}
	if a, ok := r.st.ArrayTask(ref); ok {
		view.Array = a.Name
	}
	if left.ReusedJob != 0 {
		view.ReusedJob, view.ReusedTask = strconv.FormatUint(uint64(left.ReusedJob), 10), left.ReusedTask
	}
	if w := r.st.Worker(t.Worker); w != nil {
		view.Worker = w.Name
	}
	if c, ok := r.st.Checkpoint(ref); ok {
		view.CheckpointAt = c.AtMS
	}
	if o, ok := r.seen[i]; ok && t.State == fsm.Assigned && o.Attempt == t.Attempt {
		view.State = dtaskv1.TaskState_TASK_STATE_RUNNING
		view.StartedAt, view.ProgressPermille, view.ProgressText = o.StartedMS, o.Permille, o.Text
	}
	if isAggregated(r.st, r.job.State, ref, t.State) {
		view.State = dtaskv1.TaskState_TASK_STATE_AGGREGATED
	}
	if r.dependencies {
		view.Dependencies = r.st.Dependencies(ref)
	}
	if r.results {
		view.Result = left.Data
	}
	if r.history {
		view.History = r.past(ref)
	}
	return view
}
