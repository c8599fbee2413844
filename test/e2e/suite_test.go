package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// guard bounds every wait that is not itself a promise: it keeps a broken test from
// hanging.
const guard = time.Minute

// slack is the tolerance of promised times on a busy machine.
const slack = time.Second

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m)) }

// ledgerOf returns the path of a cluster's ledger.
func ledgerOf(c *cluster.Cluster) string { return filepath.Join(c.Dir, "ledger") }

// readLedger reads a cluster's ledger.
func readLedger(t *testing.T, c *cluster.Cluster) []ledger.Line {
	t.Helper()
	lines, err := ledger.Read(ledgerOf(c))
	clustertest.Must(t, err)
	return lines
}

// now returns the time on the ledger's clock.
func now(t *testing.T) time.Duration {
	t.Helper()
	at, err := ledger.Now()
	clustertest.Must(t, err)
	return at
}

// runsOf returns the runs of a task so far.
func runsOf(t *testing.T, c *cluster.Cluster, job, task string) []ledger.Run {
	t.Helper()
	var runs []ledger.Run
	for _, r := range ledger.Runs(readLedger(t, c)) {
		if r.Job == job && r.Task == task {
			runs = append(runs, r)
		}
	}
	return runs
}

// steadily runs a check of a promise that holds under one leader. On a busy machine
// another leader may be elected meanwhile, and then liveness deadlines are extended,
// as they are by a leader that was paused with the machine. The check is repeated a
// few times in that case.
func steadily(t *testing.T, c *cluster.Cluster, play func() (broken string)) {
	t.Helper()
	stalls := clustertest.WatchStalls(t)
	for range 4 {
		lost := stalls.Lost()
		before, err := c.Status(t.Context())
		clustertest.Must(t, err)
		broken := play()
		after, err := c.Status(t.Context())
		clustertest.Must(t, err)
		lost = stalls.Lost() - lost
		switch {
		case broken == "":
			return
		case before.Leader != "" && before.Term == after.Term && lost == 0:
			t.Error(broken)
			return
		}
		t.Logf("%s, but the machine stalled for %v and the term changed from %d to %d by itself: trying again", broken, lost, before.Term, after.Term)
	}
	t.Error("no attempt without an election or a stall of the machine")
}

// gateTask returns a task that ends when a file exists. Whatever waits for it happens after
// the test has written the file, at any speed of the machine.
func gateTask(id, gate string) cluster.TaskFile {
	return cluster.TaskFile{"id": id, "run": fmt.Sprintf("until [ -e '%s' ]; do sleep 0.05; done", gate)}
}

// openGate lets a task end that waits for a file.
func openGate(t *testing.T, gate string) {
	t.Helper()
	clustertest.Must(t, os.WriteFile(gate, nil, 0o600))
}

// judged converts a job as dtaskctl shows it into one for the ledger's checks. after
// has the dependencies of its tasks.
func judged(job cluster.Job, after map[string][]string) ledger.Job {
	j := ledger.Job{ID: job.ID, State: job.State, Completed: job.TasksCompleted}
	for _, task := range job.Tasks {
		j.Tasks = append(j.Tasks, ledger.Task{ID: task.ID, After: after[task.ID], State: task.State, Attempt: task.Attempt, Worker: task.Worker})
	}
	return j
}

// checkLedger checks jobs against the ledger.
func checkLedger(t *testing.T, c *cluster.Cluster, harms []ledger.Harm, jobs ...ledger.Job) {
	t.Helper()
	for _, fault := range ledger.Check(readLedger(t, c), jobs, harms) {
		t.Error(fault)
	}
}

// completed waits for a job and fails the test if it did not complete.
func completed(t *testing.T, c cluster.Ctl, id string) cluster.Job {
	t.Helper()
	job, err := c.AwaitEnd(t.Context(), id, guard)
	clustertest.Must(t, err)
	if job.State != "completed" {
		t.Fatalf("job %s: got %s, want completed: %+v", id, job.State, job)
	}
	return job
}
