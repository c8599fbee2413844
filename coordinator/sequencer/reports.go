package sequencer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/scheduler"
	"github.com/dtask/dtask/scheduler/backoff"
)

// Limits of what a worker may put into the log with an outcome.
const (
	maxResult = 4 << 10
	maxError  = 1 << 10
)

// closedPause is after which time a worker may come again whose session was
// closed. That it was is the worker's business, not a fault of the leader.
const closedPause = 50 * time.Millisecond

var (
	errReplaced = &BusyError{What: "another session of this worker has taken its place", RetryAfter: closedPause}
	errSilent   = &BusyError{What: "the worker was silent for too long", RetryAfter: closedPause}
)

// Report hands over what a worker said. It waits while too much waits; an error
// means that nothing of it was or will be done: the worker repeats it, unless it is
// columns.ErrMalformed.
func (s *Sequencer) Report(ctx context.Context, id fsm.WorkerID, from Session, r *dtaskv1.Reports, leaving bool) error {
	outcomes, err := columns.ReadOutcomes(r.GetOutcomes())
	if err != nil {
		return fmt.Errorf("reading outcomes: %w", err)
	}
	return s.inbox.putWait(ctx, classReport, &report{worker: id, session: from, r: r, outcomes: outcomes, leaving: leaving})
}

// TryReport is Report that does not wait: without room nothing is taken.
func (s *Sequencer) TryReport(id fsm.WorkerID, from Session, r *dtaskv1.Reports, leaving bool) (taken bool, err error) {
	outcomes, err := columns.ReadOutcomes(r.GetOutcomes())
	if err != nil {
		return false, fmt.Errorf("reading outcomes: %w", err)
	}
	err = s.inbox.put(classReport, &report{worker: id, session: from, r: r, outcomes: outcomes, leaving: leaving})
	if _, full := errors.AsType[*BusyError](err); full {
		return false, nil
	}
	return err == nil, err
}

type report struct {
	worker   fsm.WorkerID
	session  Session
	r        *dtaskv1.Reports
	outcomes columns.OutcomeReader // those that are not done
	leaving  bool
	saved    int // first checkpoint that is not done
}

func (*report) refuse(error) {} // the worker repeats it to the next leader

func (p *report) run(s *Sequencer, b *batch) bool {
	w := s.workers[p.worker]
	if w == nil || w.session != p.session {
		return true // the worker repeats it in its new session
	}
	// An attempt's last checkpoint comes with its outcome, which ends it.
	for ; p.saved < len(p.r.GetCheckpoints()); p.saved++ {
		if !b.room() {
			return false
		}
		s.checkpoint(b, w, p.r.GetCheckpoints()[p.saved])
	}
	b.draft.ExpectCompletions(min(p.outcomes.Left(), s.cfg.EntryOps-b.draft.Items()))
	for p.outcomes.Left() > 0 {
		if !b.room() {
			return false
		}
		s.outcome(b, w, p.outcomes.Next())
	}
	for _, x := range p.r.GetStarted() {
		s.began(b, w, AttemptOf(x.GetAttempt()))
	}
	for _, x := range p.r.GetProgress() {
		s.progress(b, w, AttemptOf(x.GetAttempt()), x)
	}
	for _, x := range p.r.GetStartRequests() {
		s.mayBegin(b, w, AttemptOf(x))
	}
	if p.leaving && !w.draining {
		w.draining = true
		s.sched.SetAccepting(scheduler.WorkerID(w.id), s.accepting(w))
		s.cfg.Logger.Info("worker drains", "worker", w.name, "worker_id", uint32(w.id), "held", w.held.len())
	}
	return true
}

// AttemptOf reads the name of an attempt from the protocol.
func AttemptOf(a *dtaskv1.AttemptRef) fsm.AttemptRef {
	return fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: fsm.JobID(a.GetJob()), Index: a.GetTask()}, Attempt: a.GetAttempt()}
}

