package api

import (
	"context"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// arrays counts the tasks of each array of a job by state.
func arrays(ctx context.Context, st *fsm.State, job fsm.Job, seen map[uint32]sequencer.Observation) ([]*dtaskv1.ArrayStatus, error) {
	var list []*dtaskv1.ArrayStatus
	for _, a := range st.Arrays(job.ID) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		view := &dtaskv1.ArrayStatus{
			Id: a.Name, First: a.First, Tasks: a.Count, Items: a.Items, MaxParallel: a.MaxParallel, TasksByState: make(map[string]uint32),
		}
		leaf := job.State == fsm.JobCompleted && st.Dependents(fsm.TaskRef{Job: job.ID, Index: a.First}) == 0
		var counts [256]uint32
		running := uint32(0)
		for i := a.First; i < a.First+a.Count; i++ {
			attempt, state := st.AttemptState(fsm.TaskRef{Job: job.ID, Index: i})
			counts[state]++
			if o, ok := seen[i]; ok && state == fsm.Assigned && o.Attempt == attempt {
				running++
			}
		}
		counts[fsm.Assigned] -= running
		for state, n := range &counts {
			name := fsm.TaskState(state).String() //nolint:gosec // a byte
			if leaf && fsm.TaskState(state) == fsm.Completed {
				name = nameAggregated
			}
			if n > 0 {
				view.TasksByState[name] = n
			}
		}
		if running > 0 {
			view.TasksByState[nameRunning] = running
		}
		list = append(list, view)
	}
	return list, nil
}

// taskFilter is what ListTasks looks for.
type taskFilter struct {
	states map[dtaskv1.TaskState]bool // empty = all
	brief  bool
	arrays []fsm.ArrayTask
}

func newTaskFilter(st *fsm.State, id fsm.JobID, r *dtaskv1.ListTasksRequest) (*taskFilter, error) {
	f := &taskFilter{states: make(map[dtaskv1.TaskState]bool), brief: r.GetBrief(), arrays: st.Arrays(id)}
	for _, s := range r.GetStates() {
		if _, known := dtaskv1.TaskState_name[int32(s)]; !known || s == dtaskv1.TaskState_TASK_STATE_UNSPECIFIED {
			return nil, invalid("states: %d is not a state of a task", s)
		}
		f.states[s] = true
	}
	return f, nil
}

// skips reports, without reading a task whole, whether it is left out because it
// is one of an array that needs no attention.
func (f *taskFilter) skips(r *taskReader, i uint32) bool {
	if !f.brief || len(f.arrays) == 0 {
		return false
	}
	ref := fsm.TaskRef{Job: r.job.ID, Index: i}
	if _, ok := r.st.ArrayTask(ref); !ok {
		return false
	}
	attempt, state := r.st.AttemptState(ref)
	switch state {
	case fsm.Failed, fsm.Dead, fsm.Lost:
		return false
	case fsm.Assigned:
		o, heard := r.seen[i]
		return !heard || o.Attempt != attempt
	case fsm.Blocked, fsm.Scheduled, fsm.Pending, fsm.Completed, fsm.Cancelled:
	}
	return true
}

func (f *taskFilter) match(t *dtaskv1.Task) bool { return len(f.states) == 0 || f.states[t.GetState()] }
