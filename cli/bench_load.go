package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dtask/dtask/cli/show"
	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// mostClients is how many jobs may be submitted at the same time: one
	// connection carries them all.
	mostClients = 1000
	// mostBatch is how many jobs may go in one call of the bench.
	mostBatch = 10_000
	// mostTogether is how many jobs are waited for in one call, and waiters how many
	// such calls there are.
	mostTogether = 1000
	waiters      = 8
	// cancellers is how many jobs are cancelled at the same time.
	cancellers = 8
	// mostWaiting is how many tasks are submitted and not ended at most, so that
	// a long run measures the cluster and not its queue.
	mostWaiting = 500_000
	// cleanLimit is how long an interrupted run may take to cancel its jobs.
	cleanLimit = 4 * time.Second
)

// A load submits the jobs of a bench and waits for them.
type load struct {
	app      *app
	client   *client.Client
	flags    benchFlags
	template *dtaskv1.JobSpec // the largest job; the others have its first tasks

	done, sent atomic.Int64 // tasks of jobs, ended and submitted, for the progress bar

	mu         sync.Mutex // guards all below while run runs
	submitted  time.Duration
	ended      time.Duration
	failed     uint64
	retries    uint64
	unfinished int // jobs that did not complete
	took       []time.Duration
	jobs       []stored
}

// A stored job is one that the cluster has.
type stored struct {
	client.Submitted

	tasks int
}

// An order is jobs to submit in one call.
type order struct {
	number, jobs int // of the first, and how many
	due          time.Time
}

func newLoad(a *app, c *client.Client, f benchFlags, template *dtaskv1.JobSpec) *load {
	return &load{app: a, client: c, flags: f, template: template}
}

