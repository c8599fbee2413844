package cli

import (
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestAReusedResultIsNoWorkersWork(t *testing.T) {
	t.Parallel()
	for want, task := range map[string]*dtaskv1.Task{
		"w1":       {Worker: "w1"},
		"(reused)": {ReusedJob: "12", ReusedTask: "count"},
	} {
		if got := executedBy(task); got != want {
			t.Errorf("%v: got %q, want %q", task, got, want)
		}
	}
}
