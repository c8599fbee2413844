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

// twice is a program that fails at first and then succeeds, with output of both.
const twice = `echo "::progress 0.5 half"; echo . >> '%s'
if [ $(wc -l < '%[1]s') = 1 ]; then echo broken >&2; exit 3; fi
echo fine`

// wantLog checks what `dtaskctl logs` prints.
func wantLog(t *testing.T, c *cluster.Cluster, want string, args ...string) {
	t.Helper()
	a := c.Run(t.Context(), append([]string{"logs"}, args...)...)
	if a.Code != 0 || a.Stdout != want {
		t.Errorf("want %q, got %s", want, a)
	}
}

// wantNoLog checks that `dtaskctl logs` exits with code 4 and gives a reason.
func wantNoLog(t *testing.T, c *cluster.Cluster, reason string, args ...string) {
	t.Helper()
	a := c.Run(t.Context(), append([]string{"logs"}, args...)...)
	if a.Code != 4 || !strings.Contains(a.Stderr, reason) {
		t.Errorf("want exit code 4 and %q, got %s", reason, a)
	}
}

func TestLogsOutliveTheProcessAndTheDrainOfTheirWorker(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1, CoordinatorFlags: []string{"--keep-for", "100ms"}})
	w := c.Workers()[0]
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("twice", cluster.TaskFile{
		"id": "one", "run": fmt.Sprintf(twice, filepath.Join(c.Dir, "begun")), "retry": map[string]any{"max": 3, "initial": "100ms"},
	}, cluster.TaskFile{"id": "each", "run": "echo of ${{ index }}", "array": map[string]any{"range": "0-2"}}))
	completed(t, c.Ctl, id)
	check := func() {
		t.Helper()
		wantLog(t, c, "fine\n", id+"/one")
		wantLog(t, c, "::progress 0.5 half\nfine\n", id+"/one", "--control")
		wantLog(t, c, "broken\n", id+"/one", "--attempt", "1")
		wantLog(t, c, "", id+"/one", "--attempt", "1", "--stdout")
		wantLog(t, c, "of 1\n", id+"/each[1]")
		wantLog(t, c, "one: fine\neach[0]: of 0\neach[1]: of 1\neach[2]: of 2\n", id)
		wantNoLog(t, c, "its last is 2", id+"/one", "--attempt", "3")
	}
	check()

	clustertest.Must(t, w.Kill())
	clustertest.Must(t, c.AwaitWorker(ctx, w.Name, "down"))
	wantNoLog(t, c, "worker "+w.Name+", which has it, is down", id+"/one")
	clustertest.Must(t, w.Start(ctx))
	clustertest.Must(t, c.AwaitWorker(ctx, w.Name, "up"))
	check()

	clustertest.Must(t, c.Run(ctx, "worker", "drain", w.Name).Err())
	clustertest.Must(t, c.AwaitWorker(ctx, w.Name, "drained"))
	check()
	clustertest.Must(t, w.Terminate())
	_, err := w.Wait(ctx)
	clustertest.Must(t, err)
	clustertest.Must(t, w.Start(ctx))
	clustertest.Must(t, c.Run(ctx, "worker", "resume", w.Name).Err())
	clustertest.Must(t, c.AwaitWorker(ctx, w.Name, "up"))
	check()
	clustertest.Must(t, clustertest.Leader(t, c).Kill())
	clustertest.Must(t, c.AwaitWorker(ctx, w.Name, "up"))
	check()
}

// Each line is written when the one before is stored. What is written more quickly is in
// the order in which the worker reads it.
func TestLogsHaveBothStreamsInTheOrderOfWriting(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 1})
	var script, want strings.Builder
	gate := func(i int) string { return filepath.Join(c.Dir, fmt.Sprint("gate", i)) }
	const lines = 6
	for i := range lines {
		fmt.Fprintf(&script, "echo line %d >&%d\nuntil [ -e '%s' ]; do sleep 0.05; done\n", i, 1+i%2, gate(i))
	}
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("order", cluster.TaskFile{"id": "one", "run": script.String()}))
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i)
		clustertest.Must(t, cluster.Until(ctx, "the log has a line more", guard, func(ctx context.Context) error {
			if a := c.Run(ctx, "logs", id+"/one"); a.Stdout != want.String() {
				return fmt.Errorf("got %s", a)
			}
			return nil
		}))
		clustertest.Must(t, os.WriteFile(gate(i), nil, 0o600))
	}
	completed(t, c.Ctl, id)
	wantLog(t, c, want.String(), id+"/one")
	wantLog(t, c, "line 1\nline 3\nline 5\n", id+"/one", "--stderr")
	wantLog(t, c, "line 3\nline 4\nline 5\n", id+"/one", "--tail", "3")
}

func TestRetentionGivesTheReasonForALogThatIsGone(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Workers: 1, WorkerFlags: []string{"--log-bytes", "65536"}})
	old := clustertest.Submit(t, c.Ctl, cluster.JobFile("old", cluster.TaskFile{"id": "one", "run": "echo old"}))
	completed(t, c.Ctl, old)
	wantLog(t, c, "old\n", old+"/one")
	many := clustertest.Submit(t, c.Ctl, cluster.JobFile("many", cluster.TaskFile{
		"id": "each", "run": "head -c 10000 /dev/zero | tr '\\0' x", "array": map[string]any{"range": "0-19"},
	}))
	completed(t, c.Ctl, many)
	wantNoLog(t, c, "its log was removed: worker w1 keeps logs for 168h, 64 KiB", old+"/one")
	wantLog(t, c, strings.Repeat("x", 10000), many+"/each[19]")
}
