package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/document"
	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/ledger"
)

const (
	// jobInterval is about the time between two jobs of the load.
	jobInterval = 50 * time.Millisecond
	// maxSubmitting bounds the submissions in flight: three seconds of the load.
	maxSubmitting = 64
	// workMS is how long a task works, in milliseconds.
	workMS = 10
)

// A load submits jobs at a fixed rate, whether or not earlier ones are stored, until it is
// stopped. Jobs that are late because too many submissions are in flight are submitted as
// soon as possible.
type load struct {
	submit func(ctx context.Context) (id string, err error)
	tasks  int           // of each job
	every  time.Duration // between two jobs
	cancel context.CancelFunc
	due    chan time.Time // when each job is due
	users  sync.WaitGroup
	began  time.Time

	mu      sync.Mutex // guards the rest
	ids     []string   // acknowledged
	last    time.Time  // acknowledgment
	slowest time.Duration
	err     error // the first one; it ends the load
}

// newLoad returns a load of tasks per second.
func newLoad(rate int, submit func(ctx context.Context) (string, error)) *load {
	tasks := max(1, rate*int(jobInterval.Milliseconds())/1000)
	return &load{
		submit: submit, tasks: tasks, every: time.Duration(tasks) * time.Second / time.Duration(rate),
		due: make(chan time.Time),
	}
}

// startLoad starts a load of tasks per second on a cluster.
func startLoad(ctx context.Context, cl *client.Client, rate int) (*load, error) {
	l := newLoad(rate, nil)
	job, err := spec.Parse("load", []byte(loadFile(l.tasks)), spec.Options{})
	if err != nil {
		return nil, fmt.Errorf("building the job: %w", err)
	}
	l.submit = func(ctx context.Context) (string, error) {
		got, err := cl.Submit(ctx, job, client.SubmitOptions{})
		if err != nil {
			return "", fmt.Errorf("submitting: %w", err)
		}
		return got.ID, nil
	}
	l.start(ctx)
	return l, nil
}

func (l *load) start(ctx context.Context) {
	ctx, l.cancel = context.WithCancel(ctx)
	l.began = time.Now()
	l.users.Go(func() {
		defer close(l.due)
		l.pace(ctx)
	})
	for range maxSubmitting {
		l.users.Go(func() {
			for due := range l.due {
				// A submission outlives the load, so that its outcome is known.
				id, err := l.submit(context.WithoutCancel(ctx))
				l.note(id, due, err)
			}
		})
	}
}

// pace passes on when each job is due.
func (l *load) pace(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for due := l.began; ; due = due.Add(l.every) {
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		select {
		case l.due <- due:
		case <-ctx.Done():
			return
		}
	}
}

// note records the end of a submission.
func (l *load) note(id string, due time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.err = cmp.Or(l.err, err)
		l.cancel()
		return
	}
	l.ids, l.last = append(l.ids, id), time.Now()
	l.slowest = max(l.slowest, time.Since(due))
}

// stop ends the load and waits for its submissions.
func (l *load) stop() error {
	l.cancel()
	l.users.Wait()
	return l.err
}

// reached returns how many tasks per second were submitted and acknowledged.
func (l *load) reached() float64 {
	return float64(len(l.ids)*l.tasks) / max(l.last.Sub(l.began), l.every).Seconds()
}

// loadFile returns the job file: independent tasks that write to the ledger.
func loadFile(n int) string {
	tasks := make([]cluster.TaskFile, n)
	for i := range tasks {
		tasks[i] = cluster.Builtin(fmt.Sprintf("t%d", i), cluster.MarkType, fmt.Sprintf(`{"work_ms":%d}`, workMS))
	}
	return cluster.JobFile("load", tasks...)
}

// readers is how many jobs are read at a time. Their reads share the confirmation of the
// leader; one after another, those of 10 minutes take as long.
const readers = 16

// readJobs waits for jobs and returns them as the cluster shows them, and the retries of
// all.
func readJobs(ctx context.Context, cl *client.Client, ids []string) (jobs []ledger.Job, retries uint64, err error) {
	ended := make(map[string]document.Job, len(ids))
	for ends, err := range cl.WaitMany(ctx, ids) {
		if err != nil {
			return nil, 0, fmt.Errorf("waiting for %d jobs: %w", len(ids), err)
		}
		for _, job := range ends.Jobs {
			ended[job.GetId()] = document.NewJob(job)
		}
	}
	jobs = make([]ledger.Job, len(ids))
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, id := range ids {
		doc, ok := ended[id]
		if !ok {
			return nil, 0, errors.Join(fmt.Errorf("job %s is unknown", id), group.Wait())
		}
		retries += doc.Retries
		jobs[i] = ledger.Job{ID: id, State: doc.State, Completed: int(doc.TasksCompleted)}
		group.Go(func() error { return readTasks(reading, cl, &jobs[i]) })
	}
	return jobs, retries, group.Wait()
}

// readTasks adds the tasks of a job.
func readTasks(ctx context.Context, cl *client.Client, job *ledger.Job) error {
	for task, err := range cl.Tasks(ctx, job.ID, client.TaskFilter{}) {
		if err != nil {
			return fmt.Errorf("reading the tasks of job %s: %w", job.ID, err)
		}
		t := document.NewTask(task)
		job.Tasks = append(job.Tasks, ledger.Task{ID: t.ID, State: t.State, Attempt: int(t.Attempt), Worker: t.Worker})
	}
	return nil
}

// In virtual time: each submission takes ten times as long as the interval of jobs.
func TestTheLoadKeepsItsRateWhileSubmissionsAreSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, lasts = 1234, 10 * time.Second
		l := newLoad(rate, func(context.Context) (string, error) {
			time.Sleep(10 * jobInterval)
			return "1", nil
		})
		l.start(t.Context())
		time.Sleep(lasts)
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
		if got, want := len(l.ids)*l.tasks, rate*int(lasts.Seconds()); got < want*99/100 || got > want*101/100 {
			t.Errorf("%d tasks were submitted, want %d", got, want)
		}
	})
}

func TestAFailedSubmissionEndsTheLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fails := errors.New("full")
		l := newLoad(1000, func(context.Context) (string, error) { return "", fails })
		l.start(t.Context())
		l.users.Wait() // without stop
		if err := l.stop(); !errors.Is(err, fails) {
			t.Errorf("the load ended with %v, want %v", err, fails)
		}
	})
}
