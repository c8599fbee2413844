package cli

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestOnlyYesIsYes(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]bool{"y\n": true, "Yes\n": true, "\tyes": true, "n\n": false, "\n": false, "": false, "yeah\n": false} {
		a, _, stderr := setup(t, nil)
		a.in = strings.NewReader(answer)
		got, err := a.ask("purge 3 dead letters of 2 jobs?")
		if err != nil || got != want {
			t.Errorf("answer %q: got %t, %v; want %t", answer, got, err, want)
		}
		if stderr.String() != "purge 3 dead letters of 2 jobs? [y/N] " {
			t.Errorf("got the question %q", stderr)
		}
	}
}

func TestPicksAreGroupedByJob(t *testing.T) {
	t.Parallel()
	got, err := picksOf([]string{"42/a", "43", "42/b", "42/a", "43/x", "44/y", "44"})
	want := []pick{{job: "42", tasks: []string{"a", "b"}}, {job: "43"}, {job: "44"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestACallNamesNoMoreTasksThanItMay(t *testing.T) {
	t.Parallel()
	many := pick{job: "42"}
	for i := range client.MaxNamed + 1 {
		many.tasks = append(many.tasks, fmt.Sprint(i))
	}
	got := portions([]pick{many, {job: "43", tasks: []string{"a"}}, {job: "44"}})
	if len(got) != 3 || len(got[0].tasks) != client.MaxNamed || len(got[1].tasks) != 1 || got[2].job != "43" {
		t.Errorf("got %d portions; want two of job 42, one of job 43 and none of job 44, which would mean all of it", len(got))
	}
}

func TestAnErrorIsCutToFitIntoATable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "exit 1": "exit 1", "exit 1\n": "exit 1", "exit 1\nlast words": "exit 1 …", strings.Repeat("x", 101): strings.Repeat("x", 100) + " …",
	} {
		if got := brief(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestWhatEndedSinceItsRetryDoesNotGoOn(t *testing.T) {
	t.Parallel()
	for state, want := range map[dtaskv1.JobState]string{
		dtaskv1.JobState_JOB_STATE_RUNNING:   "job 7 (x) goes on: 1 of 2 tasks completed, 1 failed",
		dtaskv1.JobState_JOB_STATE_FAILED:    "job 7 (x) has failed since it was retried: 1 of 2 tasks completed, 1 failed",
		dtaskv1.JobState_JOB_STATE_CANCELLED: "job 7 (x) was cancelled since it was retried: 1 of 2 tasks completed, 1 failed",
	} {
		job := &dtaskv1.Job{Id: "7", Name: "x", State: state, TasksTotal: 2, TasksCompleted: 1, TasksByState: map[string]uint32{"failed": 1}}
		if got := retried(job); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
