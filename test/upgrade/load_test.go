package upgrade

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/ledger"
)

// submitInterval separates two jobs of the load.
const submitInterval = 50 * time.Millisecond

// workMS is how long a task works, in milliseconds.
const workMS = 10

// A load submits jobs at a bounded rate until it is stopped.
type load struct {
	client *client.Client
	cancel context.CancelFunc
	ended  chan error
	tasks  int      // of each job
	ids    []string // acknowledged; read after stop
}

// startLoad starts a load of tasks per second.
func startLoad(ctx context.Context, c *cluster.Cluster, rate int) (*load, error) {
	cl, err := c.Client()
	if err != nil {
		return nil, err
	}
	l := &load{client: cl, ended: make(chan error, 1), tasks: max(1, rate*int(submitInterval.Milliseconds())/1000)}
	ctx, l.cancel = context.WithCancel(ctx)
	go func() { l.ended <- l.run(ctx) }()
	return l, nil
}

func (l *load) run(ctx context.Context) error {
	job, err := spec.Parse("load", []byte(loadFile(l.tasks)), spec.Options{})
	if err != nil {
		return fmt.Errorf("building the job: %w", err)
	}
	tick := time.NewTicker(submitInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		// A submission outlives the load, so that its outcome is known.
		got, err := l.client.Submit(context.WithoutCancel(ctx), job, client.SubmitOptions{})
		if err != nil {
			return fmt.Errorf("submitting: %w", err)
		}
		l.ids = append(l.ids, got.ID)
	}
}

// loadFile returns the job file: independent tasks that write to the ledger.
func loadFile(n int) string {
	tasks := make([]cluster.TaskFile, n)
	for i := range tasks {
		tasks[i] = cluster.Builtin(fmt.Sprintf("t%d", i), cluster.MarkType, fmt.Sprintf(`{"work_ms":%d}`, workMS))
	}
	return cluster.JobFile("load", tasks...)
}

// stop ends the load, waits for its jobs, and returns them as the cluster shows them, and
// the retries of all.
func (l *load) stop(ctx context.Context) (jobs []ledger.Job, retries uint64, err error) {
	defer func() { _ = l.client.Close() }()
	l.cancel()
	if err := <-l.ended; err != nil {
		return nil, 0, err
	}
	for _, err := range l.client.WaitMany(ctx, l.ids) {
		if err != nil {
			return nil, 0, fmt.Errorf("waiting for %d jobs: %w", len(l.ids), err)
		}
	}
	for _, id := range l.ids {
		got, err := l.client.Job(ctx, id, client.ReadOptions{})
		if err != nil {
			return nil, 0, fmt.Errorf("reading job %s: %w", id, err)
		}
		doc := document.NewJob(got)
		job := ledger.Job{ID: id, State: doc.State, Completed: int(doc.TasksCompleted)}
		for task, err := range l.client.Tasks(ctx, id, client.TaskFilter{}) {
			if err != nil {
				return nil, 0, fmt.Errorf("reading the tasks of job %s: %w", id, err)
			}
			t := document.NewTask(task)
			job.Tasks = append(job.Tasks, ledger.Task{ID: t.ID, State: t.State, Attempt: int(t.Attempt), Worker: t.Worker})
		}
		jobs, retries = append(jobs, job), retries+doc.Retries
	}
	return jobs, retries, nil
}

// longestGap returns the longest time in which no task ended, and how many ended in which
// time.
func longestGap(lines []ledger.Line) (longest, took time.Duration, ends int) {
	var at []time.Duration
	for _, r := range ledger.Runs(lines) {
		if r.Ended() {
			at = append(at, r.End)
		}
	}
	slices.Sort(at)
	for i := 1; i < len(at); i++ {
		longest = max(longest, at[i]-at[i-1])
		took = at[i] - at[0]
	}
	return longest, took, len(at)
}
