package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
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
// nobody handles waits, and status has the reason.
func TestTasksRunOnlyOnWorkersThatHandleTheirType(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Workers: 1, Slots: 2})
	answer := func(context.Context, *worker.Task) ([]byte, error) { return []byte("done"), nil }
	goWorker(t, c, "go", map[string]worker.Handler{"resize": answer})
	list := []cluster.TaskFile{{"id": "rare", "type": "rare", "retry": map[string]int{"max": 0}}}
	for i := range 40 {
		list = append(list,
			cluster.TaskFile{"id": fmt.Sprintf("resize%d", i), "type": "resize", "retry": map[string]int{"max": 0}},
			cluster.TaskFile{"id": fmt.Sprintf("run%d", i), "run": "true", "retry": map[string]int{"max": 0}},
			cluster.TaskFile{"id": fmt.Sprintf("noop%d", i), "type": "noop", "retry": map[string]int{"max": 0}})
	}
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("mixed", list...))
	_, err := c.AwaitJob(t.Context(), id, guard, "all but one have completed", func(j cluster.Job) bool { return j.TasksCompleted == len(list)-1 })
	clustertest.Must(t, err)
	reason := `no worker that is up handles tasks of type "rare"`
	job, err := c.Job(t.Context(), id)
	clustertest.Must(t, err)
	if rare := job.Task("rare"); rare.State != "pending" || rare.Attempt != 0 || rare.PendingReason != reason {
		t.Errorf("got %+v, want a pending task without an attempt because %s", rare, reason)
	}
	if text := c.Run(t.Context(), "status", id); !strings.Contains(text.Stdout, reason) {
		t.Errorf("status does not say why the task is pending:\n%s", text.Stdout)
	}
	explained := c.Run(t.Context(), "explain", id+"/rare")
	for _, want := range []string{"does not handle tasks of type \"rare\"", "another worker joins, with 1 slot"} {
		if !strings.Contains(explained.Stdout, want) {
			t.Errorf("explain does not show %s:\n%s", want, explained.Stdout)
		}
	}
	goWorker(t, c, "late", map[string]worker.Handler{"rare": answer})
	job = completed(t, c.Ctl, id)
	if job.Retries != 0 {
		t.Errorf("got %d retries, want none", job.Retries)
	}
	for _, task := range job.Tasks {
		want := "w1"
		switch {
		case task.ID == "rare":
			want = "late"
		case strings.HasPrefix(task.ID, "resize"):
			want = "go"
		}
		if task.Worker != want || task.Attempt != 1 {
			t.Errorf("task %s: attempt %d on %s, want the first on %s", task.ID, task.Attempt, task.Worker, want)
		}
	}
}

// Low tasks that turn out to be long were prefetched while tasks were short. An
// urgent task starts in the next free slot all the same.
func TestAnUrgentTaskDoesNotWaitBehindPrefetchedOnes(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Workers: 1, Slots: 1, WorkerFlags: []string{"--prefetch", "8"}})
	steadily(t, c, func() string {
		var short, long []cluster.TaskFile
		for i := range 30 {
			short = append(short, cluster.Builtin(fmt.Sprintf("short%d", i), "noop", "").With("priority", "low"))
		}
		for i := range 10 {
			long = append(long, cluster.Builtin(fmt.Sprintf("long%d", i), "sleep", "1s").With("priority", "low"))
		}
		completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("short", short...)))
		slow := clustertest.Submit(t, c.Ctl, cluster.JobFile("long", long...))
		held := func(j cluster.Job) bool {
			return slices.ContainsFunc(j.Tasks, func(t cluster.Task) bool { return t.State == "running" })
		}
		_, err := c.AwaitJob(t.Context(), slow, guard, "a task runs", held)
		clustertest.Must(t, err)
		asked := time.Now()
		urgent := completed(t, c.Ctl, clustertest.Submit(t, c.Ctl, cluster.JobFile("urgent", cluster.Builtin("now", "noop", "").With("priority", "urgent"))))
		took := time.Since(asked)
		job, err := c.Job(t.Context(), slow)
		clustertest.Must(t, err)
		_ = c.Run(t.Context(), "cancel", slow)
		began := *urgent.Tasks[0].StartedAt
		before := 0
		for _, task := range job.Tasks {
			if task.StartedAt != nil && task.StartedAt.After(asked) && task.StartedAt.Before(began) {
				before++
			}
		}
		t.Logf("the urgent task completed after %v; %d tasks began before it", took, before)
		if before > 0 {
			return fmt.Sprintf("%d low tasks began after the urgent one was submitted and before it began", before)
		}
		return ""
	})
}
