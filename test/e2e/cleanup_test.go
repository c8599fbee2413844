package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// sweeper is a cleanup task that writes to the ledger and returns the outcome of its
// job as its result. More arguments are given to mark.
func sweeper(c *cluster.Cluster, work time.Duration, args ...string) cluster.TaskFile {
	command := fmt.Sprintf("%s -ledger %s -for %v %s && echo $DTASK_JOB_OUTCOME", c.Programs.Path("mark"), ledgerOf(c), work, strings.Join(args, " "))
	return cluster.TaskFile{"id": "sweep", "run": command, "finally": true}
}

// cleanupResult returns the result of a job's cleanup task.
func cleanupResult(t *testing.T, c *cluster.Cluster, id string) string {
	t.Helper()
	var doc struct {
		Results map[string]struct{ Result string }
	}
	a := c.Run(t.Context(), "result", id, "-o", "json") // its exit code is that of the job
	clustertest.Must(t, a.Into(&doc))
	return doc.Results["sweep"].Result
}

// The cleanup task of a cancelled job runs after its killed commands have exited,
// also when its worker is killed halfway and under a new leader.
func TestACancelledJobCleansUpAlthoughItsWorkerAndTheLeaderAreKilled(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Coordinators: 3, Workers: 3})
	killed := filepath.Join(c.Dir, "killed") // cleanup does not end before its worker is killed
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("cleans",
		c.Programs.Mark("work", ledgerOf(c), 10*time.Minute, "-ignore-term").With("kill_grace", "1500ms"),
		cluster.Builtin("never", "noop", "").After("work"), sweeper(c, 0, "-until", killed)))
	awaitBegun(t, c, id, 1)
	asked := now(t)
	clustertest.Must(t, c.Run(ctx, "cancel", id, "--reason", "enough").Err())
	clustertest.Must(t, c.Run(ctx, "cancel", id).Err())
	sweeps := awaitSweep(t, c, id)
	if early := sweeps[0].Start - asked; early < time.Second {
		t.Errorf("cleanup started %v after the cancel, want at least 1.5 s: the grace period of the command", early)
	}
	job, err := c.Job(ctx, id)
	clustertest.Must(t, err)
	if job.State != "running" || job.Task("work").State != "cancelled" || job.Task("never").State != "cancelled" {
		t.Errorf("during cleanup: got job %+v", job)
	}
	harm := ledger.Harm{Worker: sweeps[0].Worker, From: now(t)}
	clustertest.Must(t, c.Worker(harm.Worker).Kill())
	clustertest.Must(t, clustertest.Leader(t, c).Kill())
	openGate(t, killed)
	job, err = c.AwaitEnd(ctx, id, guard)
	clustertest.Must(t, err)
	if job.State != "cancelled" || job.Task("sweep").State != "completed" || job.Task("sweep").Attempt < 2 {
		t.Errorf("got job %+v, want cancelled, with a second attempt of the cleanup task", job)
	}
	if got := cleanupResult(t, c, id); got != "cancelled" {
		t.Errorf("got cleanup result %q", got)
	}
}

// awaitSweep returns the runs of the cleanup task when there is one.
func awaitSweep(t *testing.T, c *cluster.Cluster, id string) []ledger.Run {
	t.Helper()
	var runs []ledger.Run
	clustertest.Must(t, cluster.Until(t.Context(), "the cleanup task runs", guard, func(context.Context) error {
		if runs = runsOf(t, c, id, "sweep"); len(runs) == 0 {
			return errors.New("it has not started")
		}
		return nil
	}))
	return runs
}

// cleansUp checks the other ends of a job, in a cluster that other tests use as
// well.
func cleansUp(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	end := func(job map[string]any, tasks ...cluster.TaskFile) (id string, ended cluster.Job) {
		id = clustertest.Submit(t, c.Ctl, cluster.JobFileWith(job, append(tasks, sweeper(c, 0))...))
		ended, err := c.AwaitEnd(t.Context(), id, guard)
		clustertest.Must(t, err)
		return id, ended
	}
	for want, job := range map[string]map[string]any{
		"completed": {"name": "well"},
		"failed":    {"name": "badly"},
	} {
		task := cluster.TaskFile{"id": "a", "run": map[string]string{"completed": "true", "failed": "exit 3"}[want], "retry": map[string]any{"max": 0}}
		id, ended := end(job, task)
		if got := cleanupResult(t, c, id); ended.State != want || got != want {
			t.Errorf("got job %s and cleanup result %q, want %s", ended.State, got, want)
		}
	}
	bad := cluster.TaskFile{"id": "bad", "run": "exit 3", "retry": map[string]any{"max": 0}}
	if id, ended := end(map[string]any{"name": "tolerates", "max_failures": "50%"}, bad, cluster.Builtin("after", "noop", "").With("needs", []any{need("bad", "ended")}), cluster.Builtin("good", "noop", "")); ended.State != "completed" || cleanupResult(t, c, id) != "completed" || ended.TasksFailed != 1 || !ended.Task("after").Completed() {
		t.Errorf("with a tolerated failure: got job %+v", ended)
	}
	pure := cluster.Builtin("pure", "echo", "once").With("reuse", map[string]any{"key": "cleansUp"})
	if _, ended := end(map[string]any{"name": "runs"}, pure); ended.Task("pure").Attempt != 1 {
		t.Errorf("first pure task: got %+v", ended.Task("pure"))
	}
	if _, ended := end(map[string]any{"name": "reuses"}, pure); !ended.Task("pure").Completed() || ended.Task("pure").Attempt != 0 {
		t.Errorf("second pure task: got %+v", ended.Task("pure"))
	}
	id, ended := end(map[string]any{"name": "late", "deadline": "1s"}, cluster.Builtin("a", "sleep", "10m"))
	if got := cleanupResult(t, c, id); ended.State != "failed" || got != "failed" {
		t.Errorf("late job: got %s and cleanup result %q", ended.State, got)
	}
	id = clustertest.Submit(t, c.Ctl, cluster.JobFile("now", cluster.Builtin("a", "noop", ""), sweeper(c, 10*time.Minute)))
	awaitSweep(t, c, id)
	if a := c.Run(t.Context(), "cancel", id); a.Code != 5 {
		t.Errorf("cancelling a job during its cleanup: got %s", a)
	}
	clustertest.Must(t, c.Run(t.Context(), "cancel", id, "--now").Err())
	if job, err := c.AwaitEnd(t.Context(), id, guard); err != nil || job.State != "cancelled" || job.Task("sweep").State != "cancelled" {
		t.Errorf("cancelled with its cleanup: got %+v, %v", job, err)
	}
}
