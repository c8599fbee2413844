package ledger

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"
)

// story is a history that keeps every promise: b runs after a, in job 1.
func story() ([]Line, []Job) {
	return append(executed("a", 1, "w1", 10, 20), executed("b", 1, "w2", 30, 40)...), []Job{{
		ID: "1", State: "completed", Completed: 2,
		Tasks: []Task{
			{ID: "a", State: "completed", Attempt: 1, Worker: "w1"},
			{ID: "b", State: "aggregated", Attempt: 1, Worker: "w2", After: []string{"a"}},
		},
	}}
}

// executed are the lines of one run in job 1.
func executed(task string, attempt int, worker string, from, to time.Duration) []Line {
	start := Line{Kind: Start, Job: "1", Task: task, Attempt: attempt, Token: 1<<32 | uint64(attempt), Worker: worker, Pid: int(from), At: from}
	end := start
	end.Kind, end.At = End, to
	return []Line{start, end}
}

// begun is the line of a run that has no end.
func begun(task string, attempt int, worker string, from time.Duration) []Line {
	return executed(task, attempt, worker, from, from)[:1]
}

func TestAHistoryThatKeepsEveryPromiseHasNoFault(t *testing.T) {
	t.Parallel()
	lines, jobs := story()
	if faults := Check(lines, jobs, nil); len(faults) > 0 {
		t.Errorf("got %v", faults)
	}
}

func TestPlantedBadHistoriesAreFound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		make func(lines []Line, jobs []Job) ([]Line, []Job, []Harm)
		want []FaultKind
	}{
		{"an acknowledged job that did not complete", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			j[0].State = "running"
			return l, j, nil
		}, []FaultKind{Lost}},
		{"a task that is shown as something else", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			j[0].Tasks[1].State, j[0].Completed = "pending", 1
			return l, j, nil
		}, []FaultKind{Lost}},
		{"a completion that nothing executed", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			return l[:2], j, nil
		}, []FaultKind{Lost}},
		{"a completion by a command that did not end", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			return l[:3], j, nil
		}, []FaultKind{Lost}},
		{"a completion by another attempt than the one that ended", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			j[0].Tasks[1].Attempt = 2
			return l, j, nil
		}, []FaultKind{Lost}},
		{"a completion on another worker than the one that ended", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			j[0].Tasks[1].Worker = "w1"
			return l, j, nil
		}, []FaultKind{Lost}},
		{"a failure that is shown as a completion", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			l[3].Exit = 1
			return l, j, nil
		}, []FaultKind{Lost}},
		{"more completions than tasks", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			j[0].Completed = 3
			return l, j, nil
		}, []FaultKind{Duplicated}},
		{"fewer completions than tasks", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			j[0].Completed = 1
			return l, j, nil
		}, []FaultKind{Lost}},
		{"one attempt executed twice", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			return append(l, executed("b", 1, "w2", 50, 60)...), j, nil
		}, []FaultKind{Duplicated}},
		{"one attempt executed on two workers", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			return append(l, executed("b", 1, "w1", 35, 60)...), j, nil
		}, []FaultKind{Duplicated}},
		{"started again while it ran on a worker that was well", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			return append(l, executed("b", 2, "w1", 35, 60)...), j, nil
		}, []FaultKind{Restarted}},
		{"started again after it had ended well", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			j[0].Tasks[1].Attempt = 2
			return append(l, executed("b", 2, "w2", 50, 60)...), j, nil
		}, []FaultKind{Restarted}},
		{"started again because of the harm that another worker took", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			return append(l, executed("b", 2, "w1", 35, 60)...), j, []Harm{{Worker: "w3", From: 32}}
		}, []FaultKind{Restarted}},
		{"started again because of a harm that was over before it began", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			return append(l, executed("b", 2, "w1", 35, 60)...), j, []Harm{{Worker: "w2", From: 1, Until: 29}}
		}, []FaultKind{Restarted}},
		{"begun before its dependency had ended", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			l[2].At = 19
			return l, j, nil
		}, []FaultKind{Disorder}},
		{"begun after its dependency had only failed", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			l[1].Exit = 1
			j[0].Tasks[0].Attempt = 2
			return append(l, executed("a", 2, "w1", 50, 60)...), j, nil
		}, []FaultKind{Disorder}},
		{"a lower attempt after a higher one", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			return append(executed("b", 2, "w1", 22, 23), l...), j, []Harm{{Worker: "w1", From: 1}}
		}, []FaultKind{Backwards}},
		{"a token that does not grow", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			again := executed("b", 2, "w1", 50, 60)
			again[0].Token = l[2].Token
			return append(l, again...), j, []Harm{{Worker: "w2", From: 1}}
		}, []FaultKind{Backwards}},
		{"a task of no acknowledged job", func(l []Line, j []Job) ([]Line, []Job, []Harm) {
			return append(l, executed("c", 1, "w1", 50, 60)...), j, nil
		}, []FaultKind{Phantom}},
	} {
		lines, jobs, harms := test.make(story())
		var got []FaultKind
		faults := Check(lines, jobs, harms)
		for _, f := range faults {
			got = append(got, f.Kind)
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, faults, test.want)
		}
	}
}

