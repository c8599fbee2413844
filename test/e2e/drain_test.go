package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
)

func TestAnOperatorsDrainOutlivesTheLeaderAndTheWorker(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 2, Slots: 1})
	// Whatever the speed of the machine, no task ends before the deadline.
	drained := filepath.Join(c.Dir, "drained")
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("ordered", marks(c, 4, 0, "-until", drained)...))
	runs := awaitBegun(t, c, id, 2)
	leaving := c.Worker(runs[0].Worker)
	asked := now(t)
	clustertest.Must(t, c.Run(ctx, "worker", "drain", leaving.Name, "--deadline", "2s", "--reason", "new disk").Err())
	ordered := now(t)
	clustertest.Must(t, clustertest.Leader(t, c).Kill())

	a := c.Run(ctx, "worker", "drain", "nobody")
	if a.Code != 4 {
		t.Errorf("draining an unknown worker: got %s", a)
	}
	clustertest.Must(t, c.AwaitWorker(ctx, leaving.Name, "drained"))
	if early := now(t) - asked; early < 2*time.Second {
		t.Errorf("the worker was empty %v after the drain, before the deadline", early)
	}
	clustertest.Must(t, os.WriteFile(drained, nil, 0o600))
	// Its process is killed and restarted: the drain remains.
	clustertest.Must(t, leaving.Kill())
	startAgain(t, leaving.Process) // until then the cluster shows the state of the killed process
	clustertest.Must(t, c.AwaitWorker(ctx, leaving.Name, "drained"))
	job := completed(t, c.Ctl, id)
	checkLedger(t, c, []ledger.Harm{{Worker: leaving.Name, From: ordered}}, judged(job, nil))
	for _, r := range ledger.Runs(readLedger(t, c)) {
		if r.Worker == leaving.Name && r.Start > ordered {
			t.Errorf("task %s started on the worker %v after the drain was acknowledged", r.Task, r.Start-ordered)
		}
	}
	if task := job.Task(runs[0].Task); task.Attempt != 2 || task.Worker == leaving.Name {
		t.Errorf("the task that ran at the deadline: got %+v, want a second attempt elsewhere", task)
	}

	var w struct{ State string }
	undrained := c.Run(ctx, "worker", "resume", leaving.Name, "-o", "json")
	clustertest.Must(t, undrained.Err())
	clustertest.Must(t, json.Unmarshal([]byte(undrained.Stdout), &w))
	if w.State != "up" {
		t.Errorf("after the drain: got state %s", w.State)
	}
	completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("after", marks(c, 2, 100*time.Millisecond)...)))
}
