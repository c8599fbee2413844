package e2e

import (
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// The example of a queue runs as its documentation says. While the queue is paused, nothing
// of it starts, and explain says what to do.
func TestTheExampleOfAQueueRuns(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	run := func(code int, args ...string) string {
		t.Helper()
		got := c.Run(t.Context(), args...)
		if got.Code != code {
			t.Fatalf("%v: exit %d, %s%s", args, got.Code, got.Stdout, got.Stderr)
		}
		return got.Stdout + got.Stderr
	}
	contains := func(text string, want ...string) {
		t.Helper()
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("got %q, want it to contain %q", text, part)
			}
		}
	}
	const example = "../../examples/queue.yaml"
	contains(run(3, "submit", example), `queue.yaml:9:10: job.queue: unknown queue "etl"`)
	run(0, "queue", "set", "etl", "--weight", "3")
	run(0, "queue", "pause", "etl", "--reason", "test")
	id := strings.TrimSpace(run(0, "submit", example, "-q"))
	contains(run(0, "explain", id+"/load[0]"), "queue etl is paused", "dtaskctl queue resume etl")
	contains(run(5, "queue", "delete", "etl"), "is named by jobs that have not ended")
	run(0, "queue", "resume", "etl")
	run(0, "wait", id)
	contains(run(0, "queue", "show", "etl"), "weight     3", "waiting    0 tasks")
	run(0, "queue", "delete", "etl")
}
