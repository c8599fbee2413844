package worker

import (
	"time"

	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxReports bounds one message; what is left goes into the next.
	maxReports = 1 << 20
	// beganAfter is how long an attempt runs before the coordinator is told
	// that it has begun: most end sooner, and their outcome says it too.
	beganAfter = 100 * time.Millisecond
	// keptOutcomes bounds the room that is kept for outcomes when there are none.
	keptOutcomes = 4096
	// notePause is the least time between two flushes of notes.
	notePause = 25 * time.Millisecond
)

// outbox is the part of the ledger that waits to be sent. The ledger's lock
// guards it.
type outbox struct {
	outcomes []columns.Outcome // not yet acknowledged, in order
	first    uint64            // number of outcomes[0], from 1
	sent     int               // outcomes sent in this session

	checkpoints []*pendingCheckpoint // not yet answered, at most one of each attempt

	asking []*attempt // at-most-once attempts that wait for their grant
	askDue bool       // they shall be sent (again)

	fresh      []*attempt // begun, in order; not yet announced
	progressed []*attempt // those with a progress to send
	began      []*dtaskv1.Began
	notes      []*dtaskv1.Progress
	timer      *time.Timer // runs flushNotes; nil until first needed
	armed      bool
}

// greet begins a session: it returns what hello says, and makes all that is not
// acknowledged be sent again.
func (l *ledger) greet() (held, ended []*dtaskv1.AttemptRef, next uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent, l.askDue = 0, len(l.asking) > 0
	l.began = nil
	for _, p := range l.checkpoints {
		p.sent = false
	}
	for _, a := range l.heldLocked() {
		held = append(held, a.message())
		if a.announced && a.phase != phaseEnded {
			// Not a repeat for the same ear: another leader may listen.
			l.began = append(l.began, &dtaskv1.Began{Attempt: a.message(), AtMs: a.started.UnixMilli()})
		}
	}
	for i := range l.outcomes {
		ended = append(ended, rowRef(&l.outcomes[i]).message())
	}
	return held, ended, l.first
}

// take returns what is to be sent now, at most about maxReports, or nil.
func (l *ledger) take(beat bool) *dtaskv1.Reports {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &dtaskv1.Reports{}
	if l.takeCheckpointsLocked(r) && l.sent < len(l.outcomes) {
		r.Outcomes = l.takeOutcomesLocked()
	}
	if (l.askDue || beat) && len(l.asking) > 0 {
		for _, a := range l.asking {
			r.MayBegin = append(r.MayBegin, a.message())
		}
	}
	l.askDue = false
	r.Began, r.Progress = l.began, l.notes
	l.began, l.notes = nil, nil
	if r.GetOutcomes() == nil && len(r.GetBegan())+len(r.GetMayBegin())+len(r.GetProgress())+len(r.GetCheckpoints()) == 0 {
		return nil
	}
	return r
}

// takeOutcomesLocked gives those that come next, as many as fit into a message.
func (l *ledger) takeOutcomesLocked() *dtaskv1.Outcomes {
	m := columns.NewOutcomes(l.first+uint64(l.sent), len(l.outcomes)-l.sent) //nolint:gosec // not negative
	for size := 0; l.sent < len(l.outcomes) && size < maxReports; l.sent++ {
		o := &l.outcomes[l.sent]
		columns.AddOutcome(m, o)
		size += 16 + len(o.Result) + len(o.Other.GetResult()) + len(o.Other.GetError()) + len(o.Other.GetErrorName()) + len(o.Other.GetOutputSha256())
	}
	if l.sent < len(l.outcomes) {
		l.signal()
	}
	return m
}

// row is an outcome as it is kept and sent.
func row(r ref, o *dtaskv1.Outcome) columns.Outcome {
	out := columns.Outcome{Job: r.job, Task: r.task, Attempt: r.attempt}
	if succeeded(o) && o.GetOutputSize() == 0 && len(o.GetOutputSha256()) == 0 {
		out.Result = o.GetResult()
	} else {
		out.Other = o
	}
	return out
}

func rowRef(o *columns.Outcome) ref { return ref{job: o.Job, task: o.Task, attempt: o.Attempt} }

func succeeded(o *dtaskv1.Outcome) bool {
	return o.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED
}

// acknowledge forgets every outcome up to this number and returns those
// attempts.
func (l *ledger) acknowledge(through uint64) []*attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	if through < l.first {
		return nil
	}
	n := int(min(through-l.first+1, uint64(len(l.outcomes)))) //nolint:gosec // at most the length of a slice
	var kept []*attempt
	for i := range l.outcomes[:n] {
		o := &l.outcomes[i]
		r := rowRef(o)
		l.dropCheckpointLocked(r, errAttemptOver)
		if a := l.known[r]; (a.saver.Load() != nil || a.saves > 0) && (o.Other == nil || succeeded(o.Other)) {
			kept = append(kept, a)
		}
		delete(l.known, r)
	}
	// To the front: what comes next finds room without new memory.
	left := copy(l.outcomes, l.outcomes[n:])
	clear(l.outcomes[left:])
	l.outcomes = l.outcomes[:left]
	l.first += uint64(n) //nolint:gosec // not negative
	l.sent = max(0, l.sent-n)
	if left == 0 {
		if cap(l.outcomes) > keptOutcomes {
			l.outcomes = nil
		}
		l.signalMoved()
	}
	return kept
}

// noteLocked remembers that an attempt has begun.
func (l *ledger) noteLocked(a *attempt) {
	l.fresh = append(l.fresh, a)
	l.armLocked(beganAfter)
}

// progress keeps the latest progress of an attempt for the next flush.
func (l *ledger) progress(a *attempt, permille uint32, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.phase != phaseRunning {
		return
	}
	a.heard, a.permille, a.text = time.Now(), permille, text
	l.noteProgressLocked(a)
}

// noteProgressLocked has the progress of an attempt sent with the next flush.
func (l *ledger) noteProgressLocked(a *attempt) {
	if !a.progressNoted {
		a.progressNoted = true
		l.progressed = append(l.progressed, a)
	}
	l.armLocked(beganAfter)
}

// armLocked makes flushNotes run; one timer serves all attempts.
func (l *ledger) armLocked(after time.Duration) {
	switch {
	case l.armed:
		return
	case l.timer == nil:
		l.timer = time.AfterFunc(after, l.flushNotes)
	default:
		l.timer.Reset(after)
	}
	l.armed = true
}

// flushNotes turns what has run long enough, and all progress, into messages.
func (l *ledger) flushNotes() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = false
	i := 0
	for ; i < len(l.fresh) && now.Sub(l.fresh[i].started) >= beganAfter; i++ {
		if a := l.fresh[i]; a.phase == phaseRunning {
			a.announced = true
			l.began = append(l.began, &dtaskv1.Began{Attempt: a.message(), AtMs: a.started.UnixMilli()})
		}
	}
	clear(l.fresh[:i])
	if l.fresh = l.fresh[i:]; len(l.fresh) > 0 {
		l.armLocked(max(notePause, beganAfter-now.Sub(l.fresh[0].started)))
	} else {
		l.fresh = nil
	}
	for _, a := range l.progressed {
		a.progressNoted = false
		if a.phase == phaseRunning {
			l.notes = append(l.notes, &dtaskv1.Progress{Attempt: a.message(), Permille: a.permille, Text: a.text})
		}
	}
	l.progressed = nil
	if len(l.began)+len(l.notes) > 0 {
		l.signal()
	}
}

// close stops the timer.
func (l *ledger) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = true // no new one
	if l.timer != nil {
		l.timer.Stop()
	}
}
