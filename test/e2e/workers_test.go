package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// elsewhere bounds the time until the tasks of a killed worker run on another.
const elsewhere = 5 * time.Second

// marks returns tasks that write to the ledger, with more arguments of mark.
func marks(c *cluster.Cluster, n int, work time.Duration, args ...string) []cluster.TaskFile {
	var tasks []cluster.TaskFile
	for i := range n {
		tasks = append(tasks, c.Programs.Mark(fmt.Sprintf("t%d", i), ledgerOf(c), work, args...))
	}
	return tasks
}

// awaitBegun returns the runs of a job when n have started.
func awaitBegun(t *testing.T, c *cluster.Cluster, job string, n int) []ledger.Run {
	t.Helper()
	var runs []ledger.Run
	clustertest.Must(t, cluster.Until(t.Context(), fmt.Sprintf("%d runs have started", n), guard, func(context.Context) error {
		lines, err := ledger.Read(ledgerOf(c))
		if err != nil {
			return err
		}
		runs = nil
		for _, r := range ledger.Runs(lines) {
			if r.Job == job {
				runs = append(runs, r)
			}
		}
		if len(runs) < n {
			return fmt.Errorf("%d have started", len(runs))
		}
		return nil
	}))
	return runs
}

func TestTheTasksOfAKilledWorkerRunElsewhere(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Workers: 3})
	var harms []ledger.Harm
	var jobs []ledger.Job
	steadily(t, c, func() string {
		const tasks = 6
		// No task ends before the worker is killed.
		gate := filepath.Join(c.Dir, fmt.Sprint("killed", len(harms)))
		id := clustertest.Submit(t, c.Ctl, cluster.JobFile("survivors", marks(c, tasks, 0, "-until", gate)...))
		runs := awaitBegun(t, c, id, tasks)
		victim := c.Worker(runs[0].Worker)
		killed := now(t)
		clustertest.Must(t, victim.Kill())
		harms = append(harms, ledger.Harm{Worker: victim.Name, From: killed})
		clustertest.Must(t, cluster.Until(t.Context(), "all processes of the worker are gone", guard, func(context.Context) error {
			for _, r := range runs {
				if r.Worker == victim.Name && syscall.Kill(r.Pid, 0) == nil {
					return fmt.Errorf("process %d of task %s still runs", r.Pid, r.Task)
				}
			}
			return nil
		}))
		gone := now(t) - killed
		openGate(t, gate)
		job := completed(t, c.Ctl, id)
		jobs = append(jobs, judged(job, nil))
		if job.Retries == 0 {
			t.Error("got no retries of the job")
		}
		clustertest.Must(t, c.AwaitWorker(t.Context(), victim.Name, "down"))
		clustertest.Must(t, victim.Start(t.Context()))
		clustertest.Must(t, c.AwaitWorker(t.Context(), victim.Name, "up"))
		if gone > time.Second+slack {
			return fmt.Sprintf("the processes of %s were gone %v after it was killed", victim.Name, gone)
		}
		return tooLate(t, c, runs, victim.Name, killed)
	})
	checkLedger(t, c, harms, jobs...)
}

// tooLate reports the runs of a killed worker that started elsewhere too late.
func tooLate(t *testing.T, c *cluster.Cluster, runs []ledger.Run, worker string, killed time.Duration) string {
	t.Helper()
	for _, r := range runs {
		if r.Worker != worker {
			continue
		}
		all := runsOf(t, c, r.Job, r.Task)
		if len(all) != 2 {
			return fmt.Sprintf("task %s: got %d runs, want one on the killed worker and one elsewhere", r.Task, len(all))
		}
		late := all[1].Start - killed
		t.Logf("task %s started elsewhere %v after the kill", r.Task, late)
		if late > elsewhere+slack {
			return fmt.Sprintf("task %s started elsewhere %v after the kill", r.Task, late)
		}
	}
	return ""
}

