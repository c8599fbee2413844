package show

import (
	"slices"
	"strings"
	"testing"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// summaryOf returns the lines of the summary of a job with these tasks.
func summaryOf(retries uint64, tasks ...*dtaskv1.Task) []string {
	job := &dtaskv1.Job{
		Id: "7", Name: "x", State: dtaskv1.JobState_JOB_STATE_COMPLETED, Retries: retries,
		TasksTotal: uint32(len(tasks)), TasksByState: make(map[string]uint32),
	}
	for _, t := range tasks {
		switch t.GetState() {
		case dtaskv1.TaskState_TASK_STATE_COMPLETED:
			job.TasksCompleted++
		case dtaskv1.TaskState_TASK_STATE_CANCELLED:
			job.TasksByState["cancelled"]++
		case dtaskv1.TaskState_TASK_STATE_DEAD:
			job.TasksByState["dead"]++
		}
	}
	p := NewPrinter(false, time.Time{})
	p.Summary(job, tasks)
	return strings.Split(string(p.Bytes()), "\n")
}

func TestOnlyFailuresOfTasksThatCompletedAreRecovered(t *testing.T) {
	t.Parallel()
	completed := func(retries uint32) *dtaskv1.Task {
		return &dtaskv1.Task{State: dtaskv1.TaskState_TASK_STATE_COMPLETED, Attempt: retries + 1, Retries: retries}
	}
	dead := func(retries uint32) *dtaskv1.Task {
		return &dtaskv1.Task{State: dtaskv1.TaskState_TASK_STATE_DEAD, Attempt: retries + 1, Retries: retries}
	}
	// The job was stopped while the task waited for its next attempt.
	stopped := func(retries uint32) *dtaskv1.Task {
		return &dtaskv1.Task{State: dtaskv1.TaskState_TASK_STATE_CANCELLED, Attempt: retries, Retries: retries}
	}
	for name, c := range map[string]struct {
		retries uint64
		tasks   []*dtaskv1.Task
		want    string
	}{
		"no failures":                      {0, []*dtaskv1.Task{completed(0), completed(0)}, "0"},
		"all tasks completed":              {3, []*dtaskv1.Task{completed(3), completed(0)}, "3"},
		"the only task died":               {2, []*dtaskv1.Task{dead(2)}, "0 of 3"},
		"one completed, one died":          {5, []*dtaskv1.Task{completed(3), dead(2)}, "3 of 6"},
		"one completed, one was stopped":   {5, []*dtaskv1.Task{completed(3), stopped(2)}, "3 of 5"},
		"completed after dtaskctl retry":   {2, []*dtaskv1.Task{completed(0)}, "2"},
		"died again after dtaskctl retry":  {4, []*dtaskv1.Task{completed(1), dead(1)}, "1 of 5"},
		"a task that was never attempted":  {1, []*dtaskv1.Task{completed(1), stopped(0)}, "1"},
		"a task that failed while waiting": {0, []*dtaskv1.Task{{State: dtaskv1.TaskState_TASK_STATE_FAILED}}, "0"},
	} {
		if got, want := summaryOf(c.retries, c.tasks...)[1], "failures recovered: "+c.want; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestAJobThatWasSkippedHasAReasonAndNoResult(t *testing.T) {
	t.Parallel()
	const why = "skipped: needed job 1 completed"
	job := &dtaskv1.Job{
		Id: "7", Name: "x", State: dtaskv1.JobState_JOB_STATE_COMPLETED, Error: why,
		TasksTotal: 1, TasksByState: map[string]uint32{"cancelled": 1},
	}
	p := NewPrinter(false, time.Time{})
	p.Summary(job, []*dtaskv1.Task{{State: dtaskv1.TaskState_TASK_STATE_CANCELLED, Error: why}})
	if got, want := string(p.Bytes()), "job 7 (x) completed in 0ms: 0 of 1 task completed, 1 skipped\nfailures recovered: 0\n"+why+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := Finished(job), "job 7 (x) completed in 0ms: 0 of 1 task completed, 1 skipped"; got != want {
		t.Errorf("without tasks: got %q, want %q", got, want)
	}
}

func TestATaskThatFailedWhileItWaitedHasNoAttempt(t *testing.T) {
	t.Parallel()
	got := summaryOf(0, &dtaskv1.Task{Id: "a", State: dtaskv1.TaskState_TASK_STATE_FAILED, Error: "queue timeout: not assigned in time"})
	if want := "  7/a: failed: queue timeout: not assigned in time"; !slices.Contains(got, want) {
		t.Errorf("got %q, want the line %q", got, want)
	}
}

func TestTasksThatWereNotNeededAreCountedApart(t *testing.T) {
	t.Parallel()
	cancelled := func(reason string) *dtaskv1.Task {
		return &dtaskv1.Task{State: dtaskv1.TaskState_TASK_STATE_CANCELLED, Error: reason}
	}
	got := summaryOf(0, &dtaskv1.Task{State: dtaskv1.TaskState_TASK_STATE_COMPLETED, Attempt: 1},
		cancelled("skipped: dependency test did not fail"), cancelled("dependency test failed"))[0]
	if want := "job 7 (x) completed in 0ms: 1 of 3 tasks completed, 1 cancelled, 1 skipped"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
