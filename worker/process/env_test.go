package process

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func fullVars() Vars {
	index := uint64(17)
	return Vars{
		JobID: "j1", JobName: "nightly", TaskID: "fetch", Attempt: 2, FencingToken: 1<<32 | 2,
		ExecutionID: "x1", IdempotencyKey: "k1", Worker: "w1",
		ArrayIndex: &index, ArraySize: 20, Item: "a.csv", Input: "/in", Output: "/out",
		Deadline:      time.Date(2025, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)),
		CheckpointDir: "/cp", ResultFile: "/result", JobOutcome: "failed", Path: "/bin", Home: "/home/x", Lang: "C",
		Resources:   map[string]int64{"memory": 1 << 30 * 1000, "cpu": 500},
		ScheduledAt: time.UnixMilli(1_790_000_000_000), ScheduledPrevious: time.UnixMilli(1_789_999_940_000),
	}
}

func TestTheEnvironmentDescribesTheAttempt(t *testing.T) {
	t.Parallel()
	got, err := Environ(fullVars(), map[string]string{"A": "b"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"A=b", "DTASK_ARRAY_INDEX=17", "DTASK_ARRAY_SIZE=20", "DTASK_ATTEMPT=2", "DTASK_CHECKPOINT_DIR=/cp", "DTASK_DEADLINE=2025-01-02T02:04:05Z",
		"DTASK_EXECUTION_ID=x1", "DTASK_FENCING_TOKEN=4294967298", "DTASK_IDEMPOTENCY_KEY=k1", "DTASK_INPUT=/in", "DTASK_ITEM=a.csv",
		"DTASK_JOB_ID=j1", "DTASK_JOB_NAME=nightly", "DTASK_JOB_OUTCOME=failed", "DTASK_OUTPUT=/out",
		"DTASK_RESOURCES=cpu=0.5 memory=1073741824", "DTASK_RESULT_FILE=/result",
		"DTASK_SCHEDULED_AT=2026-09-21T14:13:20Z", "DTASK_SCHEDULED_PREVIOUS=2026-09-21T14:12:20Z", "DTASK_TASK_ID=fetch", "DTASK_WORKER=w1",
		"HOME=/home/x", "LANG=C", "PATH=/bin",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestUserVariablesOverrideDefaultsButNotDtasks(t *testing.T) {
	t.Parallel()
	got, err := Environ(Vars{JobID: "j1"}, map[string]string{
		"LANG": "de_DE.UTF-8", "DTASK_JOB_ID": "forged", "DTASK_ARRAY_INDEX": "9", "DTASK_OWN": "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"LANG=de_DE.UTF-8", "DTASK_JOB_ID=j1", "PATH=" + DefaultPath, "HOME=" + DefaultHome} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in %q", want, got)
		}
	}
	for _, name := range []string{"DTASK_ARRAY_INDEX", "DTASK_OWN", "DTASK_DEADLINE", "DTASK_ITEM"} {
		if value := lastValue(got, name); value != "" {
			t.Errorf("%s is %q, want it unset", name, value)
		}
	}
}

func TestAllInvalidEntriesAreReported(t *testing.T) {
	t.Parallel()
	_, err := Environ(Vars{Item: "a\x00b"}, map[string]string{"BAD": "x\x00", "A=B": "", "": "x"})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("got %v", err)
	}
	var names []string
	for _, e := range joined.Unwrap() {
		var fault *EnvError
		if !errors.As(e, &fault) {
			t.Fatalf("got %v", e)
		}
		names = append(names, fault.Name)
	}
	if diff := cmp.Diff([]string{"", "A=B", "BAD", "DTASK_ITEM"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
