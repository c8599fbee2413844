package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
	"github.com/dtask/dtask/worker"
)

// Workers of one process that share a connection and a stream survive the loss of
// leaders like others: their attempts continue, and each task is executed once.
func TestWorkersOnASharedStreamLoseNothingWithTheirLeader(t *testing.T) {
	t.Parallel()
	const workers, tasks, kills = 12, 6000, 2
	c := clustertest.Start(t, cluster.Config{})
	begun := make([]atomic.Int32, tasks)
	var total atomic.Int64
	reached := make(map[int64]chan struct{})
	for i := range int64(kills) {
		reached[(i+1)*tasks/(kills+2)] = make(chan struct{})
	}
	conns := worker.NewConnections()
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for i := range workers {
		name := fmt.Sprintf("shared%d", i)
		w, err := worker.New(worker.Config{Join: c.Addrs, Name: name, Slots: 4, WorkDir: filepath.Join(c.Dir, name), DrainTimeout: -1}, worker.WithConnections(conns))
		clustertest.Must(t, err)
		w.Handle("once", func(_ context.Context, task *worker.Task) ([]byte, error) {
			begun[task.Index].Add(1)
			if at := reached[total.Add(1)]; at != nil {
				close(at)
			}
			return nil, nil
		})
		running.Go(func() { _ = w.Run(ctx) }) // a failed worker is detected below
		clustertest.Must(t, c.AwaitWorker(t.Context(), name, "up"))
	}
	var list []cluster.TaskFile
	for i := range tasks {
		list = append(list, cluster.TaskFile{"id": fmt.Sprintf("t%d", i), "type": "once"})
	}
	id := clustertest.Submit(t, c.Ctl, cluster.JobFile("shared", list...))
	for i := range int64(kills) {
		<-reached[(i+1)*tasks/(kills+2)]
		leader, err := c.AwaitLeader(t.Context())
		clustertest.Must(t, err)
		clustertest.Must(t, leader.Kill())
		_, err = c.AwaitLeaderOtherThan(t.Context(), leader)
		clustertest.Must(t, err)
		clustertest.Must(t, leader.Start(t.Context()))
		clustertest.Must(t, c.AwaitCaughtUp(t.Context(), leader))
	}
	job := completed(t, c.Ctl, id)
	if job.TasksCompleted != tasks || job.TasksFailed != 0 {
		t.Errorf("got job %+v", job)
	}
	for i := range begun {
		if n := begun[i].Load(); n != 1 {
			t.Errorf("task %d: got %d executions, want 1", i, n)
		}
	}
}
