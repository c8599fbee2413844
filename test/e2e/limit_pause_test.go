package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// A worker process that is stopped can't end its command, whose lease ends meanwhile. Its
// supervisor does, before another task gets the limit.
func TestALimitOfOneHoldsWhileItsWorkerIsStopped(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Coordinators: 3})
	workers := map[string]*cluster.Worker{}
	add := func(name string) {
		workers[name] = c.AddWorker(name)
		clustertest.Must(t, workers[name].Start(ctx))
		clustertest.Must(t, c.AwaitWorker(ctx, name, "up"))
	}
	if a := c.Run(ctx, "limit", "set", "db", "--running", "1"); a.Code != 0 {
		t.Fatal(a.Err())
	}
	dir := t.TempDir()
	submit := func() string {
		beats := filepath.Join(dir, "$DTASK_WORKER")
		return submitText(t, c, fmt.Sprintf("job:\n  name: beats\n  tasks:\n    - {id: run, uses: [db], run: 'while sleep 0.05; do date +%%s%%N >> %s; done'}\n", beats))
	}
	beats := func(worker string) []string {
		text, _ := os.ReadFile(filepath.Join(dir, worker)) // not there yet
		return strings.Fields(string(text))
	}
	await := func(what string, cond func() bool) {
		t.Helper()
		clustertest.Must(t, cluster.Until(ctx, what, guard, func(context.Context) error {
			if !cond() {
				return fmt.Errorf("w1 has %d beats, w2 %d", len(beats("w1")), len(beats("w2")))
			}
			return nil
		}))
	}
	add("w1")
	submit()
	await("the command of w1 runs", func() bool { return len(beats("w1")) > 0 })
	add("w2")
	clustertest.Must(t, workers["w1"].Pause()) // not its supervisors, and not the command
	await("the command runs on w2", func() bool { return len(beats("w2")) > 5 })
	last, first := beats("w1"), beats("w2")
	if end := last[len(last)-1]; end >= first[0] {
		t.Errorf("the command of w1 still ran at %s, and that of w2 began before %s", end, first[0])
	}
	clustertest.Must(t, workers["w1"].Resume())
}
