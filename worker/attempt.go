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

// ref identifies an attempt; it is the key of the attempt table.
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

// String returns JOB-TASK-ATTEMPT, the value of DTASK_EXECUTION_ID.
func (r ref) String() string { return executionID(r.job, r.task, r.attempt) }

func executionID(job uint64, task, attempt uint32) string {
	b := strconv.AppendUint(nil, job, 10)
	b = strconv.AppendUint(append(b, '-'), uint64(task), 10)
	b = strconv.AppendUint(append(b, '-'), uint64(attempt), 10)
	return string(b)
}

// attrs returns the log attributes of an attempt.
func (r ref) attrs() slog.Attr {
	return slog.Group("", slog.Uint64("job_id", r.job), slog.Uint64("task_index", uint64(r.task)), slog.Uint64("attempt", uint64(r.attempt)))
}

// phase is the progress of an attempt at this worker. It only increases.
type phase uint8

const (
	phaseRequesting phase = iota + 1 // at most once: waits until its start is committed
	phaseReady                       // waits for a slot
	phaseRunning                     // its executor runs
	phaseCommitted                   // succeeded; its output is being published and nothing can stop it
	phaseEnded                       // has an outcome that is not acknowledged
)

// attempt is one assignment from its arrival until its outcome is acknowledged.
type attempt struct {
	ref
	assignment   columns.Assignment           // shares the memory of its message; zero once ended
	token        uint64                       // the fencing token
	jobContext   *dtaskv1.JobContext          // nil once ended
	policy       *dtaskv1.TaskPolicy          // nil once ended
	run          *execution                   // set while it runs
	body         *dtaskv1.TaskBody            // of the task or the current item; used by the executor only, nil once ended
	item         *array.Item                  // current item of an array; used by the executor only, nil once ended
	log          *attemptLog                  // of an attempt with several items; used by the executor only
	exclusive    bool                         // at most once
	limited      bool                         // not exclusive, and counts towards a named limit: it must not run without a lease
	checkpointer atomic.Pointer[checkpointer] // nil: the attempt has no checkpoint directory
	savedData    atomic.Bool                  // SaveCheckpoint was called
	secrets      *attemptSecrets              // nil: the task names none; used by the executor only
	slot         *slot                        // that executes it; used by the executor only
	begun        bool                         // its handler or command may have started; used by the executor only

	// The table's lock guards the rest, except ctx, which is written before the
	// executor starts.
	phase     phase
	arrival   uint64 // number of its arrival in the ready queue
	started   time.Time
	ctx       *attemptContext
	announced bool // it was reported as started

	saves    uint32        // checkpoints so far
	lastData []byte        // of the last SaveCheckpoint of the task
	saving   chan struct{} // size 1: held by SaveCheckpoint; nil until first needed

	lastProgress   time.Time // time of the last progress report, or of the start
	permille       uint32
	progressText   string
	progressQueued bool // in the outbox's list of unsent progress
}

// execution is what an attempt needs while it runs: one allocation, and the
// only one for a task that does nothing (BenchmarkNoop). Handlers may keep
// references to parts of it, so it is never reused.
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

// invocation returns the attempt's own one, or a new one for an item of an
// array, because an attempt can have several items.
func (a *attempt) invocation() *invocation {
	if a.item != nil {
		return new(invocation)
	}
	return &a.run.only
}

// watchHeartbeat ends the attempt if it reports no progress for the policy's
// heartbeat timeout. The caller must call stop.
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

// notBegun is the error of an attempt that was ended while it waited for a
// fresh confirmation.
const notBegun = "no answer from a leader before the attempt started"

// released returns the outcome of an attempt that did not start.
func released(reason string) *dtaskv1.Outcome {
	return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, Error: reason}
}

// endedBy returns the outcome of an attempt that was ended for this cause.
func endedBy(cause error) *dtaskv1.Outcome {
	out := &dtaskv1.Outcome{Error: clip(cause.Error(), maxError)}
	switch {
	case isAny(cause, ErrTimedOut):
		out.Kind = dtaskv1.OutcomeKind_OUTCOME_KIND_TIMED_OUT
	case isAny(cause, ErrDraining, ErrPreempted, errLimitedLeaseEnded):
		out.Kind = dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED
	case isAny(cause, ErrCancelled, ErrSuperseded):
		out.Kind = dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED
	case isAny(cause, ErrLeaseEnded):
		// It may have had effects, and must not be executed again.
		out.Kind, out.Fatal = dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, true
	default:
		out.Kind = dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED
	}
	return out
}

// stopCause returns the cause with which a stop ends an attempt.
func stopCause(reason dtaskv1.StopReason) error {
	switch reason {
	case dtaskv1.StopReason_STOP_REASON_SUPERSEDED:
		return ErrSuperseded
	case dtaskv1.StopReason_STOP_REASON_TIMED_OUT:
		return &timeoutError{what: "by the coordinator's clock"}
	case dtaskv1.StopReason_STOP_REASON_DRAINED:
		return ErrDraining
	case dtaskv1.StopReason_STOP_REASON_PREEMPTED:
		return ErrPreempted
	case dtaskv1.StopReason_STOP_REASON_UNSPECIFIED, dtaskv1.StopReason_STOP_REASON_CANCELLED:
		return ErrCancelled
	default:
		return ErrCancelled
	}
}
