package spec

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// scheduledJob parses a job with these tasks and a schedule.
func scheduledJob(t *testing.T, tasks string) *dtaskv1.JobSpec {
	t.Helper()
	s, err := ParseSchedule("f.yaml", []byte("job: {name: x, tasks: ["+tasks+"]}\nschedule: {cron: \"@daily\"}\n"), Options{Now: spring})
	if err != nil {
		t.Fatal(err)
	}
	return s.Job
}

func TestOnlyTasksWithExpressionsOfARunAreMarked(t *testing.T) {
	t.Parallel()
	job := scheduledJob(t, `
  {id: plain, run: "echo $${{ scheduled.date }x"},
  {id: run, run: "echo ${{ scheduled.date }} $${{ x }}"},
  {id: env, run: "echo $DAY", env: {DAY: "${{ scheduled.date }}", RAW: "$${{ x }}"}},
  {id: payload, type: echo, payload: {day: "${{ scheduled.at }}"}},
  {id: array, run: "echo ${{ item }}", array: {range: 0-1}},
  {id: both, run: "echo ${{ item }} ${{ scheduled.previous }}", array: {range: 0-1}}`)
	want := map[string]bool{"run": true, "env": true, "payload": true, "both": true}
	for _, task := range job.GetTasks() {
		if got := task.GetBody().GetScheduled(); got != want[task.GetId()] {
			t.Errorf("%s: got scheduled = %t", task.GetId(), got)
		}
	}
	// The worker replaces all that a marked task has.
	if got := job.GetTasks()[1].GetBody().GetRun(); got != "echo ${{ scheduled.date }} $${{ x }}" {
		t.Errorf("the text of run is %q", got)
	}
	env := job.GetHeader().GetPolicies()[job.GetTasks()[2].GetPolicy()].GetEnv()
	if env["DAY"] != "${{ scheduled.date }}" || env["RAW"] != "$${{ x }}" {
		t.Errorf("the environment is %q", env)
	}
	if got := job.GetTasks()[0].GetBody().GetRun(); got != "echo ${{ scheduled.date }x" {
		t.Errorf("the text of plain is %q", got)
	}
}

func TestTheRunOfAScheduleIsNeededForItsExpressions(t *testing.T) {
	t.Parallel()
	job := scheduledJob(t, `{id: a, run: "echo ${{ scheduled.date }}"}`)
	faults := Check(job)
	if len(faults) != 1 || !strings.Contains(faults.Error(), `task "a": has an expression of the run of a schedule, but the job is not one`) {
		t.Errorf("a job: got %v", faults)
	}
	run := proto.CloneOf(job)
	run.Header.Run = &dtaskv1.ScheduledRun{Schedule: "x"}
	if faults := Check(run); faults != nil {
		t.Errorf("a run: got %v", faults)
	}
	for scheduled, bad := range map[bool]int{true: 0, false: 1} {
		c := NewChecker(job.GetHeader(), CheckOptions{Scheduled: scheduled})
		_ = c.Add(job.GetTasks())
		if faults := c.Seal(); len(faults) != bad || !c.UsesRun() {
			t.Errorf("Scheduled = %t: got %v", scheduled, faults)
		}
	}
}

func TestADecodedTaskIsCheckedLikeOneOfAFile(t *testing.T) {
	t.Parallel()
	array := &dtaskv1.ArraySpec{Ranges: []*dtaskv1.ArrayRange{{First: 0, Last: 1, Step: 1}}}
	for _, c := range []struct {
		task *dtaskv1.TaskSpec
		want string // empty: no fault
	}{
		{&dtaskv1.TaskSpec{Body: &dtaskv1.TaskBody{Run: "echo ${{ scheduled.date }} $${{ x }}", Scheduled: true}}, ""},
		{&dtaskv1.TaskSpec{Body: &dtaskv1.TaskBody{Run: "echo ${{ scheduled.date }}"}}, ""}, // a text
		{&dtaskv1.TaskSpec{Body: &dtaskv1.TaskBody{Run: "echo ${{ scheduled.day }}", Scheduled: true}}, `run: the expression "${{ scheduled.day }}" is not known`},
		{&dtaskv1.TaskSpec{Body: &dtaskv1.TaskBody{Run: "echo ${{ index }}", Scheduled: true}}, "run: has an array expression, but the task has no array"},
		{&dtaskv1.TaskSpec{Body: &dtaskv1.TaskBody{Run: "echo ${{ scheduled.date }}"}, Array: array}, "run: has an expression of the run of a schedule, but scheduled is not set"},
		{&dtaskv1.TaskSpec{Body: &dtaskv1.TaskBody{Run: "echo ${{ index }} ${{ scheduled.date }}", Scheduled: true}, Array: array}, ""},
	} {
		job := scheduledJob(t, `{id: a, run: x}`)
		job.Header.Run = &dtaskv1.ScheduledRun{Schedule: "x"}
		c.task.Id, job.Tasks = "a", []*dtaskv1.TaskSpec{c.task}
		faults := Check(job)
		if (c.want == "") != (faults == nil) || c.want != "" && !strings.Contains(faults.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.task, faults, c.want)
		}
	}
}
