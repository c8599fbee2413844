package sequencer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// reconnectDelay is when a worker should return after its session was closed
// here: the leader is healthy.
const reconnectDelay = 50 * time.Millisecond

var (
	errReplaced = &BusyError{What: "replaced by another session of this worker", RetryAfter: reconnectDelay}
	errLiveness = &BusyError{What: "liveness timeout", RetryAfter: reconnectDelay}
)

// Report passes on what a worker reported. It waits while the inbox is full. An
// error means that nothing of the report was or will be applied; the worker
// repeats it, unless the error is columns.ErrMalformed.
func (s *Sequencer) Report(ctx context.Context, id fsm.WorkerID, from Session, r *dtaskv1.Reports, leaving bool) error {
	p, err := newReport(&s.reports, id, from, r, leaving)
	if err != nil {
		return err
	}
	return s.inbox.putWait(ctx, classReport, p)
}

// TryReport is Report without waiting: taken is false if the inbox is full.
func (s *Sequencer) TryReport(id fsm.WorkerID, from Session, r *dtaskv1.Reports, leaving bool) (taken bool, err error) {
	p, err := newReport(&s.reports, id, from, r, leaving)
	if err != nil {
		return false, err
	}
	err = s.inbox.put(classReport, p)
	if _, full := errors.AsType[*BusyError](err); full {
		return false, nil
	}
	return err == nil, err
}

func newReport(x *reportHandler, id fsm.WorkerID, from Session, r *dtaskv1.Reports, leaving bool) (*report, error) {
	list, err := columns.ReadOutcomes(r.GetOutcomes())
	if err != nil {
		return nil, fmt.Errorf("reading outcomes: %w", err)
	}
	return &report{handler: x, worker: id, session: from, r: r, outcomes: list, leaving: leaving}, nil
}

// report is a message of a worker.
type report struct {
	handler  *reportHandler
	worker   fsm.WorkerID
	session  Session
	r        *dtaskv1.Reports
	outcomes columns.OutcomeReader // those that are not applied
	leaving  bool
	saved    int // number of checkpoints that are applied
}

// reportHandler applies reports.
type reportHandler struct {
	cfg         *Config
	workers     *workerTable
	outcomes    *outcomes
	checkpoints checkpoints
}

func (*report) refuse(error) {} // the worker repeats it to the next leader

func (p *report) run(b *batch) bool {
	x := p.handler
	w := x.workers.attached(p.worker, p.session)
	if w == nil {
		return true // the worker repeats it in its new session
	}
	// Checkpoints first: the last one of an attempt comes with its outcome,
	// which ends it.
	for ; p.saved < len(p.r.GetCheckpoints()); p.saved++ {
		if b.full() {
			return false
		}
		x.checkpoints.save(b, w, p.r.GetCheckpoints()[p.saved])
	}
	b.entry.ExpectCompletions(min(p.outcomes.Left(), x.cfg.EntryOps-b.entry.Items()))
	for p.outcomes.Left() > 0 {
		if b.full() {
			return false
		}
		x.outcome(b, w, p.outcomes.Next())
	}
	for _, r := range p.r.GetStarted() {
		began := func(o *Observation) { o.StartedMS = b.entry.NowMS() - int64(r.GetRanMs()) }
		if attempt := x.runs(b, w, AttemptOf(r.GetAttempt()), began); attempt != nil {
			x.workers.began(w, attempt, b.at)
		}
	}
	for _, r := range p.r.GetProgress() {
		x.runs(b, w, AttemptOf(r.GetAttempt()), func(o *Observation) {
			o.Permille, o.Text = min(r.GetPermille(), 1000), r.GetText()
		})
	}
	for _, a := range p.r.GetStartRequests() {
		x.recordStart(b, w, AttemptOf(a))
	}
	if p.leaving && !w.leaving {
		w.leaving = true
		x.workers.updateAccepting(b.view, w)
		x.cfg.Logger.Info("worker leaving", "worker", w.name, "worker_id", uint32(w.id), "attempts", w.held.len())
	}
	return true
}

// AttemptOf converts an attempt of the protocol.
func AttemptOf(a *dtaskv1.AttemptRef) fsm.AttemptRef {
	return fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: fsm.JobID(a.GetJob()), Index: a.GetTask()}, Attempt: a.GetAttempt()}
}

// outcome applies the outcome of an attempt and answers it with a verdict.
func (x *reportHandler) outcome(b *batch, w *worker, o columns.Outcome) {
	a := fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: fsm.JobID(o.Job), Index: o.Task}, Attempt: o.Attempt}
	attempt, ok := x.workers.take(w, a)
	if ok {
		if attempt.stealAsked && o.Detail.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED {
			w.stealAsked = time.Time{} // it may be asked again
			x.cfg.Totals.Steals.Add(1)
		}
	}
	x.workers.leases.end(a)
	if !ok || attempt.started != 0 || attempt.observed { // else it was never observed
		x.workers.running.forget(a)
	}

	m := b.to(w)
	m.AckThrough = o.Number
	h := fsm.HeldAttempt{AttemptRef: a, Worker: w.id}
	var r fsm.Reason
	if attempt.preempted && isReleased(&o) {
		r = requeuePreempted(b, h, o.TookMS)
	} else {
		r = x.outcomes.apply(b, h, &o)
	}
	v := verdict(r)
	if v != dtaskv1.Verdict_VERDICT_ACCEPTED {
		at := &dtaskv1.AttemptRef{Job: o.Job, Task: o.Task, Attempt: o.Attempt}
		m.Exceptions = append(m.Exceptions, &dtaskv1.ReportVerdict{Number: o.Number, Verdict: v, Attempt: at})
	}
}

func verdict(r fsm.Reason) dtaskv1.Verdict {
	if r == fsm.Accepted {
		return dtaskv1.Verdict_VERDICT_ACCEPTED
	}
	if r == fsm.AlreadyAccepted {
		return dtaskv1.Verdict_VERDICT_ALREADY_ACCEPTED
	}
	if r == fsm.JobNotFound || r == fsm.TaskNotFound {
		return dtaskv1.Verdict_VERDICT_UNKNOWN_TASK
	}
	return dtaskv1.Verdict_VERDICT_SUPERSEDED
}

// runs records that an attempt runs, and what the worker reported about it. It returns
// nil if the worker does not hold the attempt, or must stop it.
func (x *reportHandler) runs(b *batch, w *worker, a fsm.AttemptRef, reported func(*Observation)) *held {
	attempt := w.held.find(a)
	if attempt == nil || attempt.stopped {
		return nil
	}
	attempt.progressed = b.at
	if attempt.started == 0 {
		x.workers.began(w, attempt, b.at)
	}
	x.workers.running.update(a, func(o *Observation) {
		if o.StartedMS == 0 {
			o.StartedMS = b.entry.NowMS()
		}
		reported(o)
	})
	return attempt
}

// recordStart logs the start of an at-most-once attempt. The worker may start
// it after the commit.
func (x *reportHandler) recordStart(b *batch, w *worker, a fsm.AttemptRef) {
	attempt := w.held.find(a)
	if attempt == nil {
		b.stop(w, a, dtaskv1.StopReason_STOP_REASON_SUPERSEDED)
		return
	}
	if b.entry.RecordStart(fsm.HeldAttempt{AttemptRef: a, Worker: w.id}) != fsm.Accepted {
		x.workers.stop(b, w, a, dtaskv1.StopReason_STOP_REASON_SUPERSEDED)
		return
	}
	x.workers.began(w, attempt, b.at)
	attempt.progressed = b.at
	m := b.to(w)
	m.StartGrants = append(m.StartGrants, a)
}