// run returns when all jobs have ended. Few wait, each for many jobs in one call,
// so that waiting costs the cluster little.
func (l *load) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	window := max(2*l.flags.clients*l.flags.batch, mostWaiting/l.flags.perJob)
	room := make(chan struct{}, window) // one for each job that has not ended
	orders := make(chan order)          // closed when all are given out
	ids := make(chan stored, window)    // room for all that may wait, so that waiters never hold up a submission
	began := time.Now()

	group.Go(func() error {
		defer close(orders)
		return l.order(ctx, began, room, orders)
	})
	var submitting sync.WaitGroup
	for range l.flags.clients {
		submitting.Add(1)
		group.Go(func() error {
			defer submitting.Done()
			return l.submit(ctx, orders, ids)
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
		group.Go(func() error { return l.wait(ctx, ids, room) })
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

// order gives out jobs while there are some left, or time, each when it is due
// and there is room.
func (l *load) order(ctx context.Context, began time.Time, room chan<- struct{}, orders chan<- order) error {
	f := &l.flags
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := 0; f.jobs == 0 || i < f.jobs; i += f.batch {
		o := order{number: i, jobs: f.batch, due: time.Now()}
		if f.jobs > 0 {
			o.jobs = min(f.batch, f.jobs-i)
		}
		if every := f.interval(); every > 0 {
			o.due = began.Add(time.Duration(i) * every)
			timer.Reset(time.Until(o.due))
			select {
			case <-timer.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if f.duration > 0 && o.due.Sub(began) >= f.duration {
			return nil
		}
		for range o.jobs {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		select {
		case orders <- o:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (l *load) submit(ctx context.Context, orders <-chan order, ids chan<- stored) error {
	for o := range orders {
		var jobs []client.Submission
		for i := range o.jobs {
			tasks := l.template.GetTasks()[:l.flags.size(o.number+i)]
			jobs = append(jobs, client.Submission{Job: &dtaskv1.JobSpec{Header: l.template.GetHeader(), Tasks: tasks}})
		}
		if l.flags.rate == 0 {
			o.due = time.Now() // the time in which nobody could take it is not the cluster's
		}
		results := l.call(ctx, jobs)
		took := time.Since(o.due)
		l.mu.Lock()
		l.took = append(l.took, took)
		l.mu.Unlock()
		for i, r := range results {
			if r.Err != nil {
				return fmt.Errorf("job %d: %w", o.number+i+1, r.Err)
			}
			one := stored{Submitted: r.Submitted, tasks: len(jobs[i].Job.GetTasks())}
			l.sent.Add(int64(one.tasks))
			l.mu.Lock()
			l.jobs = append(l.jobs, one)
			l.mu.Unlock()
			ids <- one
		}
	}
	return nil
}

// call submits jobs in one call.
func (l *load) call(ctx context.Context, jobs []client.Submission) []client.SubmitResult {
	if len(jobs) > 1 {
		return l.client.SubmitMany(ctx, jobs)
	}
	got, err := l.client.Submit(ctx, jobs[0].Job, client.SubmitOptions{})
	return []client.SubmitResult{{Submitted: got, Err: err}}
}

// wait takes what has been submitted, and waits for all of it together.
func (l *load) wait(ctx context.Context, ids <-chan stored, room <-chan struct{}) error {
	for one := range ids {
		if err := l.waitFor(ctx, gather(one, ids), room); err != nil {
			return err
		}
	}
	return nil
}

// gather adds to a job what else is there, up to a bound.
func gather(one stored, ids <-chan stored) []stored {
	all := []stored{one}
	for len(all) < mostTogether {
		select {
		case next, ok := <-ids:
			if !ok {
				return all
			}
			all = append(all, next)
		default:
			return all
		}
	}
	return all
}

// waitFor returns when these jobs have ended.
func (l *load) waitFor(ctx context.Context, jobs []stored, room <-chan struct{}) error {
	list := make([]client.Submitted, len(jobs))
	for i, j := range jobs {
		list[i] = j.Submitted
	}
	ended, shown := int64(0), int64(0) // tasks that have completed: of jobs that have ended, and as the bar shows it
	for ends, err := range l.client.WaitOutlines(ctx, list) {
		if err != nil {
			return err
		}
		if len(ends.Unknown) > 0 {
			return fmt.Errorf("job %s is not kept any more", ends.Unknown[0])
		}
		for _, job := range ends.Jobs {
			ended += int64(job.GetTasksCompleted())
			l.note(job)
			<-room
		}
		l.done.Add(ended + int64(ends.Completed) - shown) //nolint:gosec // tasks
		shown = ended + int64(ends.Completed)             //nolint:gosec // tasks
	}
	return nil
}

// note counts a job that has ended.
func (l *load) note(job *dtaskv1.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed += uint64(job.GetTasksFailed())
	l.retries += job.GetRetries()
	if job.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED {
		l.unfinished++
	}
}

// show draws the progress until stop is closed.
func (l *load) show(stop <-chan struct{}) {
	p := l.app.newProgress("bench")
	defer p.end()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		total := int64(l.flags.tasks)
		if total == 0 {
			total = l.sent.Load()
		}
		p.update(step{done: l.done.Load(), total: total})
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// cleanUp cancels what a run that ended with err has left, also jobs whose
// submission was cut off, and returns err with a word about that.
func (l *load) cleanUp(ctx context.Context, run string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cancellers)
	cancelled := atomic.Int64{}
	filter := client.JobFilter{
		Labels: map[string]string{benchLabel: run},
		States: []dtaskv1.JobState{dtaskv1.JobState_JOB_STATE_PENDING, dtaskv1.JobState_JOB_STATE_RUNNING},
	}
	for job, lost := range l.client.Jobs(ctx, filter) {
		if lost != nil {
			group.Go(func() error { return lost })
			break
		}
		group.Go(func() error {
			_, failed := l.client.CancelNow(ctx, job.GetId(), "the bench was stopped")
			if failed != nil && !errors.Is(failed, client.ErrConflict) { // a conflict: it has ended by itself
				return failed
			}
			cancelled.Add(1)
			return nil
		})
	}
	if failed := group.Wait(); failed != nil {
		return &hintedError{err: err, hint: "some of its jobs may go on: dtaskctl list --label " + benchLabel + "=" + run + " shows them"}
	}
	return &hintedError{err: err, hint: show.Plural(cancelled.Load(), "job") + " of this run cancelled"}
}