// outcome takes up the end of an attempt and answers it with a verdict.
func (s *Sequencer) outcome(b *batch, w *worker, o columns.Outcome) {
	ref := fsm.TaskRef{Job: fsm.JobID(o.Job), Index: o.Task}
	item := fsm.HeldAttempt{AttemptRef: fsm.AttemptRef{TaskRef: ref, Attempt: o.Attempt}, Worker: w.id}
	x, ok := w.held.remove(item.AttemptRef)
	if ok {
		s.sched.Release(scheduler.WorkerID(w.id), x.class)
		if x.asked && o.Detail.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED {
			s.gaveBack(w)
		}
	}
	s.forgetOrphan(item.AttemptRef)
	if !ok || x.began != 0 { // else nobody has heard of it
		s.watch.forget(item.AttemptRef)
	}

	m := b.toWorker(w)
	m.AckThrough = o.Number
	if v := verdict(s.judge(b, item, &o)); v != dtaskv1.Verdict_VERDICT_ACCEPTED {
		at := &dtaskv1.AttemptRef{Job: o.Job, Task: o.Task, Attempt: o.Attempt}
		m.Exceptions = append(m.Exceptions, &dtaskv1.ReportVerdict{Number: o.Number, Verdict: v, Attempt: at})
	}
}

func verdict(r fsm.Reason) dtaskv1.Verdict {
	switch r {
	case fsm.Accepted:
		return dtaskv1.Verdict_VERDICT_ACCEPTED
	case fsm.AlreadyAccepted:
		return dtaskv1.Verdict_VERDICT_ALREADY_ACCEPTED
	case fsm.JobNotFound, fsm.TaskNotFound:
		return dtaskv1.Verdict_VERDICT_UNKNOWN_TASK
	case fsm.WorkerNotFound, fsm.WrongState, fsm.StaleAttempt, fsm.AlreadyEnded, fsm.KeyConflict, fsm.OutOfOrder, fsm.Malformed, fsm.BudgetExceeded,
		fsm.VersionMismatch, fsm.LimitExceeded:
	}
	return dtaskv1.Verdict_VERDICT_SUPERSEDED
}

// judge turns an outcome into an operation.
func (s *Sequencer) judge(b *batch, item fsm.HeldAttempt, row *columns.Outcome) fsm.Reason {
	o, took := row.Detail, row.TookMS
	if o == nil {
		return s.complete(b, fsm.CompleteItem{HeldAttempt: item, DurationMS: took, Result: row.Result})
	}
	switch o.GetKind() {
	case dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED:
		return s.complete(b, fsm.CompleteItem{
			HeldAttempt: item, DurationMS: took, Result: o.GetResult(),
			OutputSize: o.GetOutputSize(), OutputSHA256: o.GetOutputSha256(),
		})
	case dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED, dtaskv1.OutcomeKind_OUTCOME_KIND_UNSPECIFIED:
		r := b.draft.Requeue(item, false)
		if r == fsm.WrongState {
			return s.fail(b, item, took, backoff.Failure{Kind: backoff.Error}, true, "ended before it was done: "+bounded(o.GetError()))
		}
		return r
	case dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, dtaskv1.OutcomeKind_OUTCOME_KIND_TIMED_OUT, dtaskv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED:
	}
	return s.fail(b, item, took, failureOf(o), o.GetFatal(), failureText(o))
}

// complete takes up a success.
func (s *Sequencer) complete(b *batch, it fsm.CompleteItem) fsm.Reason {
	// What the state machine refuses as malformed would leave the task with an
	// attempt that nobody holds any more.
	if len(it.Result) > maxResult {
		return s.fail(b, it.HeldAttempt, it.DurationMS, backoff.Failure{Kind: backoff.Error}, true, "result is above 4 KiB")
	}
	if n := len(it.OutputSHA256); n != 0 && n != sha256.Size {
		return s.fail(b, it.HeldAttempt, it.DurationMS, backoff.Failure{Kind: backoff.Error}, true, "the digest of the output is not one of SHA-256")
	}
	r := b.draft.Complete(it)
	if r == fsm.Accepted {
		s.ran(it.Worker, it.DurationMS)
		s.remember(b, it.TaskRef)
		s.cfg.Totals.Completions.Add(1)
		s.cfg.Totals.Run.Observe(time.Duration(it.DurationMS) * time.Millisecond)
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

// failureText is what people read about a failure.
func failureText(o *dtaskv1.Outcome) string {
	text := o.GetError()
	if text == "" {
		switch {
		case o.GetSignal() != "":
			text = "killed by SIG" + o.GetSignal()
		case o.GetExitCode() != 0:
			text = fmt.Sprintf("exit code %d", o.GetExitCode())
		default:
			text = "failed without saying why"
		}
	}
	return bounded(text)
}

// bounded cuts what a worker wrote to what the log takes.
func bounded(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxError)], "")
}

