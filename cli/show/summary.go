package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/internal/statetext"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A tally is what the tasks of a finished job add up to.
type tally struct {
	perWorker map[string]int // completed tasks by the name of the worker
	retries   uint64         // of the completed tasks
	failed    []*dtaskv1.Task
	tried     uint64 // tasks with attempts that did not complete
	skipped   uint32 // tasks that were cancelled because they were not needed
}

func newTally(tasks []*dtaskv1.Task) tally {
	t := tally{perWorker: make(map[string]int)}
	for _, task := range tasks {
		switch task.GetState() { //nolint:exhaustive // a finished job has no others
		case dtaskv1.TaskState_TASK_STATE_COMPLETED, dtaskv1.TaskState_TASK_STATE_AGGREGATED:
			t.perWorker[executedBy(task)]++
			t.retries += uint64(task.GetRetries())
			continue
		case dtaskv1.TaskState_TASK_STATE_FAILED, dtaskv1.TaskState_TASK_STATE_DEAD, dtaskv1.TaskState_TASK_STATE_LOST:
			t.failed = append(t.failed, task)
		case dtaskv1.TaskState_TASK_STATE_CANCELLED:
			if statetext.Skipped(task.GetError()) {
				t.skipped++
			}
		}
		if task.GetAttempt() > 0 {
			t.tried++
		}
	}
	return t
}

// failures returns how many attempts of the job failed or were lost, and how many of
// these failures its tasks recovered from by completing later.
func (t tally) failures(j *dtaskv1.Job) (recovered, all uint64) {
	all = j.GetRetries()
	for _, task := range t.failed {
		if task.GetAttempt() > 0 {
			all++ // the last attempt, which no other follows
		}
	}
	// After dtaskctl retry, a task counts its retries from 0 again, and the job does not. So
	// the sum over the tasks is too low if all of them completed in the end.
	if t.tried == 0 {
		return all, all
	}
	return min(t.retries, j.GetRetries()), all
}

// Summary adds how a job finished: total time, recovered failures, tasks per
// worker, and the first failed tasks or how to read the result.
func (p *Printer) Summary(j *dtaskv1.Job, tasks []*dtaskv1.Task) {
	const maxFailed = 5
	t := newTally(tasks)
	p.Line("%s", finished(j, t.skipped))
	recovered, all := t.failures(j)
	of := ""
	if all > recovered {
		of = " of " + Count(all)
	}
	p.Line("failures recovered: %s%s", Count(recovered), of)
	if len(t.perWorker) > 0 {
		p.Line("tasks per worker: %s", formatWorkerCounts(t.perWorker))
	}
	if why := SkippedJob(j); why != "" {
		p.Line("%s", Clean(why))
	} else if j.GetState() == dtaskv1.JobState_JOB_STATE_COMPLETED {
		p.Line("result: dtaskctl result %s", j.GetId())
	}
	for _, t := range t.failed[:min(len(t.failed), maxFailed)] {
		attempt := ""
		if t.GetAttempt() > 0 {
			attempt = fmt.Sprintf("%s in attempt %d", OnWorker(t), t.GetAttempt())
		}
		p.Line("  %s/%s: %s%s: %s", j.GetId(), Clean(t.GetId()), document.TaskState(t.GetState()), attempt, Clean(t.GetError()))
	}
	if len(t.failed) > maxFailed {
		p.Line("  … and %s more failed tasks", Count(len(t.failed)-maxFailed))
	}
}

// OnWorker returns where the last attempt of a task was, for sentences: " on w1".
func OnWorker(t *dtaskv1.Task) string {
	if t.GetWorker() == "" {
		return ""
	}
	return " on " + Clean(t.GetWorker())
}

// executedBy names the worker that completed a task, if one did.
func executedBy(t *dtaskv1.Task) string {
	if t.GetReusedTask() != "" {
		return "(reused)"
	}
	return Clean(t.GetWorker())
}

// formatWorkerCounts lists the busiest workers with their numbers of tasks.
func formatWorkerCounts(counts map[string]int) string {
	const maxWorkers = 12
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	var parts []string
	for _, name := range names[:min(len(names), maxWorkers)] {
		parts = append(parts, name+" "+Count(counts[name]))
	}
	if more := len(names) - maxWorkers; more > 0 {
		parts = append(parts, fmt.Sprintf("… and %d more", more))
	}
	return strings.Join(parts, ", ")
}