func TestTheLateCompletionOfAStoppedWorkerIsSuperseded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 2})
	var harms []ledger.Harm
	var jobs []ledger.Job
	steadily(t, c, func() string {
		id := clustertest.Submit(t, c.Ctl, cluster.JobFile("late", c.Programs.Mark("only", ledgerOf(c), 3*time.Second))) //nolint:contextcheck // the test's own
		held := awaitBegun(t, c, id, 1)[0]                                                                               //nolint:contextcheck // the test's own
		victim := c.Worker(held.Worker)
		stopped := now(t)
		clustertest.Must(t, victim.Pause())
		// Its command continues and exits while the worker is stopped.
		clustertest.Must(t, cluster.Pause(ctx, 10*time.Second))
		clustertest.Must(t, victim.Resume())
		harms = append(harms, ledger.Harm{Worker: victim.Name, From: stopped, Until: now(t)})
		job := completed(t, c.Ctl, id) //nolint:contextcheck // the test's own
		jobs = append(jobs, judged(job, nil))
		clustertest.Must(t, c.AwaitWorker(ctx, victim.Name, "up"))
		if task := job.Tasks[0]; task.Worker == victim.Name || task.Attempt != 2 {
			return fmt.Sprintf("the accepted completion: got attempt %d on %s, want 2 on the other worker", task.Attempt, task.Worker)
		}
		if err := cluster.Until(ctx, "the worker logs the superseded outcome", guard, func(context.Context) error {
			if !victim.LogHas("superseded", "job_id="+id) {
				return cluster.ErrNotYet
			}
			return nil
		}); err != nil {
			return err.Error()
		}
		again, err := c.Job(ctx, id)
		clustertest.Must(t, err)
		if again.Tasks[0].Worker != job.Tasks[0].Worker || again.Tasks[0].Attempt != job.Tasks[0].Attempt {
			return fmt.Sprintf("the late completion changed the task from %+v to %+v", job.Tasks[0], again.Tasks[0])
		}
		return ""
	})
	checkLedger(t, c, harms, jobs...)
}

// Short tasks are prefetched: a stopped worker holds attempts that it has not
// started, and that complete elsewhere meanwhile.
func TestAStoppedWorkerBeginsNoAttemptThatWasReplaced(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 2, Slots: 4})
	var harms []ledger.Harm
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("short", marks(c, 400, time.Millisecond)...))
	awaitBegun(t, c, id, 200)
	victim := c.Worker("w1")
	stopped := now(t)
	clustertest.Must(t, victim.Pause())
	clustertest.Must(t, cluster.Pause(ctx, 10*time.Second))
	job := completed(t, c.Ctl, id)
	resumed := now(t)
	clustertest.Must(t, victim.Resume())
	harms = append(harms, ledger.Harm{Worker: victim.Name, From: stopped, Until: now(t)})
	clustertest.Must(t, c.AwaitWorker(ctx, victim.Name, "up"))
	// It runs again, and has reported all attempts that it held.
	again := clustertest.Submit(t, c.Ctl, cluster.JobFile("again", marks(c, 100, 50*time.Millisecond)...))
	jobs := []ledger.Job{judged(job, nil), judged(completed(t, c.Ctl, again), nil)}
	replaced := 0
	for _, r := range ledger.Runs(readLedger(t, c)) {
		if r.Job == id && r.Start > resumed {
			t.Errorf("attempt %d of %s started on %s %v after the job had ended", r.Attempt, r.Task, r.Worker, r.Start-resumed)
		}
		if r.Job == id && r.Attempt > 1 {
			replaced++
		}
	}
	t.Logf("%d attempts were replaced while the worker was stopped", replaced)
	checkLedger(t, c, harms, jobs...)
}

func TestADrainedWorkerFinishesItsAttempts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := clustertest.Start(t, cluster.Config{Workers: 2, Slots: 1})
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("drain", marks(c, 6, 500*time.Millisecond)...))
	held := awaitBegun(t, c, id, 1)[0]
	leaving := c.Worker(held.Worker)
	stalls := clustertest.WatchStalls(t)
	asked := now(t)
	clustertest.Must(t, leaving.Terminate())
	if code, err := leaving.Wait(ctx); err != nil || code != 0 {
		t.Errorf("got exit code %d, %v; want 0", code, err)
	}
	late := slack + stalls.Lost()
	job := completed(t, c.Ctl, id)
	checkLedger(t, c, nil, judged(job, nil))
	for _, r := range ledger.Runs(readLedger(t, c)) {
		if r.Worker == leaving.Name && r.Start > asked+late {
			t.Errorf("task %s started on the worker %v after the drain", r.Task, r.Start-asked)
		}
	}
	if run := runsOf(t, c, id, held.Task); len(run) != 1 || !run[0].Ended() {
		t.Errorf("attempt held at the drain: got %+v, want one run that ended", run)
	}
}
