package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxAwaited is how many jobs one call waits for, and waiters how many such
	// calls there are: few calls for many jobs cost the cluster little.
	maxAwaited = 1000
	waiters    = 8
	// maxUnfinished is how many tasks may be submitted and unfinished, so that a
	// long run measures the cluster and not its queue.
	maxUnfinished = 500_000
	// maxCancels is how many jobs Cancel cancels concurrently.
	maxCancels = 8
	// cancelTimeout bounds Cancel.
	cancelTimeout = 4 * time.Second
	// progressInterval is the period of Config.Progress.
	progressInterval = 200 * time.Millisecond
)

// A Load submits the jobs of a run and waits for them. Its methods are called one
// after the other: Run, then Report or Cancel.
type Load struct {
	cfg    Config
	client *client.Client
	before []client.ReplicaStats

	completed, sent atomic.Int64 // tasks, for the progress

	mu         sync.Mutex // guards the fields below during Run
	submitTime time.Duration
	totalTime  time.Duration
	failed     uint64
	retries    uint64
	unfinished int             // jobs that did not complete
	latencies  []time.Duration // of submissions
	jobs       []job
}

// A job is a job that was submitted.
type job struct {
	client.Submitted

	tasks int
}

// A batch is the jobs of one call.
type batch struct {
	first, jobs int // number of the first job, and how many
	due         time.Time
}

// New returns a load.
func New(c *client.Client, cfg Config) *Load { return &Load{client: c, cfg: cfg} }

// Run submits all jobs and returns when they have finished.
func (l *Load) Run(ctx context.Context) error {
	before, err := l.client.Stats(ctx)
	if err != nil && !errors.Is(err, client.ErrUnreachable) { // a submission waits for a leader, this call doesn't
		return err
	}
	l.before = before
	progress, stop := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() { l.showProgress(progress) })
	err = l.run(ctx)
	stop()
	shown.Wait()
	return err
}

func (l *Load) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	size := max(2*l.cfg.Clients*l.cfg.Batch, maxUnfinished/l.cfg.JobSize)
	window := make(chan struct{}, size) // one token per unfinished job
	batches := make(chan batch)         // closed after the last batch
	jobs := make(chan job, size)        // holds the whole window, so that waiters never block a submission
	start := time.Now()
	group.Go(func() error {
		defer close(batches)
		return l.schedule(ctx, start, window, batches)
	})
	var submitters sync.WaitGroup
	for range l.cfg.Clients {
		submitters.Add(1)
		group.Go(func() error {
			defer submitters.Done()
			return l.submit(ctx, batches, jobs)
		})
	}
	group.Go(func() error {
		submitters.Wait()
		l.mu.Lock()
		l.submitTime = time.Since(start)
		l.mu.Unlock()
		close(jobs)
		return nil
	})
	for range waiters {
		group.Go(func() error { return l.wait(ctx, jobs, window) })
	}
	err := group.Wait()
	l.totalTime = time.Since(start)
	return err
}