func TestTasksOfHarmedWorkersMayRunAgain(t *testing.T) {
	t.Parallel()
	lines, jobs := story()
	jobs[0].Tasks[1].Attempt, jobs[0].Tasks[1].Worker = 2, "w1"
	lines = append(lines[:2], begun("b", 1, "w2", 30)...)
	lines = append(lines, executed("b", 2, "w1", 50, 60)...)
	if faults := Check(lines, jobs, []Harm{{Worker: "w2", From: 40}}); len(faults) > 0 {
		t.Errorf("a worker was killed: got %v", faults)
	}
	// A stopped worker that continues ends its command late; that is not accepted.
	lines = append(lines, executed("b", 1, "w2", 30, 90)[1])
	if faults := Check(lines, jobs, []Harm{{Worker: "w2", From: 40, Until: 80}}); len(faults) > 0 {
		t.Errorf("a worker was stopped: got %v", faults)
	}
}

func TestAFailedAttemptMayBeRepeated(t *testing.T) {
	t.Parallel()
	lines, jobs := story()
	lines[3].Exit = 1
	jobs[0].Tasks[1].Attempt = 2
	if faults := Check(append(lines, executed("b", 2, "w2", 50, 60)...), jobs, nil); len(faults) > 0 {
		t.Errorf("got %v", faults)
	}
}

func TestLinesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	environment := map[string]string{
		"DTASK_JOB_ID": "7", "DTASK_TASK_ID": "fetch", "DTASK_ATTEMPT": "3", "DTASK_FENCING_TOKEN": "4294967299",
		"DTASK_EXECUTION_ID": "7/fetch/3", "DTASK_WORKER": "w1",
	}
	line, err := FromEnvironment(func(name string) string { return environment[name] })
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	before, err := Now()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := line.Append(file); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := file.WriteString(`{"kind":"end","jo`); err != nil { // killed while it wrote
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	lines, err := Read(path)
	if err != nil || len(lines) != 2 {
		t.Fatalf("got %d lines, %v; want 2", len(lines), err)
	}
	want := Line{Kind: Start, Job: "7", Task: "fetch", Attempt: 3, Token: 1<<32 | 3, Execution: "7/fetch/3", Worker: "w1", Pid: os.Getpid(), At: lines[0].At}
	if !reflect.DeepEqual(lines[0], want) {
		t.Errorf("got %+v, want %+v", lines[0], want)
	}
	if lines[0].At < before || lines[1].At < lines[0].At {
		t.Errorf("times %v, %v do not grow from %v", lines[0].At, lines[1].At, before)
	}
}

func TestAnUnwrittenLedgerIsEmpty(t *testing.T) {
	t.Parallel()
	lines, err := Read(filepath.Join(t.TempDir(), "none"))
	if err != nil || len(lines) != 0 {
		t.Errorf("got %v, %v", lines, err)
	}
}

func TestAMissingTaskEnvironmentIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := FromEnvironment(func(string) string { return "" }); err == nil {
		t.Error("got no error")
	}
	if _, err := FromEnvironment(func(name string) string {
		return map[string]string{"DTASK_ATTEMPT": "1", "DTASK_FENCING_TOKEN": "1"}[name]
	}); err == nil {
		t.Error("got no error without a job")
	}
}
