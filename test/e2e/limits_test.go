package e2e

import (
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// The example of limits runs as its documentation says. A task that waits for a limit is
// explained, and starts when the limit is raised.
func TestTheExampleOfLimitsRuns(t *testing.T) {
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
	awaitRunning := func(id string) {
		t.Helper()
		_, err := c.AwaitJob(t.Context(), id, guard, "its task runs", func(j cluster.Job) bool { return j.Task("run").State == "running" })
		clustertest.Must(t, err)
	}
	const example = "../../examples/limit.yaml"
	contains(run(3, "submit", example), `limit.yaml:13:14: uses: unknown limit "export-api"`, `limit.yaml:17:26: uses: unknown limit "tenant/*", which "tenant/acme" needs`)
	run(0, "limit", "set", "export-api", "--running", "8", "--rate", "50/s", "--burst", "100")
	run(0, "limit", "set", "tenant/*", "--running", "2")
	contains(run(0, "plan", example), "20")
	run(0, "wait", strings.TrimSpace(run(0, "submit", example, "-q")))

	run(0, "limit", "set", "db", "--running", "1")
	first := strings.TrimSpace(run(0, "run", "-q", "--uses", "db", "--", "sleep", "600"))
	awaitRunning(first)
	next := strings.TrimSpace(run(0, "run", "-q", "--uses", "db", "--", "sleep", "600"))
	contains(run(0, "explain", next+"/run"), "limit db is full: 1 attempt of 1", "limit db allows 2")
	contains(run(0, "limit", "show", "db"), "1/1", first+"/run")
	contains(run(5, "limit", "delete", "db"), "is used by jobs that have not ended")
	run(0, "limit", "set", "db", "--running", "2")
	awaitRunning(next)
	run(0, "cancel", first)
	run(0, "cancel", next)
	contains(run(0, "limit", "set", "slow", "--rate", "1/h"), "limit slow set")
	run(0, "wait", strings.TrimSpace(run(0, "run", "-q", "--uses", "slow", "--", "true")))
	late := strings.TrimSpace(run(0, "run", "-q", "--uses", "slow", "--", "true"))
	contains(run(0, "explain", late+"/run"), "limit slow lets 1/h start, and all of these have")
	run(0, "cancel", late)
}
