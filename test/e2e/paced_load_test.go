package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

const (
	// pacedInterval separates two jobs of a pacedLoad.
	pacedInterval = 20 * time.Millisecond
	// readInterval is how often it reads jobs that have not ended, and maxRead how many of
	// them, the newest ones. A job with a task on a worker that connects again ends late,
	// while others continue.
	readInterval = 5 * time.Millisecond
	maxRead      = 8
)

// A pacedLoad submits a job of no-op tasks each pacedInterval, whether or not earlier ones have
// ended, and notes when tasks complete. All must complete without a retry; the load ends at the
// first failure. Jobs are submitted by a client that follows the CA; what becomes of them is read
// at the socket of the leader, which must stay: no rotation ends those calls.
type pacedLoad struct {
	t     *testing.T
	job   *dtaskv1.JobSpec
	tasks int // of a job
	group sync.WaitGroup
	stop  context.CancelFunc

	mu     sync.Mutex // guards what follows
	failed error
	open   []string       // jobs that have not ended, the oldest first
	seen   map[string]int // tasks of them that have completed
	ended  int            // jobs
	last   time.Time      // completion of a task
	steps  []step         // what the test did meanwhile, in order; one at least
}

// A step is a part of a test with a load.
type step struct {
	name    string
	begun   time.Time
	tasks   int           // that completed in it
	longest time.Duration // without a completion, if it ended in this step
}

// paced starts a load of so many tasks per second.
func (s *secured) paced(rate int, leader string) *pacedLoad {
	s.t.Helper()
	l := &pacedLoad{t: s.t, seen: make(map[string]int), tasks: int(int64(rate) * int64(pacedInterval) / int64(time.Second)), steps: []step{{name: "begin", begun: time.Now()}}}
	file := cluster.JobFile("load", cluster.TaskFile{"id": "a", "type": "noop", "array": map[string]any{"range": fmt.Sprintf("0-%d", l.tasks-1)}})
	job, err := spec.Parse("load", []byte(file), spec.Options{})
	clustertest.Must(s.t, err)
	l.job = job
	submitter := s.client()
	waiter, err := client.New(client.Config{Addrs: []string{"unix:" + filepath.Join(s.data(leader), "dtaskd.sock")}})
	clustertest.Must(s.t, err)
	ctx := s.t.Context()
	loading, stop := context.WithCancel(ctx)
	l.stop = stop
	l.group.Go(func() {
		tick := time.NewTicker(pacedInterval)
		defer tick.Stop()
		for {
			select {
			case <-loading.Done():
				return
			case <-tick.C:
			}
			l.group.Go(func() {
				if err := l.one(ctx, submitter, waiter); err != nil {
					l.mu.Lock()
					l.failed = errors.Join(l.failed, err)
					l.mu.Unlock()
					stop()
				}
			})
		}
	})
	l.group.Go(func() { l.read(loading, waiter) })
	s.t.Cleanup(func() {
		stop()
		l.group.Wait()
		clustertest.Must(s.t, waiter.Close())
	})
	return l
}

// one submits a job, and waits until it ends.
func (l *pacedLoad) one(ctx context.Context, submitter, waiter *client.Client) error {
	stored, err := submitter.Submit(ctx, l.job, client.SubmitOptions{})
	if err != nil {
		return l.failure(fmt.Errorf("submitting a job: %w", err))
	}
	l.mu.Lock()
	l.open = append(l.open, stored.ID)
	l.mu.Unlock()
	job, err := waiter.Wait(ctx, stored.ID)
	if err != nil {
		return l.failure(fmt.Errorf("waiting for job %s: %w", stored.ID, err))
	}
	if job.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED || int(job.GetTasksCompleted()) != l.tasks {
		l.t.Errorf("job %s: %v", stored.ID, job) // no stall of the machine excuses it
	}
	// Requeues don't count: an idle worker takes what waits at another one.
	if job.GetRetries() > 0 {
		return fmt.Errorf("job %s: %v", stored.ID, job)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteLocked(stored.ID, l.tasks)
	l.open = slices.DeleteFunc(l.open, func(id string) bool { return id == stored.ID })
	delete(l.seen, stored.ID)
	l.ended++
	return nil
}

// failure returns the error of a call. One that another leader or a stall of the machine does not
// explain fails the test at once.
func (l *pacedLoad) failure(err error) error {
	if !errors.Is(err, client.ErrUnreachable) {
		l.t.Error(err)
	}
	return err
}

// read reads the newest jobs until ctx is done.
func (l *pacedLoad) read(ctx context.Context, c *client.Client) {
	tick := time.NewTicker(readInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.mu.Lock()
		ids := slices.Clone(l.open[max(0, len(l.open)-maxRead):])
		l.mu.Unlock()
		for _, id := range ids {
			job, err := c.Job(ctx, id, client.ReadOptions{Stale: true})
			if err != nil {
				continue // what waits for the job reports it
			}
			l.mu.Lock()
			if slices.Contains(l.open, id) {
				l.noteLocked(id, int(job.GetTasksCompleted()))
			}
			l.mu.Unlock()
		}
	}
}

// noteLocked notes how many tasks of a job have completed.
func (l *pacedLoad) noteLocked(id string, completed int) {
	more := completed - l.seen[id]
	if more <= 0 {
		return
	}
	l.seen[id] = completed
	current, now := &l.steps[len(l.steps)-1], time.Now()
	if !l.last.IsZero() {
		current.longest = max(current.longest, now.Sub(l.last))
	}
	current.tasks += more
	l.last = now
}

// begin begins a step.
func (l *pacedLoad) begin(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = append(l.steps, step{name: name, begun: time.Now()})
}

// awaitJobs waits until as many jobs have ended, or one has failed; end reports that.
func (l *pacedLoad) awaitJobs(n int) {
	l.t.Helper()
	limit := guard * time.Duration(1+n/1000) // they are paced
	clustertest.Must(l.t, cluster.Until(l.t.Context(), "jobs of the load end", limit, func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.failed == nil && l.ended < n {
			return fmt.Errorf("%d of %d have", l.ended, n)
		}
		return nil
	}))
}

// end ends the load. It returns the steps, except for the first one, the time of the end, and
// what failed.
func (l *pacedLoad) end() (steps []step, at time.Time, err error) {
	l.begin("end")
	l.stop()
	l.group.Wait()
	last := len(l.steps) - 1
	return l.steps[1:last], l.steps[last].begun, l.failed
}
