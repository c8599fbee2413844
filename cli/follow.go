package cli

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxLogReaders is the largest number of logs that are read concurrently. Those of
// further attempts are read later: workers keep them.
const maxLogReaders = 64

// A follower copies the output of the tasks of a job while they run. It reads the
// attempts of one task one after another, so that their output is never mixed.
//
// follow starts the readers, at most maxLogReaders goroutines, and a stallReporter. A
// reader ends when no attempt is left to read; follow waits for all of them.
type follower struct {
	client *client.Client
	job    string
	array  bool // lines start with the ID of their task
	out    *lockedOutput
	flags  logsFlags                // which output of a task
	wanted func(*dtaskv1.Task) bool // nil: all tasks
	stalls bool                     // note why no task of the job runs

	readers sync.WaitGroup

	mu      sync.Mutex // guards the rest
	running int        // readers
	tasks   map[string]*followedTask
	queue   []string // tasks with an attempt to read and without a reader
}

// A followedTask is a task of which an attempt has been seen.
type followedTask struct {
	seen   uint32 // last attempt
	next   uint32 // last attempt, if no reader has begun to read it; else 0
	active bool   // queued, or being read
	wrote  bool   // an attempt had output
	err    error  // why output of the last attempt that was read is missing
}

func newFollower(c *client.Client, job string, array bool, out *lockedOutput) *follower {
	return &follower{client: c, job: job, array: array, out: out, tasks: make(map[string]*followedTask)}
}

// follow copies output until the job has finished, and returns the job. When ctx is
// done, it stops and returns its cause.
func (f *follower) follow(ctx context.Context) (*dtaskv1.Job, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer f.readers.Wait()
	defer cancel()
	stall := newStallReporter(f.client, f.job, func(text string) { f.out.note("%s", text) })
	if f.stalls {
		defer stall.start(ctx)()
	}
	var job *dtaskv1.Job
	for change, err := range f.client.Changes(ctx, f.job, client.WatchOptions{}) {
		if err != nil {
			return nil, err
		}
		job = change.Job
		stall.observe(job)
		for _, t := range change.Tasks {
			f.observe(ctx, t)
		}
	}
	f.readers.Wait()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("reading the output of job %s: %w", f.job, context.Cause(ctx))
	}
	return job, nil
}

// observe has the output of a task's attempt read if the attempt is new.
func (f *follower) observe(ctx context.Context, t *dtaskv1.Task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	task := f.tasks[t.GetId()]
	if f.wanted != nil && !f.wanted(t) {
		return
	}
	if t.GetAttempt() == 0 || task != nil && t.GetAttempt() <= task.seen {
		return
	}
	if task == nil {
		task = new(followedTask)
		f.tasks[t.GetId()] = task
	}
	task.seen, task.next = t.GetAttempt(), t.GetAttempt()
	if task.active {
		return
	}
	task.active = true
	f.queue = append(f.queue, t.GetId())
	if f.running < maxLogReaders {
		f.running++
		f.readers.Go(func() { f.read(ctx) })
	}
}

// read reads attempts until none is left.
func (f *follower) read(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) > 0 && ctx.Err() == nil {
		id := f.queue[0]
		f.queue = f.queue[1:]
		task := f.tasks[id]
		for task.next > 0 {
			attempt, repeated := task.next, task.wrote
			task.next = 0
			f.mu.Unlock()
			if repeated {
				f.out.note("task %s/%s is repeated: the output of attempt %d follows", f.job, id, attempt)
			}
			wrote, err := f.copy(ctx, id, attempt)
			f.mu.Lock()
			task.wrote, task.err = task.wrote || wrote, err
		}
		task.active = false
	}
	f.running--
}

// copy copies the output of one attempt until the attempt ends. It reports whether there
// was any.
func (f *follower) copy(ctx context.Context, id string, attempt uint32) (wrote bool, err error) {
	prefix := ""
	if f.array {
		prefix = id + ": "
	}
	stdout, stderr := f.out.stdoutOf(prefix), f.out.stderrOf(prefix)
	r := f.flags.request(f.job, id, stdout, stderr)
	r.Attempt, r.Follow = attempt, true
	_, err = f.client.Logs(ctx, r)
	for _, w := range []*taskWriter{stdout, stderr} {
		if flushed := w.flush(); err == nil {
			err = flushed
		}
		wrote = wrote || w.wrote
	}
	return wrote, err
}

// missing is an error if output of the last attempt of a task could not be read.
func (f *follower) missing() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var first error
	id, n := "", 0
	for task, t := range f.tasks {
		if t.err == nil {
			continue
		}
		if n++; n == 1 || task < id {
			id, first = task, t.err
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("the output of task %s/%s is incomplete: %w", f.job, id, first)
	}
	return fmt.Errorf("the output of %d tasks is incomplete, such as that of %s/%s: %w", n, f.job, id, first)
}

// terminalSafe removes escape sequences from what is written to a terminal.
func terminalSafe(w io.Writer) io.Writer {
	if isTerminal(w) {
		return escapeFilter{w}
	}
	return w
}
