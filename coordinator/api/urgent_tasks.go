package api

import (
	"context"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// urgency orders the states of tasks, the most urgent ones first. A user who can't see
// all tasks of a job sees the most urgent ones.
var urgency = [...]uint8{
	dtaskv1.TaskState_TASK_STATE_FAILED:     0,
	dtaskv1.TaskState_TASK_STATE_DEAD:       0,
	dtaskv1.TaskState_TASK_STATE_LOST:       0,
	dtaskv1.TaskState_TASK_STATE_RUNNING:    1,
	dtaskv1.TaskState_TASK_STATE_ASSIGNED:   1,
	dtaskv1.TaskState_TASK_STATE_SCHEDULED:  2,
	dtaskv1.TaskState_TASK_STATE_PENDING:    3,
	dtaskv1.TaskState_TASK_STATE_BLOCKED:    4,
	dtaskv1.TaskState_TASK_STATE_CANCELLED:  5,
	dtaskv1.TaskState_TASK_STATE_COMPLETED:  6,
	dtaskv1.TaskState_TASK_STATE_AGGREGATED: 6,
}

// leastUrgent is the highest value in urgency.
const leastUrgent = 6

// mostUrgent returns the indexes of the limit most urgent tasks that the filter selects
// of those from first up to but not including end, and how many it selects. It reads
// the state of each task, and no task as a whole. Of a whole job it knows the number of
// tasks in each state before, and ends with the last one that it returns.
func (f *taskFilter) mostUrgent(ctx context.Context, first, end, limit uint32) (indexes []uint32, selected uint32, err error) {
	quota, known := f.quota(first, end, limit)
	var found [leastUrgent + 1][]uint32
	left := min(limit, f.tasks.job.Total)
	for i, state := range f.selected(ctx, first, end) {
		selected++
		u := urgency[state]
		if len(found[u]) == int(quota[u]) {
			continue
		}
		found[u] = append(found[u], i)
		if left--; known && left == 0 {
			selected = f.tasks.job.Total
			break
		}
	}
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	indexes = slices.Concat(found[:]...)
	return indexes[:min(len(indexes), int(limit))], selected, nil
}

// quota returns how many tasks of each urgency may be among the limit most urgent ones.
// If the filter selects the whole job, that is known exactly.
func (f *taskFilter) quota(first, end, limit uint32) (quota [leastUrgent + 1]uint32, known bool) {
	job := f.tasks.job
	if f.brief || len(f.states) > 0 || end-first < job.Total {
		for u := range quota {
			quota[u] = limit
		}
		return quota, false
	}
	for state, n := range job.Counts {
		quota[urgency[shownTaskStates[state]]] += n
	}
	for u := range quota {
		quota[u] = min(quota[u], limit)
		limit -= quota[u]
	}
	return quota, true
}
