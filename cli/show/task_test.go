package show

import (
	"testing"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestATaskThatIsNotOnTheWorkerOfItsKeyHasANote(t *testing.T) {
	t.Parallel()
	const running, pending = dtaskv1.TaskState_TASK_STATE_RUNNING, dtaskv1.TaskState_TASK_STATE_PENDING
	for _, c := range []struct {
		what string
		task *dtaskv1.Task
		want string
	}{
		{"without a key", &dtaskv1.Task{State: running, Worker: "w1"}, ""},
		{"on its worker", &dtaskv1.Task{State: running, Worker: "w1", KeyWorker: "w1"}, ""},
		{"waiting", &dtaskv1.Task{State: pending, KeyWorker: "w3"}, "its affinity chooses w3"},
		{"spilled", &dtaskv1.Task{State: running, Worker: "w1", KeyWorker: "w3", SpilledFrom: "w3", SpilledPermille: 1250}, "spilled from w3 (load 1.25)"},
		{"after a failover", &dtaskv1.Task{State: running, Worker: "w1", KeyWorker: "w3"}, "its affinity chooses w3 now"},
	} {
		if got := affinityNote(c.task); got != c.want {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
}

// What a task that waits takes does not grow.
func TestATaskThatWaitsForAnotherAttemptHasNotTakenAnyTime(t *testing.T) {
	t.Parallel()
	p := &Printer{now: time.UnixMilli(61_000)}
	for state, want := range map[dtaskv1.TaskState]string{
		dtaskv1.TaskState_TASK_STATE_RUNNING: "1m00s", dtaskv1.TaskState_TASK_STATE_BLOCKED: "",
		dtaskv1.TaskState_TASK_STATE_SCHEDULED: "", dtaskv1.TaskState_TASK_STATE_PENDING: "",
	} {
		if got := p.taskTook(&dtaskv1.Task{State: state, Attempt: 1, StartedAt: 1000}); got != want {
			t.Errorf("%v: got %q, want %q", state, got, want)
		}
	}
}
