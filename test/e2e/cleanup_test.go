package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// sweeper is a cleanup task that writes to the ledger and leaves the outcome of
// its job as its result.
func sweeper(c *cluster.Cluster, work time.Duration) cluster.TaskFile {
	command := fmt.Sprintf("%s -ledger %s -for %v && echo $DTASK_JOB_OUTCOME", c.Programs.Path("mark"), ledgerOf(c), work)
	return cluster.TaskFile{"id": "sweep", "run": command, "finally": true}
}

// told is what the cleanup task of a job left.
func told(t *testing.T, c *cluster.Cluster, id string) string {
	t.Helper()
	var doc struct {
		Results map[string]struct{ Result string }
	}
	a := c.Run(t.Context(), "result", id, "-o", "json") // its exit code is that of the job
	clustertest.Must(t, a.Into(&doc))
	return doc.Results["sweep"].Result
}

// A cancelled job cleans up: after its killed commands are gone, also when the
// worker that does it is killed half way, and under a new leader.
func TestACancelledJobCleansUpAlthoughItsWorkerAndTheLeaderAreKilled(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Coordinators: 3, Workers: 3})
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("cleans",
		c.Programs.Mark("work", ledgerOf(c), 10*time.Minute, "-ignore-term").With("kill_grace", "1500ms"),
		cluster.Builtin("never", "noop", "").After("work"), sweeper(c, 3*time.Second)))
	awaitBegun(t, c, id, 1)
	asked := now(t)
	clustertest.Must(t, c.Run(ctx, "cancel", id, "--reason", "enough").Err())
	clustertest.Must(t, c.Run(ctx, "cancel", id).Err())
	sweeps := awaitSweep(t, c, id)
	if early := sweeps[0].Start - asked; early < time.Second {
		t.Errorf("it cleaned up %v after the cancel, while the command had 1.5 s to end", early)
	}
	job, err := c.Job(ctx, id)
	clustertest.Must(t, err)
	if job.State != "running" || job.Task("work").State != "cancelled" || job.Task("never").State != "cancelled" {
		t.Errorf("while it cleans up the job is %+v", job)
	}
	harm := ledger.Harm{Worker: sweeps[0].Worker, From: now(t)}
	clustertest.Must(t, c.Worker(harm.Worker).Kill())
	clustertest.Must(t, clustertest.Leader(t, c).Kill())
	job, err = c.AwaitEnd(ctx, id, guard)
	clustertest.Must(t, err)
	if job.State != "cancelled" || job.Task("sweep").State != "completed" || job.Task("sweep").Attempt < 2 {
		t.Errorf("the job is %+v, want cancelled, and cleaned up in a second attempt", job)
	}
	if got := told(t, c, id); got != "cancelled" {
		t.Errorf("the cleanup task got %q", got)
	}
}

// awaitSweep returns the runs of the cleanup task once there is one.
func awaitSweep(t *testing.T, c *cluster.Cluster, id string) []ledger.Run {
	t.Helper()
	var runs []ledger.Run
	clustertest.Must(t, cluster.Until(t.Context(), "the cleanup task runs", guard, func(context.Context) error {
		if runs = runsOf(t, c, id, "sweep"); len(runs) == 0 {
			return errors.New("it has not begun")
		}
		return nil
	}))
	return runs
}

// cleansUp plays the other ends of a job in a cluster that others use as well.
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
		if got := told(t, c, id); ended.State != want || got != want {
			t.Errorf("the job is %s, its cleanup task got %q; want %s", ended.State, got, want)
		}
	}
	bad := cluster.TaskFile{"id": "bad", "run": "exit 3", "retry": map[string]any{"max": 0}}
	if id, ended := end(map[string]any{"name": "tolerates", "max_failures": "50%"}, bad, cluster.Builtin("after", "noop", "").After("bad"), cluster.Builtin("good", "noop", "")); ended.State != "completed" || told(t, c, id) != "completed" || ended.TasksFailed != 1 || ended.Task("after").State != "cancelled" {
		t.Errorf("with a tolerated failure the job is %+v", ended)
	}
	pure := cluster.Builtin("pure", "echo", "once").With("reuse", map[string]any{"key": "cleansUp"})
	if _, ended := end(map[string]any{"name": "runs"}, pure); ended.Task("pure").Attempt != 1 {
		t.Errorf("the first pure task is %+v", ended.Task("pure"))
	}
	if _, ended := end(map[string]any{"name": "reuses"}, pure); !ended.Task("pure").Completed() || ended.Task("pure").Attempt != 0 {
		t.Errorf("the second pure task is %+v", ended.Task("pure"))
	}
	id, ended := end(map[string]any{"name": "late", "deadline": "1s"}, cluster.Builtin("a", "sleep", "10m"))
	if got := told(t, c, id); ended.State != "failed" || got != "failed" {
		t.Errorf("the late job is %s, its cleanup task got %q", ended.State, got)
	}
	id = clustertest.Submit(t, c.Ctl, cluster.JobFile("now", cluster.Builtin("a", "noop", ""), sweeper(c, 10*time.Minute)))
	awaitSweep(t, c, id)
	if a := c.Run(t.Context(), "cancel", id); a.Code != 5 {
		t.Errorf("cancelling a job whose cleanup is still running: %s", a)
	}
	clustertest.Must(t, c.Run(t.Context(), "cancel", id, "--now").Err())
	if job, err := c.AwaitEnd(t.Context(), id, guard); err != nil || job.State != "cancelled" || job.Task("sweep").State != "cancelled" {
		t.Errorf("cancelled now: %+v, %v", job, err)
	}
}