// fail decides what follows a failed attempt and writes it down.
func (s *Sequencer) fail(b *batch, item fsm.HeldAttempt, took uint32, f backoff.Failure, fatal bool, text string) fsm.Reason {
	t, ok := s.view.Task(item.TaskRef)
	if !ok {
		return fsm.JobNotFound
	}
	it := fsm.FailItem{HeldAttempt: item, DurationMS: took, Next: fsm.NextFailed, CountsAsRetry: f.Kind.CountsAsRetry(), Error: text}
	job, _ := s.view.Job(item.Job)
	if !fatal && !t.StartLogged && (!job.Stopping || t.Cleanup) {
		failures := int(t.Failures)
		if it.CountsAsRetry {
			failures++
		}
		seed := uint64(item.Job)<<32 ^ uint64(item.Index)
		d := s.numbered(item.Job, t.Policy).rules.Decide(f, failures, seed)
		switch d.Action {
		case backoff.Retry:
			it.Next, it.Due = fsm.NextRetry, b.draft.NowMS()+d.Delay.Milliseconds()
		case backoff.Dead:
			it.Next = fsm.NextDead
		case backoff.Failed:
		}
	}
	r := b.draft.Fail(it)
	if r == fsm.Accepted {
		s.cfg.Totals.Failures.Add(1)
		s.cfg.Logger.Info("attempt failed", "job_id", uint64(item.Job), "task", s.view.Name(item.TaskRef),
			"attempt", item.Attempt, "worker_id", uint32(item.Worker), "err", text, "retried", it.Next == fsm.NextRetry)
	}
	return r
}

// began notes that an attempt runs.
func (s *Sequencer) began(b *batch, w *worker, a fsm.AttemptRef) {
	x := w.held.find(a)
	if x == nil || x.stopped {
		return
	}
	x.began, x.beat = b.at, b.at
	s.watch.set(a, func(o *Observation) { o.StartedMS = b.draft.NowMS() })
}

// progress notes how far an attempt is.
func (s *Sequencer) progress(b *batch, w *worker, a fsm.AttemptRef, p *dtaskv1.Progress) {
	x := w.held.find(a)
	if x == nil || x.stopped {
		return
	}
	x.beat = b.at
	if x.began == 0 {
		x.began = b.at
	}
	s.watch.set(a, func(o *Observation) {
		if o.StartedMS == 0 {
			o.StartedMS = b.draft.NowMS()
		}
		o.Permille, o.Text = min(p.GetPermille(), 1000), p.GetText()
	})
}

// mayBegin logs the start of an at-most-once attempt, and lets it begin once
// that is committed.
func (s *Sequencer) mayBegin(b *batch, w *worker, a fsm.AttemptRef) {
	x := w.held.find(a)
	if x == nil {
		b.stop(w.session, a, dtaskv1.StopReason_STOP_REASON_SUPERSEDED)
		return
	}
	if b.draft.RecordStart(fsm.HeldAttempt{AttemptRef: a, Worker: w.id}) != fsm.Accepted {
		s.stopHeld(b, w, a, dtaskv1.StopReason_STOP_REASON_SUPERSEDED)
		return
	}
	x.began, x.beat = b.at, b.at
	m := b.to(w.session)
	m.MayBegin = append(m.MayBegin, a)
}
