package chaos

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/chaos/nemesis"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// TestHealthyWorkersAreNotMarkedDown saturates the processors and stops leaders for up
// to half a minute: no running task is started again, and no healthy worker is marked
// down.
func TestHealthyWorkersAreNotMarkedDown(t *testing.T) {
	suite := os.Getenv(suiteVariable)
	if suite != "smoke" && suite != "measure" {
		t.Skip("make chaos-smoke runs this")
	}
	c := clustertest.Start(t, cluster.Config{Workers: 3, Slots: 4, TLS: clustertest.TLS(t, suite == "smoke")})
	book := filepath.Join(c.Dir, "ledger")
	ids := []string{submitLong(t, c, book, "saturated", 60, 4*time.Second)}
	before := upSince(t, c)

	stop, err := nemesis.Spin(t.Context(), c.Dir, 4*runtime.NumCPU())
	clustertest.Must(t, err)
	clustertest.Must(t, cluster.Pause(t.Context(), 40*time.Second))
	clustertest.Must(t, stop())
	t.Logf("processors saturated for 40 s by %d processes", 4*runtime.NumCPU())

	ids = append(ids, submitLong(t, c, book, "paused", 60, 4*time.Second))
	for _, length := range []time.Duration{time.Second, 2500 * time.Millisecond, 6 * time.Second, 30 * time.Second} {
		leader := clustertest.Leader(t, c)
		clustertest.Must(t, leader.Pause())
		clustertest.Must(t, cluster.Pause(t.Context(), length))
		clustertest.Must(t, leader.Resume())
		clustertest.Must(t, cluster.Pause(t.Context(), 2*time.Second))
		clustertest.Must(t, cluster.Until(t.Context(), leader.Name+" has caught up", 5*time.Minute, func(ctx context.Context) error {
			if !leader.Running() { // it exits if it was stopped during a disk call
				t.Logf("%s exited after a stop of %v; restarting it", leader.Name, length)
				clustertest.Must(t, leader.Start(t.Context())) //nolint:contextcheck // the process outlives the wait
			}
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // it may exit only now
			defer cancel()
			return c.AwaitCaughtUp(ctx, leader)
		}))
		t.Logf("leader %s stopped for %v", leader.Name, length)
	}

	var jobs []ledger.Job
	for _, id := range ids {
		shown, err := c.AwaitEnd(t.Context(), id, endOfAll)
		clustertest.Must(t, err)
		job := ledger.Job{ID: id, State: shown.State, Completed: shown.TasksCompleted}
		for _, task := range shown.Tasks {
			job.Tasks = append(job.Tasks, ledger.Task{ID: task.ID, State: task.State, Attempt: task.Attempt, Worker: task.Worker})
		}
		jobs = append(jobs, job)
	}
	lines, err := ledger.Read(book)
	clustertest.Must(t, err)
	for _, fault := range ledger.Check(lines, jobs, nil) {
		t.Error(fault)
	}
	for name, since := range upSince(t, c) {
		if !since.Equal(before[name]) {
			t.Errorf("worker %s was marked down: up since %v, before since %v", name, since, before[name])
		}
	}
	t.Logf("%d executions of %d tasks, no worker marked down", len(ledger.Runs(lines)), len(jobs)*60)
}

func submitLong(t *testing.T, c *cluster.Cluster, book, name string, many int, work time.Duration) string {
	t.Helper()
	var tasks []cluster.TaskFile
	for i := range many {
		tasks = append(tasks, c.Programs.Mark("t"+strconv.Itoa(i), book, work))
	}
	id, err := c.Submit(t.Context(), cluster.JobFile(name, tasks...))
	clustertest.Must(t, err)
	return id
}

// upSince returns since when each worker is up.
func upSince(t *testing.T, c *cluster.Cluster) map[string]time.Time {
	t.Helper()
	cl, err := c.Client()
	clustertest.Must(t, err)
	defer func() { _ = cl.Close() }()
	since := make(map[string]time.Time)
	for w, err := range cl.Workers(t.Context(), client.WorkerFilter{}) {
		clustertest.Must(t, err)
		since[w.GetName()] = time.UnixMilli(w.GetUpSince())
	}
	return since
}