// schedule sends each batch when it is due and the window has space.
func (l *Load) schedule(ctx context.Context, start time.Time, window chan<- struct{}, batches chan<- batch) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := 0; l.cfg.Jobs == 0 || i < l.cfg.Jobs; i += l.cfg.Batch {
		b := batch{first: i, jobs: l.cfg.Batch, due: time.Now()}
		if l.cfg.Jobs > 0 {
			b.jobs = min(l.cfg.Batch, l.cfg.Jobs-i)
		}
		if interval := l.cfg.interval(); interval > 0 {
			b.due = start.Add(time.Duration(i) * interval)
			timer.Reset(time.Until(b.due))
			select {
			case <-timer.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if l.cfg.Duration > 0 && b.due.Sub(start) >= l.cfg.Duration {
			return nil
		}
		for range b.jobs {
			select {
			case window <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		select {
		case batches <- b:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (l *Load) submit(ctx context.Context, batches <-chan batch, jobs chan<- job) error {
	for b := range batches {
		var submissions []client.Submission
		for i := range b.jobs {
			tasks := l.cfg.Template.GetTasks()[:l.cfg.jobSize(b.first+i)]
			submissions = append(submissions, client.Submission{Job: &dtaskv1.JobSpec{Header: l.cfg.Template.GetHeader(), Tasks: tasks}})
		}
		if l.cfg.Rate == 0 {
			b.due = time.Now() // exclude the time in which no submitter was free
		}
		results := l.call(ctx, submissions)
		latency := time.Since(b.due)
		l.mu.Lock()
		l.latencies = append(l.latencies, latency)
		l.mu.Unlock()
		for i, r := range results {
			if r.Err != nil {
				return fmt.Errorf("job %d: %w", b.first+i+1, r.Err)
			}
			j := job{Submitted: r.Submitted, tasks: len(submissions[i].Job.GetTasks())}
			l.sent.Add(int64(j.tasks))
			l.mu.Lock()
			l.jobs = append(l.jobs, j)
			l.mu.Unlock()
			jobs <- j
		}
	}
	return nil
}

// call submits jobs in one call.
func (l *Load) call(ctx context.Context, jobs []client.Submission) []client.SubmitResult {
	if len(jobs) > 1 {
		return l.client.SubmitMany(ctx, jobs)
	}
	got, err := l.client.Submit(ctx, jobs[0].Job, client.SubmitOptions{})
	return []client.SubmitResult{{Submitted: got, Err: err}}
}

// wait waits for jobs, for all that are queued together.
func (l *Load) wait(ctx context.Context, jobs <-chan job, window <-chan struct{}) error {
	for j := range jobs {
		if err := l.awaitJobs(ctx, drain(j, jobs), window); err != nil {
			return err
		}
	}
	return nil
}

// drain adds the queued jobs to the first one, up to maxAwaited.
func drain(first job, jobs <-chan job) []client.Submitted {
	all := []client.Submitted{first.Submitted}
	for len(all) < maxAwaited {
		select {
		case next, ok := <-jobs:
			if !ok {
				return all
			}
			all = append(all, next.Submitted)
		default:
			return all
		}
	}
	return all
}

// awaitJobs returns when these jobs have finished.
func (l *Load) awaitJobs(ctx context.Context, jobs []client.Submitted, window <-chan struct{}) error {
	finished, counted := int64(0), int64(0) // completed tasks: of finished jobs, and those in l.completed
	for ends, err := range l.client.WaitOutlines(ctx, jobs) {
		if err != nil {
			return err
		}
		if len(ends.Unknown) > 0 {
			return fmt.Errorf("job %s expired before its end was reported", ends.Unknown[0])
		}
		for _, j := range ends.Jobs {
			finished += int64(j.GetTasksCompleted())
			l.record(j)
			<-window
		}
		now := finished + int64(ends.Completed) //nolint:gosec // tasks
		l.completed.Add(now - counted)
		counted = now
	}
	return nil
}

// record counts a job that has finished.
func (l *Load) record(j *dtaskv1.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed += uint64(j.GetTasksFailed())
	l.retries += j.GetRetries()
	if j.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED {
		l.unfinished++
	}
}

// showProgress reports progress until ctx is done.
func (l *Load) showProgress(ctx context.Context) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		total := int64(l.cfg.Tasks)
		if total == 0 {
			total = l.sent.Load()
		}
		l.cfg.Progress(l.completed.Load(), total)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Unfinished returns the number of jobs that finished without completing.
func (l *Load) Unfinished() int { return l.unfinished }

// Cancel cancels the unfinished jobs of an interrupted run, including those whose
// submission was interrupted, and returns their number. It ignores the end of ctx.
func (l *Load) Cancel(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxCancels)
	var cancelled atomic.Int64
	filter := client.JobFilter{
		Labels: map[string]string{Label: l.cfg.Template.GetHeader().GetLabels()[Label]},
		States: []dtaskv1.JobState{dtaskv1.JobState_JOB_STATE_PENDING, dtaskv1.JobState_JOB_STATE_RUNNING},
	}
	for j, err := range l.client.Jobs(ctx, filter) {
		if err != nil {
			group.Go(func() error { return err })
			break
		}
		group.Go(func() error {
			_, err := l.client.CancelNow(ctx, j.GetId(), "the benchmark was interrupted")
			if errors.Is(err, client.ErrConflict) {
				return nil // it has finished
			}
			if err == nil {
				cancelled.Add(1)
			}
			return err
		})
	}
	err := group.Wait()
	return cancelled.Load(), err
}
