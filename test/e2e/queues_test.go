package e2e

import (
	"fmt"
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

// A reserved worker gets only what requires its label, by the queue or by the task itself. The
// rest waits although it is idle, and explain says why.
func TestAReservedWorkerGetsOnlyTasksThatRequireItsLabel(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Coordinators: 1})
	clustertest.Must(t, c.AddWorker("pool", "--label=pool=ml", "--reserved").Start(ctx))
	clustertest.Must(t, c.AwaitWorker(ctx, "pool", "up"))
	clustertest.Must(t, c.Run(ctx, "queue", "set", "ml", "--require", "pool=ml").Err())
	clustertest.Must(t, c.Run(ctx, "queue", "set", "etl").Err())
	const tasks = 20
	submit := func(name, queue, require string) string {
		text := "job:\n  name: " + name + queue + "\n  tasks:\n"
		for i := range tasks {
			text += fmt.Sprintf("    - {id: t%d, type: noop%s}\n", i, require)
		}
		return submitText(t, c, text)
	}
	ended := func(id, worker string) {
		t.Helper()
		job, err := c.AwaitEnd(ctx, id, guard)
		clustertest.Must(t, err)
		for i := range tasks {
			if got := job.Task(fmt.Sprint("t", i)); got == nil || !got.Completed() || got.Worker != worker {
				t.Errorf("job %s: got %+v, want it on %s", job.Name, got, worker)
			}
		}
	}
	others := []string{submit("plain", "", ""), submit("other-queue", "\n  queue: etl", "")}
	ended(submit("by-queue", "\n  queue: ml", ""), "pool")
	ended(submit("by-task", "", ", require: {pool: ml}"), "pool")
	for _, id := range others {
		got := c.Run(ctx, "explain", id+"/t0")
		if want := "reserved for tasks that require one of its labels"; !strings.Contains(got.Stdout, want) {
			t.Errorf("explain: got %s, want %q", got, want)
		}
	}
	clustertest.Must(t, c.AddWorker("open").Start(ctx))
	for _, id := range others {
		ended(id, "open")
	}
}
