package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
	"github.com/dtask/dtask/worker"
)

// goWorker runs a worker in this process, which does not run commands: it calls
// process.RunSupervisor nowhere.
func goWorker(t *testing.T, c *cluster.Cluster, name string, handlers map[string]worker.Handler) {
	t.Helper()
	w, err := worker.New(worker.Config{Join: c.Addrs, Name: name, Slots: 50, WorkDir: filepath.Join(c.Dir, name), DrainTimeout: -1})
	clustertest.Must(t, err)
	for typ, h := range handlers {
		w.Handle(typ, h)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("worker %s: %v", name, err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	clustertest.Must(t, c.AwaitWorker(t.Context(), name, "up"))
}

// A Go worker has many more free slots than the plain one beside it, but tasks
// run only where they can, and none of them loses a retry. A task of a type that
// nobody handles waits, and status has the reason. A new leader, or the loss of a worker, may
// begin an attempt again.
func TestTasksRunOnlyOnWorkersThatHandleTheirType(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Workers: 1, Slots: 2})
	answer := func(context.Context, *worker.Task) ([]byte, error) { return []byte("done"), nil }
	goWorker(t, c, "go", map[string]worker.Handler{"resize": answer})
	tries := 0
	steadily(t, c, func() string {
		tries++
		rare, late := fmt.Sprint("rare", tries), fmt.Sprint("late", tries)
		list := []cluster.TaskFile{{"id": "rare", "type": rare, "retry": map[string]int{"max": 0}}}
		for i := range 40 {
			list = append(list,
				cluster.TaskFile{"id": fmt.Sprintf("resize%d", i), "type": "resize", "retry": map[string]int{"max": 0}},
				cluster.TaskFile{"id": fmt.Sprintf("run%d", i), "run": "true", "retry": map[string]int{"max": 0}},
				cluster.TaskFile{"id": fmt.Sprintf("noop%d", i), "type": "noop", "retry": map[string]int{"max": 0}})
		}
		id := clustertest.Submit(t, c.Ctl, cluster.JobFile("mixed", list...))
		job, err := c.AwaitJob(t.Context(), id, guard, "all but one have completed", func(j cluster.Job) bool {
			return j.TasksCompleted == len(list)-1 || j.TasksFailed > 0
		})
		clustertest.Must(t, err)
		if job.TasksFailed > 0 {
			return fmt.Sprintf("%d tasks failed: %+v", job.TasksFailed, job)
		}
		if broken := waitsForAWorker(t, c, id, rare); broken != "" {
			return broken
		}
		goWorker(t, c, late, map[string]worker.Handler{rare: answer})
		return ranWhereTheyCan(completed(t, c.Ctl, id), late)
	})
}

// waitsForAWorker checks that the task "rare" of a job has no attempt, and that the reason is
// shown: nobody handles its type.
func waitsForAWorker(t *testing.T, c *cluster.Cluster, id, typ string) (broken string) {
	t.Helper()
	reason := fmt.Sprintf("no worker that is up handles tasks of type %q", typ)
	job, err := c.Job(t.Context(), id)
	clustertest.Must(t, err)
	if rare := job.Task("rare"); rare.State != "pending" || rare.Attempt != 0 || rare.PendingReason != reason {
		return fmt.Sprintf("got %+v, want a pending task without an attempt because %s", rare, reason)
	}
	if text := c.Run(t.Context(), "status", id); !strings.Contains(text.Stdout, reason) {
		return "status does not say why the task is pending:\n" + text.Stdout
	}
	explained := c.Run(t.Context(), "explain", id+"/rare")
	for _, want := range []string{fmt.Sprintf("does not handle tasks of type %q", typ), "another worker joins, with 1 slot"} {
		if !strings.Contains(explained.Stdout, want) {
			return fmt.Sprintf("explain does not show %s:\n%s", want, explained.Stdout)
		}
	}
	return ""
}

// ranWhereTheyCan checks that each task had one attempt, on the worker that handles its type.
func ranWhereTheyCan(job cluster.Job, late string) (broken string) {
	if job.Retries != 0 {
		return fmt.Sprintf("got %d retries, want none", job.Retries)
	}
	for _, task := range job.Tasks {
		want := "w1"
		switch {
		case task.ID == "rare":
			want = late
		case strings.HasPrefix(task.ID, "resize"):
			want = "go"
		}
		if task.Worker != want || task.Attempt != 1 {
			return fmt.Sprintf("task %s: attempt %d on %s, want the first on %s", task.ID, task.Attempt, task.Worker, want)
		}
	}
	return ""
}

// shortTasks is how many tasks run before the long ones. Every 16th start is the oldest task of
// any priority, by the counts of the worker and of the leader, whose count includes prefetched
// tasks: the urgent task must not be at one of these.
const shortTasks = 34

// Low tasks that turn out to be long were prefetched while tasks were short. An
// urgent task starts in the next free slot all the same. The slot becomes free only when the
// urgent task waits for it, and the commands record when they start: the times that dtaskctl
// shows are estimates of the leader.
func TestAnUrgentTaskDoesNotWaitBehindPrefetchedOnes(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Workers: 1, Slots: 1, WorkerFlags: []string{"--prefetch", "8"}})
	tries := 0
	steadily(t, c, func() string {
		tries++
		gate := filepath.Join(c.Dir, fmt.Sprint("gate", tries))
		var short []cluster.TaskFile
		long := []cluster.TaskFile{c.Programs.Mark("first", ledgerOf(c), 0, "-until", gate).With("priority", "low")}
		for i := range shortTasks {
			short = append(short, cluster.Builtin(fmt.Sprintf("short%d", i), "noop", "").With("priority", "low"))
		}
		for i := range 9 {
			long = append(long, c.Programs.Mark(fmt.Sprintf("long%d", i), ledgerOf(c), time.Second).With("priority", "low"))
		}
		completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("short", short...)))
		slow := clustertest.Submit(t, c.Ctl, cluster.JobFile("long", long...))
		if held := awaitBegun(t, c, slow, 1)[0]; held.Task != "first" {
			t.Fatalf("the job begins with %s, want first", held.Task)
		}
		id := clustertest.Submit(t, c.Ctl, cluster.JobFile("urgent", c.Programs.Mark("now", ledgerOf(c), 0).With("priority", "urgent")))
		clustertest.Must(t, cluster.Until(t.Context(), "the urgent task is the next one", guard, func(ctx context.Context) error {
			job, err := c.Job(ctx, id)
			if err != nil || job.Tasks[0].State != "pending" { // it runs already if the worker was marked down
				return err
			}
			low, err := c.Job(ctx, slow)
			if n := prefetched(low); err == nil && n > 0 {
				err = fmt.Errorf("%d low tasks are prefetched, and the urgent one is %s", n, job.Tasks[0].State)
			}
			return err
		}))
		openGate(t, gate)
		completed(t, c.Ctl, id)
		_ = c.Run(t.Context(), "cancel", slow)
		urgent, before := runsOf(t, c, id, "now")[0].Start, 0
		for _, r := range ledger.Runs(readLedger(t, c)) {
			if r.Job == slow && r.Task != "first" && r.Start < urgent {
				before++
			}
		}
		if before > 0 {
			return fmt.Sprintf("%d low tasks began after the urgent one was submitted and before it began", before)
		}
		return ""
	})
}

// prefetched counts the tasks of a job that are assigned and do not run.
func prefetched(job cluster.Job) int {
	n := 0
	for _, task := range job.Tasks {
		if task.State == "assigned" {
			n++
		}
	}
	return n
}
