package sequencer

import (
	"crypto/sha256"
	"strings"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	"github.com/dtask/dtask/internal/exitstatus"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler/backoff"
)

// Limits of the text and data that an outcome puts into the log, in bytes.
const (
	maxResult = 4 << 10
	maxError  = 1 << 10
)

// outcomes turns the outcomes of attempts into operations, and decides on
// retries.
type outcomes struct {
	cfg      *Config
	policies *policyTable
	workers  *workerTable
	results  *resultCache
}

// apply proposes the operation for an outcome.
func (x *outcomes) apply(b *batch, h fsm.HeldAttempt, row *columns.Outcome) fsm.Reason {
	o, took := row.Detail, row.TookMS
	if o == nil {
		return x.complete(b, fsm.CompleteItem{HeldAttempt: h, DurationMS: took, Result: row.Result})
	}
	switch o.GetKind() {
	case dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED:
		return x.complete(b, fsm.CompleteItem{
			HeldAttempt: h, DurationMS: took, Result: o.GetResult(),
			OutputSize: o.GetOutputSize(), OutputSHA256: o.GetOutputSha256(),
		})
	case dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED,
		dtaskv1.OutcomeKind_OUTCOME_KIND_UNSPECIFIED:
		r := requeue(b, h, false)
		if r == fsm.WrongState {
			return x.fatal(b, h, took, "ended before completion: "+truncate(o.GetError()))
		}
		return r
	case dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, dtaskv1.OutcomeKind_OUTCOME_KIND_TIMED_OUT,
		dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED:
	}
	return x.fail(b, h, took, failureOf(o), o.GetFatal(), failureText(o))
}

func (x *outcomes) complete(b *batch, it fsm.CompleteItem) fsm.Reason {
	// An operation that the state machine rejects as malformed would leave the
	// task with an attempt that no worker holds any more.
	if len(it.Result) > maxResult {
		return x.fatal(b, it.HeldAttempt, it.DurationMS, "result exceeds 4 KiB")
	}
	if n := len(it.OutputSHA256); n != 0 && n != sha256.Size {
		return x.fatal(b, it.HeldAttempt, it.DurationMS, "invalid SHA-256 of the output")
	}
	r := b.entry.Complete(it)
	if r == fsm.Accepted {
		took := time.Duration(it.DurationMS) * time.Millisecond
		x.workers.completed(it.Worker, took)
		x.results.remember(b, it.TaskRef)
		x.cfg.Totals.Completions.Add(1)
		x.cfg.Totals.Run.Observe(took)
	}
	return r
}

func failureOf(o *dtaskv1.Outcome) backoff.Failure {
	switch {
	case o.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_TIMED_OUT:
		return backoff.Failure{Kind: backoff.Timeout}
	case o.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED:
		return backoff.Failure{Kind: backoff.Start}
	case o.GetTemporary():
		return backoff.Failure{Kind: backoff.Exit, Code: backoff.TryAgain}
	case o.GetSignal() != "":
		return backoff.Failure{Kind: backoff.Signal, Name: o.GetSignal()}
	case o.GetExitCode() != 0:
		return backoff.Failure{Kind: backoff.Exit, Code: int(o.GetExitCode())}
	default:
		return backoff.Failure{Kind: backoff.Error, Name: o.GetErrorName()}
	}
}

// failureText returns the error that users read about a failure.
func failureText(o *dtaskv1.Outcome) string {
	text := o.GetError()
	if text == "" {
		switch {
		case o.GetSignal() != "":
			text = exitstatus.Status{Signal: "SIG" + o.GetSignal()}.String()
		case o.GetExitCode() != 0:
			text = exitstatus.Status{Code: int(o.GetExitCode())}.String()
		default:
			text = "failed without an error message"
		}
	}
	return truncate(text)
}

// truncate shortens a worker's text to maxError bytes of valid UTF-8.
func truncate(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxError)], "")
}

// fatal fails an attempt without a retry.
func (x *outcomes) fatal(b *batch, h fsm.HeldAttempt, took uint32, text string) fsm.Reason {
	return x.fail(b, h, took, backoff.Failure{Kind: backoff.Error}, true, text)
}

// fail fails an attempt and decides what follows: a retry, a dead letter or a
// failed task.
func (x *outcomes) fail(
	b *batch, h fsm.HeldAttempt, took uint32, f backoff.Failure, fatal bool, text string,
) fsm.Reason {
	t, ok := b.view.Task(h.TaskRef)
	if !ok {
		return fsm.JobNotFound
	}
	it := fsm.FailItem{
		HeldAttempt: h, DurationMS: took, Next: fsm.NextFailed, CountsAsRetry: f.Kind.CountsAsRetry(), Error: text,
	}
	if !fatal && !t.StartLogged && !b.view.Stops(h.TaskRef) {
		failures := int(t.Failures)
		if it.CountsAsRetry {
			failures++
		}
		d := x.policies.numbered(b.view, h.Job, t.Policy).rules.Decide(f, failures, backoffSeed(h.TaskRef))
		switch d.Action {
		case backoff.Retry:
			it.Next, it.Due = fsm.NextRetry, b.entry.NowMS()+d.Delay.Milliseconds()
		case backoff.Dead:
			it.Next = fsm.NextDead
		case backoff.Failed:
		}
	}
	r := b.entry.Fail(it)
	if r == fsm.Accepted {
		x.cfg.Totals.Failures.Add(1)
		x.cfg.Totals.Failed.add(b.view.TaskType(h.TaskRef), f.Kind)
		// The text may quote the output of a command, which is for those who may see the job.
		x.cfg.Logger.Info("attempt failed", "job_id", uint64(h.Job), "task_id", b.view.Name(h.TaskRef),
			"attempt", h.Attempt, "worker_id", uint32(h.Worker), "reason", f.Kind.String(), "retry", it.Next == fsm.NextRetry)
	}
	return r
}

// backoffSeed spreads the delays of tasks that failed together.
func backoffSeed(t fsm.TaskRef) uint64 { return uint64(t.Job)<<32 ^ uint64(t.Index) }
