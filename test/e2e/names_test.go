package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// exitInUse is the exit code of a worker whose name or directory another process uses.
const exitInUse = 5

// awaitUp waits until workers with exactly these names are up.
func awaitUp(t *testing.T, c *cluster.Cluster, names ...string) {
	t.Helper()
	slices.Sort(names)
	clustertest.Must(t, cluster.Until(t.Context(), fmt.Sprintf("the workers %v are up", names), guard, func(ctx context.Context) error {
		workers, err := c.ListWorkers(ctx)
		if err != nil {
			return err
		}
		var up []string
		for _, w := range workers {
			if w.State == "up" {
				up = append(up, w.Name)
			}
		}
		slices.Sort(up)
		if !slices.Equal(up, names) {
			return fmt.Errorf("up are %v", up)
		}
		return nil
	}))
}

// startProcess starts a process that is not part of the cluster, and ends it with the
// test.
func startProcess(t *testing.T, p *cluster.Process) {
	t.Helper()
	t.Cleanup(func() { clustertest.Must(t, p.Kill()) })
	clustertest.Must(t, p.Start(t.Context()))
}

// startAgain starts a worker again after it was killed, and waits for its session: the
// cluster may still show that of the killed process.
func startAgain(t *testing.T, p *cluster.Process) {
	t.Helper()
	sessions := func() int {
		log, err := p.Log()
		clustertest.Must(t, err)
		return strings.Count(log, "session opened")
	}
	before := sessions()
	clustertest.Must(t, p.Start(t.Context()))
	clustertest.Must(t, cluster.Until(t.Context(), p.Name+" has a session again", guard, func(context.Context) error {
		if sessions() == before {
			return cluster.ErrNotYet
		}
		return nil
	}))
}

func TestWorkersWithoutANameChooseAndKeepOne(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Coordinators: 1})
	host, err := os.Hostname()
	clustertest.Must(t, err)

	// On one host: the second has a number, and each replaces itself.
	first, second := c.Unnamed("first"), c.Unnamed("second")
	startProcess(t, first)
	awaitUp(t, c, host)
	startProcess(t, second)
	awaitUp(t, c, host, host+"-2")
	clustertest.Must(t, first.Kill())
	startAgain(t, first)
	awaitUp(t, c, host, host+"-2")

	// A host with the same name: that worker has a directory of its own, and finds
	// the name in use in the cluster only.
	dir := filepath.Join(c.Dir, "elsewhere")
	elsewhere := c.Unnamed("elsewhere", "--work-dir", dir)
	startProcess(t, elsewhere)
	clustertest.Must(t, cluster.Until(ctx, "the third worker has a name", guard, func(context.Context) error {
		_, err := os.Stat(filepath.Join(dir, "name"))
		return err
	}))
	text, err := os.ReadFile(filepath.Join(dir, "name"))
	clustertest.Must(t, err)
	third := strings.TrimSpace(string(text))
	if !strings.HasPrefix(third, host+"-") || third == host+"-2" {
		t.Errorf("the third worker is named %q", third)
	}
	awaitUp(t, c, host, host+"-2", third)

	// All have their names again after a crash of all.
	for _, p := range []*cluster.Process{first, second, elsewhere} {
		clustertest.Must(t, p.Kill())
	}
	for _, p := range []*cluster.Process{elsewhere, second, first} {
		startAgain(t, p)
	}
	awaitUp(t, c, host, host+"-2", third)
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("named", marks(c, 20, 100*time.Millisecond)...))
	checkLedger(t, c, nil, judged(completed(t, c.Ctl, id), nil))
}

func TestAWorkerWhoseNameIsTakenExits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Coordinators: 1, Workers: 1})
	k := c.Worker("w1")
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("undisturbed", c.Programs.Mark("only", ledgerOf(c), 6*time.Second)))
	awaitBegun(t, c, id, 1)

	second, err := c.SecondOf(k)
	clustertest.Must(t, err)
	begun := time.Now()
	startProcess(t, second)
	code, err := second.Wait(ctx)
	clustertest.Must(t, err)
	t.Logf("the second process exited after %v", time.Since(begun))
	if code != exitInUse || !second.LogHas(`worker name "w1" is in use by another process on host`, "127.0.0.1:", "set another --name") {
		log, _ := second.Log()
		t.Errorf("got exit code %d, want %d and the reason:\n%s", code, exitInUse, log)
	}
	job := completed(t, c.Ctl, id)
	if job.Tasks[0].Attempt != 1 {
		t.Errorf("the task ended with attempt %d, want 1", job.Tasks[0].Attempt)
	}
	checkLedger(t, c, nil, judged(job, nil))

	// A successor in the same directory, and one elsewhere, come up by themselves.
	clustertest.Must(t, k.Kill())
	startAgain(t, k.Process)
	clustertest.Must(t, k.Kill())
	startAgain(t, second)
	again := clustertest.Submit(t, c.Ctl, cluster.JobFile("again", marks(c, 1, time.Millisecond)...))
	completed(t, c.Ctl, again)
}
