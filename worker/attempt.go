package worker

import (
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ref names an attempt; it is the key of the ledger.
type ref struct {
	job           uint64
	task, attempt uint32
}

func refOf(m *dtaskv1.AttemptRef) ref {
	return ref{job: m.GetJob(), task: m.GetTask(), attempt: m.GetAttempt()}
}

func (r ref) message() *dtaskv1.AttemptRef {
	return &dtaskv1.AttemptRef{Job: r.job, Task: r.task, Attempt: r.attempt}
}

// String is JOB-TASK-ATTEMPT, as in DTASK_EXECUTION_ID.
func (r ref) String() string {
	b := strconv.AppendUint(nil, r.job, 10)
	b = strconv.AppendUint(append(b, '-'), uint64(r.task), 10)
	b = strconv.AppendUint(append(b, '-'), uint64(r.attempt), 10)
	return string(b)
}

// attrs are the keys under which log lines speak of an attempt.
func (r ref) attrs() slog.Attr {
	return slog.Group("", slog.Uint64("job", r.job), slog.Uint64("task", uint64(r.task)), slog.Uint64("attempt", uint64(r.attempt)))
}

// phase is how far an attempt is. It only grows.
type phase uint8

const (
	phaseRequesting phase = iota + 1 // at most once: waits until its start is committed
	phaseReady                       // waits for a slot
	phaseRunning                     // its executor runs
	phaseCommitted                   // succeeded; its output is being published, nothing stops it any more
	phaseEnded                       // has an outcome, which is not yet acknowledged
)

// attempt is one assignment from the moment it was received until its outcome
// is acknowledged.
type attempt struct {
	ref
	assignment   columns.Assignment           // shares the memory of its message; zero once ended
	token        uint64                       // for fencing
	jobContext   *dtaskv1.JobContext          // nil once ended
	policy       *dtaskv1.TaskPolicy          // nil once ended
	run          *execution                   // from its beginning to its end
	body         *dtaskv1.TaskBody            // what is run now; the executor's, nil once ended
	item         *array.Item                  // of an array; the executor's, nil once ended
	log          *attemptLog                  // of several items, from the first command to the last; the executor's
	exclusive    bool                         // at most once
	checkpointer atomic.Pointer[checkpointer] // nil: it has no checkpoint folder
	savedData    atomic.Bool                  // has called SaveCheckpoint

	// The rest is guarded by the ledger's lock, but for ctx, which is written
	// before the executor starts.
	phase     phase
	started   time.Time
	ctx       *attemptContext
	announced bool // a Began was made of it

	saves    uint32        // checkpoints so far
	lastData []byte        // of the last SaveCheckpoint of the task
	saving   chan struct{} // size 1; nil until SaveCheckpoint is called

	lastProgress   time.Time // of progress, or started
	permille       uint32
	progressText   string
	progressQueued bool // is among those whose progress shall be sent
}

// execution is what an attempt needs while it runs. It is one piece of memory, and
// all that is made for a task that does nothing (BenchmarkNoop). Handlers may hold on
// to parts of it, so it is never used again.
type execution struct {
	ctx  attemptContext
	body dtaskv1.TaskBody
	only invocation
}

// invocation is one call of a handler, or one command.
type invocation struct {
	task    Task
	success dtaskv1.Outcome
}

// invocation gives the room for one: beside the rest, or for an item of an array, of
// which there are several, a place of its own.
func (a *attempt) invocation() *invocation {
	if a.item != nil {
		return new(invocation)
	}
	return &a.run.only
}

// watchHeartbeat ends the attempt when no progress is heard for the policy's
// time. The caller stops the watch with what is returned.
func (t *attemptTable) watchHeartbeat(a *attempt) (stop func()) {
	limit := time.Duration(a.policy.GetHeartbeatTimeoutMs()) * time.Millisecond
	if limit <= 0 {
		return func() {}
	}
	ctx := a.ctx
	var timer *time.Timer // guarded by the lock, so that check finds it set
	check := func() {
		t.mu.Lock()
		left := limit - time.Since(a.lastProgress)
		if left > 0 {
			timer.Reset(left)
		}
		t.mu.Unlock()
		if left <= 0 {
			ctx.end(&timeoutError{what: "no progress report for", limit: limit})
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	timer = time.AfterFunc(limit, check)
	return func() { timer.Stop() }
}

// endedBy is the outcome of an attempt that was ended for this cause.
func endedBy(cause error) *dtaskv1.Outcome {
	out := &dtaskv1.Outcome{Error: clip(cause.Error(), maxError)}
	switch {
	case isAny(cause, ErrTimedOut):
		out.Kind = dtaskv1.OutcomeKind_OUTCOME_KIND_TIMED_OUT
	case isAny(cause, ErrDraining):
		out.Kind = dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED
	case isAny(cause, ErrCancelled, ErrSuperseded):
		out.Kind = dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED
	case isAny(cause, ErrLeaseEnded):
		// It did something, nobody may do it again.
		out.Kind, out.Fatal = dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, true
	default:
		out.Kind = dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED
	}
	return out
}

// stopCause is what a Stop means for the attempt's context.
func stopCause(reason dtaskv1.StopReason) error {
	switch reason {
	case dtaskv1.StopReason_STOP_REASON_SUPERSEDED:
		return ErrSuperseded
	case dtaskv1.StopReason_STOP_REASON_TIMED_OUT:
		return &timeoutError{what: "by the coordinator's clock"}
	case dtaskv1.StopReason_STOP_REASON_DRAINED:
		return ErrDraining
	case dtaskv1.StopReason_STOP_REASON_UNSPECIFIED, dtaskv1.StopReason_STOP_REASON_CANCELLED:
		return ErrCancelled
	default:
		return ErrCancelled
	}
}
