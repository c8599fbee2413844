package worker

import (
	"slices"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxReports bounds one message; what is left goes into the next.
	maxReports = 1 << 20
	// beganAfter is how long an attempt runs before the coordinator is told
	// that it has begun: most end sooner, and their outcome says it too.
	beganAfter = 100 * time.Millisecond
	// notePause is the least time between two flushes of notes.
	notePause = 25 * time.Millisecond
)

// outbox is the part of the ledger that waits to be sent. The ledger's lock
// guards it.
type outbox struct {
	outcomes []*dtaskv1.Outcome // not yet acknowledged, in order
	first    uint64             // number of outcomes[0], from 1
	sent     int                // outcomes sent in this session

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
	for _, a := range l.heldLocked() {
		held = append(held, a.message())
		if a.announced && a.phase != phaseEnded {
			// Not a repeat for the same ear: another leader may listen.
			l.began = append(l.began, &dtaskv1.Began{Attempt: a.message(), AtMs: a.started.UnixMilli()})
		}
	}
	for _, outcome := range l.outcomes {
		ended = append(ended, outcome.GetAttempt())
	}
	return held, ended, l.first
}

// take returns what is to be sent now, at most about maxReports, or nil.
func (l *ledger) take(beat bool) *dtaskv1.Reports {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &dtaskv1.Reports{}
	if l.sent < len(l.outcomes) {
		r.First = l.first + uint64(l.sent) //nolint:gosec // not negative
		from, size := l.sent, 0
		for l.sent < len(l.outcomes) && size < maxReports {
			o := l.outcomes[l.sent]
			size += 80 + len(o.GetResult()) + len(o.GetError()) + len(o.GetErrorName()) + len(o.GetOutputSha256())
			l.sent++
		}
		r.Outcomes = slices.Clone(l.outcomes[from:l.sent]) // the ledger clears what is acknowledged
		if l.sent < len(l.outcomes) {
			l.signal()
		}
	}
	if (l.askDue || beat) && len(l.asking) > 0 {
		for _, a := range l.asking {
			r.MayBegin = append(r.MayBegin, a.message())
		}
	}
	l.askDue = false
	r.Began, r.Progress = l.began, l.notes
	l.began, l.notes = nil, nil
	if len(r.GetOutcomes())+len(r.GetBegan())+len(r.GetMayBegin())+len(r.GetProgress()) == 0 {
		return nil
	}
	return r
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
	for _, outcome := range l.outcomes[:n] {
		r := refOf(outcome.GetAttempt())
		if a := l.known[r]; a.checkpoint.Load() && outcome.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED {
			kept = append(kept, a)
		}
		delete(l.known, r)
	}
	clear(l.outcomes[:n])
	l.outcomes = l.outcomes[n:]
	l.first += uint64(n) //nolint:gosec // not negative
	l.sent = max(0, l.sent-n)
	if len(l.outcomes) == 0 {
		l.outcomes = nil
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
