package cli

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// submitters is how many jobs are submitted at the same time: enough to keep
// the log's pipe full, few enough not to measure the queue.
const submitters = 8

// A load submits the jobs of a bench and waits for them.
type load struct {
	app      *app
	client   *client.Client
	flags    benchFlags
	template *dtaskv1.JobSpec // the largest job; the others have its first tasks

	done atomic.Int64 // tasks of jobs that ended, for the progress bar

	mu         sync.Mutex // guards all below while run runs
	submitted  time.Duration
	ended      time.Duration
	failed     uint64
	retries    uint64
	unfinished int // jobs that did not complete
}

// run returns when all jobs have ended. Few wait, in the order of submission,
// so that watching costs the cluster little: a job that ended long ago is told
// at once.
func (l *load) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	waiters := min(32, 2+l.flags.jobs/250)
	next := make(chan int)                 // job numbers; closed when all are given out
	ids := make(chan string, l.flags.jobs) // of stored jobs; room for all, so that waiters never hold up a submission
	began := time.Now()

	group.Go(func() error {
		defer close(next)
		for i := range l.flags.jobs {
			select {
			case next <- i:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	var submitting sync.WaitGroup
	for range min(submitters, l.flags.jobs) {
		submitting.Add(1)
		group.Go(func() error {
			defer submitting.Done()
			return l.submit(ctx, next, ids)
		})
	}
	group.Go(func() error {
		submitting.Wait()
		l.mu.Lock()
		l.submitted = time.Since(began)
		l.mu.Unlock()
		close(ids)
		return nil
	})
	for range waiters {
		group.Go(func() error { return l.wait(ctx, ids) })
	}
	shown := make(chan struct{}) // closed when the bar is down
	stop := make(chan struct{})
	go func() {
		defer close(shown)
		l.show(stop)
	}()
	err := group.Wait()
	l.ended = time.Since(began)
	close(stop)
	<-shown
	return err
}

func (l *load) submit(ctx context.Context, next <-chan int, ids chan<- string) error {
	for i := range next {
		job := &dtaskv1.JobSpec{Header: l.template.GetHeader(), Tasks: l.template.GetTasks()[:l.flags.size(i)]}
		got, err := l.client.Submit(ctx, job, client.SubmitOptions{})
		if err != nil {
			return fmt.Errorf("job %d of %d: %w", i+1, l.flags.jobs, err)
		}
		ids <- got.ID
	}
	return nil
}

func (l *load) wait(ctx context.Context, ids <-chan string) error {
	for id := range ids {
		before := int64(0)
		var last *dtaskv1.Job
		for job, err := range l.client.Watch(ctx, id) {
			if err != nil {
				return err
			}
			last = job
			l.done.Add(int64(job.GetTasksCompleted()) - before)
			before = int64(job.GetTasksCompleted())
		}
		l.mu.Lock()
		l.failed += uint64(last.GetTasksFailed())
		l.retries += last.GetRetries()
		if last.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED {
			l.unfinished++
		}
		l.mu.Unlock()
	}
	return nil
}

// show draws the progress until stop is closed.
func (l *load) show(stop <-chan struct{}) {
	p := l.app.newProgress("bench")
	defer p.end()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		p.update(step{done: l.done.Load(), total: int64(l.flags.tasks)})
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}
