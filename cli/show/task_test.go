package show

import (
	"testing"

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
