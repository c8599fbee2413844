package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/worker"
)

// ledger records what workers really executed, and which jobs were
// acknowledged.
type ledger struct {
	c *cluster

	mu        sync.Mutex // guards the following fields
	rng       *rand.Rand
	executed  map[string]bool // by execution id; true: completed
	done      map[string]bool // job/index of tasks with a successful attempt
	submitted int
	acked     int
	tasks     int
	completed int
	failed    int
	open      int
}

func newLedger(c *cluster) *ledger {
	return &ledger{c: c, rng: rand.New(rand.NewPCG(c.seed, 2)), executed: map[string]bool{}, done: map[string]bool{}}
}

// execute is the handler of all tasks: it takes a random time, fails sometimes,
// and returns its execution id as its result.
func (l *ledger) execute(ctx context.Context, t *worker.Task) ([]byte, error) {
	id := t.ExecutionID()
	l.mu.Lock()
	if _, twice := l.executed[id]; twice {
		l.mu.Unlock()
		l.c.fail("execution %s ran twice", id)
		return nil, errors.New("executed twice")
	}
	l.executed[id] = false
	for i := range t.Payload { // the indexes of its dependencies
		if before := fmt.Sprintf("%d/%d", t.Job, t.Payload[i]); !l.done[before] {
			l.c.fail("%s started before %s was executed", id, before)
		}
	}
	length := l.c.pace.Scale(time.Duration(l.rng.Int64N(int64(3 * time.Second))))
	fails := l.rng.IntN(20) == 0
	l.mu.Unlock()
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if fails {
		return nil, errors.New("injected failure")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.executed[id] = true
	l.done[fmt.Sprintf("%d/%d", t.Job, t.Index)] = true
	return []byte(id), nil
}

// job returns a graph of up to eight tasks.
func (l *ledger) job(n int) *dtaskv1.JobSpec {
	l.mu.Lock()
	defer l.mu.Unlock()
	policy := &dtaskv1.TaskPolicy{
		Type: "work", TimeoutMs: l.c.pace.Scale(time.Minute).Milliseconds(), Execution: dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE,
		Retry: &dtaskv1.RetryPolicy{Max: 20, InitialMs: 100, MultiplierPermille: 1500, MaxDelayMs: 5000, Jitter: true},
	}
	j := &dtaskv1.JobSpec{Header: &dtaskv1.JobHeader{
		Name: fmt.Sprintf("job-%d", n), Priority: dtaskv1.Priority_PRIORITY_NORMAL, OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP,
		Policies: []*dtaskv1.TaskPolicy{policy},
	}}
	for i := range 1 + l.rng.IntN(8) {
		var deps []uint32
		var payload []byte
		for d := range i {
			if len(deps) < 3 && l.rng.IntN(3) == 0 {
				deps, payload = append(deps, uint32(d)), append(payload, byte(d))
			}
		}
		j.Tasks = append(j.Tasks, &dtaskv1.TaskSpec{Id: fmt.Sprintf("t%d", i), Dependencies: deps, Body: &dtaskv1.TaskBody{Payload: payload}})
	}
	return j
}

// submit is a client that submits one job after another until ctx is done. It
// waits for the acknowledgment of each job; follow waits for its end.
func (l *ledger) submit(ctx context.Context, every time.Duration) {
	for ctx.Err() == nil {
		l.mu.Lock()
		l.submitted++
		n := l.submitted
		l.mu.Unlock()
		job := l.job(n)
		got, err := l.c.client.Submit(ctx, job, client.SubmitOptions{Key: fmt.Sprintf("key-%d", n)})
		if err != nil {
			if ctx.Err() == nil {
				l.c.fail("submitting job %d: %v", n, err)
			}
			return
		}
		l.mu.Lock()
		l.acked++
		l.open++
		l.tasks += len(job.GetTasks())
		pause := l.c.pace.Scale(time.Duration(l.rng.Int64N(int64(2 * every))))
		if l.c.calm.Load() {
			pause *= 20
		}
		l.mu.Unlock()
		l.c.running.Go(func() { l.follow(context.WithoutCancel(ctx), got.ID) })
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// jobLimit bounds the duration of a job, with all faults.
const jobLimit = time.Hour

// follow polls an acknowledged job until it has ended, and then checks its
// results.
func (l *ledger) follow(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, l.c.pace.Scale(jobLimit))
	defer cancel()
	for {
		got, err := l.c.client.Job(ctx, id, client.ReadOptions{})
		switch {
		case errors.Is(err, client.ErrNotFound):
			l.lose("lost acknowledged job %s: %v", id, err)
			return
		case err != nil && ctx.Err() != nil:
			l.lose("job %s did not end within %v: %v", id, l.c.pace.Scale(jobLimit), err)
			return
		case err == nil && terminal(got.GetState()):
			l.judge(ctx, id)
			return
		}
		select {
		case <-time.After(l.c.pace.Scale(10 * time.Second)):
		case <-ctx.Done():
		}
	}
}

func terminal(s dtaskv1.JobState) bool {
	return s == dtaskv1.JobState_JOB_STATE_COMPLETED || s == dtaskv1.JobState_JOB_STATE_FAILED || s == dtaskv1.JobState_JOB_STATE_CANCELLED
}

// judge compares the results of a job with the executions.
func (l *ledger) judge(ctx context.Context, id string) {
	got, err := l.c.client.Result(ctx, id, client.ReadOptions{})
	if err != nil {
		l.lose("job %s has ended but its result is unavailable: %v", id, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	for _, r := range got.GetResults() {
		switch r.GetState() {
		case dtaskv1.TaskState_TASK_STATE_COMPLETED, dtaskv1.TaskState_TASK_STATE_AGGREGATED:
			if !l.executed[string(r.GetResult())] {
				l.c.fail("task %s of job %s: got result %q, which no worker returned", r.GetTask(), id, r.GetResult())
			}
		case dtaskv1.TaskState_TASK_STATE_DEAD: // five workers went down while they ran it
			l.failed++
		default:
			if got.GetJob().GetState() == dtaskv1.JobState_JOB_STATE_COMPLETED {
				l.c.fail("job %s completed, but task %s is %v", id, r.GetTask(), r.GetState())
			}
		}
	}
	if got.GetJob().GetState() == dtaskv1.JobState_JOB_STATE_COMPLETED {
		l.completed++
	}
}

func (l *ledger) lose(format string, args ...any) {
	l.mu.Lock()
	l.open--
	l.mu.Unlock()
	l.c.lost.Add(1)
	l.c.fail(format, args...)
}

func (l *ledger) isOpen() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}
