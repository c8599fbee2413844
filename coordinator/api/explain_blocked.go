package api

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxWalked bounds the dependencies that are followed for one answer.
const maxWalked = 100_000

// blocked explains what a task waits for: other jobs, the ordinary tasks of its job, or
// the tasks at the start of its chains of dependencies that have not ended.
func (x *explainer) blocked() {
	switch {
	case x.job.Waiting:
		x.waitsForJobs()
	case x.job.Gated && !x.task.Cleanup:
		x.gate()
	case x.task.Cleanup && x.job.Outcome == 0:
		counts, _ := x.st.CountStates(x.job.ID, 0, x.job.Ordinary)
		x.add(&dtaskv1.Reason{Code: "waits_for_ordinary_tasks", Want: unended(counts[:]), Total: int64(x.job.Ordinary), Unit: "tasks"})
	default:
		x.waitsForTasks()
	}
}

// waitsForJobs adds the jobs that have not ended as the job needs it.
func (x *explainer) waitsForJobs() {
	for k, n := range x.job.Header.GetNeeds() {
		if k < len(x.job.NeedEnds) && x.job.NeedEnds[k] == 0 {
			x.add(&dtaskv1.Reason{Code: "waits_for_job", Job: formatJobID(fsm.JobID(n.GetJob())), Detail: conditionName(n.GetCondition())})
		}
	}
}

// conditionName is a condition as users write it.
func conditionName(c dtaskv1.Condition) string {
	c = max(c, dtaskv1.Condition_CONDITION_COMPLETED)
	return strings.ToLower(strings.TrimPrefix(c.String(), "CONDITION_"))
}

// waitsForTasks adds the open tasks before the task that are not blocked themselves.
func (x *explainer) waitsForTasks() {
	walked, next, more := map[uint32]bool{}, x.st.Dependencies(x.at), 0
	for ; len(next) > 0 && x.walks > 0; x.walks-- {
		head := next[0]
		if next = next[1:]; walked[head] {
			continue
		}
		walked[head] = true
		ref := x.ref(head)
		counts, _ := x.st.CountStates(x.job.ID, head, head+x.st.Span(ref))
		switch open := unended(counts[:]); {
		case open == 0:
		case counts[fsm.Blocked] > 0:
			next = append(next, x.st.Dependencies(ref)...)
		case len(x.resp.GetReasons()) == maxExplainedNames:
			more++
		default:
			x.add(x.waitsForTask(ref, open))
		}
	}
	if more > 0 || len(x.resp.GetReasons()) == 0 {
		// In a state without open tasks before it, it would not be blocked.
		x.add(&dtaskv1.Reason{Code: "waits_for_more_tasks", Want: int64(more), Unit: "tasks"})
	}
}

// unended is the number of tasks that have not ended, of those counted by state.
func unended(counts []uint32) (n int64) {
	for state, count := range counts {
		if !fsm.TaskState(state).Terminal() { //nolint:gosec // a state
			n += int64(count)
		}
	}
	return n
}

// waitsForTask is a task, or an array with open tasks, that the task waits for.
func (x *explainer) waitsForTask(ref fsm.TaskRef, open int64) *dtaskv1.Reason {
	r := &dtaskv1.Reason{Code: "waits_for_array", Want: open, Unit: "tasks"}
	if a, ok := x.st.ArrayTask(ref); ok {
		r.Task, r.Total = a.Name, int64(a.Count)
		ref.Index = x.firstOpen(a)
	} else {
		t, _ := x.st.Task(ref)
		r = &dtaskv1.Reason{Code: "waits_for_task", Task: x.st.Name(ref), Detail: stateName(x.state(ref.Index, t.AttemptState()))}
	}
	if why := x.reasonOf(ref); why != nil {
		r.CauseCode, r.Cause = why.GetCode(), sentence(why)
	}
	return r
}

// firstOpen returns the first task of an array that has not ended.
func (x *explainer) firstOpen(a fsm.ArrayTask) uint32 {
	for i, t := range x.st.AttemptStates(x.job.ID, a.First, a.First+a.Count) {
		if !t.State.Terminal() {
			return i
		}
	}
	return a.First
}

// reasonOf returns the most important reason why another task of the job is in its state,
// as far as the state has it; nil for a task that is blocked or has ended.
func (x *explainer) reasonOf(ref fsm.TaskRef) *dtaskv1.Reason {
	y := newExplainer(x.taskReader, ref, &sequencer.Explanation{}, x.caller)
	switch y.task.State {
	case fsm.Scheduled:
		y.scheduled()
	case fsm.Assigned:
		y.assigned()
	case fsm.Pending:
		if unmet := x.unmetDemand(ref); unmet != nil {
			r := proto.CloneOf(unmet)
			r.Code = "no_suitable_worker"
			return r
		}
		return &dtaskv1.Reason{Code: "waits_for_worker"}
	case fsm.Blocked, fsm.Completed, fsm.Failed, fsm.Cancelled, fsm.Dead, fsm.Lost:
		return nil
	}
	return y.resp.GetReasons()[0]
}

// stateName is the name of a task's state as users see it.
func stateName(s dtaskv1.TaskState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "TASK_STATE_"))
}

// firstCause follows the dependencies of a cancelled task to the task whose end is the
// cause, and adds it. If there are too many tasks between them, it is not found.
func (x *explainer) firstCause() {
	ref, found := x.at, false
	for range maxWalked {
		next, ok := x.cancelledBecauseOf(ref)
		if !ok {
			break
		}
		ref, found = next, true
	}
	if found && x.scanned <= maxScanned {
		t, _ := x.st.Task(ref)
		x.add(&dtaskv1.Reason{
			Code: "first_cause", Task: x.st.Name(ref), Attempt: t.Attempt,
			Detail: strings.TrimSpace(stateName(x.state(ref.Index, t.AttemptState())) + ": " + x.st.Result(ref).Error),
		})
	}
}

// cancelledBecauseOf returns the dependency because of which a task was cancelled; false if
// maxScanned were looked at.
func (x *explainer) cancelledBecauseOf(ref fsm.TaskRef) (fsm.TaskRef, bool) {
	if t, _ := x.st.Task(ref); t.State != fsm.Cancelled || !strings.HasPrefix(x.st.Result(ref).Error, "dependency ") {
		return ref, false
	}
	for _, head := range x.st.Dependencies(ref) {
		for i, t := range x.st.AttemptStates(x.job.ID, head, head+x.st.Span(x.ref(head))) {
			if x.scanned++; x.scanned > maxScanned {
				return ref, false
			}
			switch t.State {
			case fsm.Failed, fsm.Dead, fsm.Lost, fsm.Cancelled:
				return x.ref(i), true
			case fsm.Blocked, fsm.Scheduled, fsm.Pending, fsm.Assigned, fsm.Completed:
			}
		}
	}
	return ref, false
}
