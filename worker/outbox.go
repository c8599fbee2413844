package worker

import (
	"time"

	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxReportBytes bounds one message; the rest is sent in the next.
	maxReportBytes = 1 << 20
	// startedReportDelay is how long an attempt runs before it is reported as
	// started. Most attempts end sooner, and their outcome implies it.
	startedReportDelay = 100 * time.Millisecond
	// maxKeptOutcomes bounds the memory that is kept when all outcomes
	// are acknowledged.
	maxKeptOutcomes = 4096
	// outcomeDelay is how long an outcome may wait for others, so that they
	// share a message, an entry of the log and its synchronized writes. A
	// worker with nothing else to run reports at once.
	outcomeDelay = 10 * time.Millisecond
	// minFlushInterval is the minimum time between two flushes of started
	// reports.
	minFlushInterval = 25 * time.Millisecond
)

// outbox is the part of the attempt table that waits to be sent. The table's
// lock guards it.
type outbox struct {
	outcomes []columns.Outcome // not acknowledged, in order
	first    uint64            // number of outcomes[0], from 1
	sent     int               // outcomes sent in this session

	outcomeTimer *time.Timer // makes them due; nil until first needed
	outcomeArmed bool

	checkpoints []*pendingCheckpoint // not answered, at most one of each attempt
	saved       map[ref]*attempt     // those in outcomes that succeeded and have checkpoints

	requesting  []*attempt // at-most-once attempts that wait for their grant
	requestsDue bool       // the requests must be sent (again)

	justStarted     []*attempt // started, in order; not announced
	progressed      []*attempt // attempts with unsent progress
	started         []*attempt // announced, with an unsent report
	progressReports []*dtaskv1.Progress
	flushTimer      *time.Timer // runs flushReports; nil until first needed
	flushArmed      bool
}

// startSession returns the contents of a hello, and marks everything that is
// not acknowledged as unsent.
func (t *attemptTable) startSession() (held, ended []*dtaskv1.AttemptRef, next uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent, t.requestsDue = 0, len(t.requesting) > 0
	t.started = nil
	for _, p := range t.checkpoints {
		p.sent = false
	}
	for _, a := range t.heldLocked() {
		held = append(held, a.message())
		if a.announced && a.phase != phaseEnded {
			// Repeated because the leader may be another one.
			t.started = append(t.started, a)
		}
	}
	for i := range t.outcomes {
		ended = append(ended, refOfRow(&t.outcomes[i]).message())
	}
	return held, ended, t.first
}

// take returns the reports to send now, about maxReportBytes at most, or nil.
// Start requests are repeated with each heartbeat.
func (t *attemptTable) take(heartbeat bool) *dtaskv1.Reports {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &dtaskv1.Reports{}
	if t.takeCheckpointsLocked(r) && t.sent < len(t.outcomes) {
		r.Outcomes = t.takeOutcomesLocked()
	}
	if t.requestsDue || heartbeat {
		for _, a := range t.requesting {
			r.StartRequests = append(r.StartRequests, a.message())
		}
	}
	t.requestsDue = false
	if len(t.started) > 0 {
		now := time.Now() // a session may have opened long after its hello
		for _, a := range t.started {
			r.Started = append(r.Started, &dtaskv1.Started{Attempt: a.message(), RanMs: milliseconds(now.Sub(a.started))})
		}
	}
	r.Progress = t.progressReports
	t.started, t.progressReports = nil, nil
	if r.GetOutcomes() == nil && len(r.GetStarted())+len(r.GetStartRequests())+len(r.GetProgress())+len(r.GetCheckpoints()) == 0 {
		return nil
	}
	return r
}

// takeOutcomesLocked returns the next outcomes, as many as fit into a message.
func (t *attemptTable) takeOutcomesLocked() *dtaskv1.Outcomes {
	m := columns.NewOutcomes(t.first+uint64(t.sent), len(t.outcomes)-t.sent) //nolint:gosec // not negative
	for size := 0; t.sent < len(t.outcomes) && size < maxReportBytes; t.sent++ {
		o := &t.outcomes[t.sent]
		columns.AddOutcome(m, o)
		size += 16 + len(o.Result) + len(o.Detail.GetResult()) + len(o.Detail.GetError()) + len(o.Detail.GetErrorName()) + len(o.Detail.GetOutputSha256())
	}
	if t.sent < len(t.outcomes) {
		signal(t.wake)
	}
	return m
}

// outcomeRow returns an outcome in the form in which it is kept and sent.
func outcomeRow(r ref, o *dtaskv1.Outcome) columns.Outcome {
	out := columns.Outcome{Job: r.job, Task: r.task, Attempt: r.attempt}
	if succeeded(o) && o.GetOutputSize() == 0 && len(o.GetOutputSha256()) == 0 {
		out.Result = o.GetResult()
	} else {
		out.Detail = o
	}
	return out
}

func refOfRow(o *columns.Outcome) ref { return ref{job: o.Job, task: o.Task, attempt: o.Attempt} }

func succeeded(o *dtaskv1.Outcome) bool {
	return o.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED
}

// outcomeAddedLocked decides when an outcome is sent. Successes wait while at
// least as many attempts are ready as outcomes wait: the leader can send more
// attempts in time.
func (t *attemptTable) outcomeAddedLocked(ok bool) {
	if waiting := len(t.outcomes) - t.sent; !ok || waiting >= t.queue.len() {
		signal(t.wake)
		return
	}
	switch {
	case t.outcomeArmed:
		return
	case t.outcomeTimer == nil:
		t.outcomeTimer = time.AfterFunc(outcomeDelay, t.outcomesDue)
	default:
		t.outcomeTimer.Reset(outcomeDelay)
	}
	t.outcomeArmed = true
}

// outcomesDue sends the outcomes that have waited.
func (t *attemptTable) outcomesDue() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcomeArmed = false
	if t.sent < len(t.outcomes) {
		signal(t.wake)
	}
}

// acknowledge removes all outcomes up to this number. It returns those of the
// attempts that succeeded and have checkpoints.
func (t *attemptTable) acknowledge(through uint64) []*attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	if through < t.first {
		return nil
	}
	n := int(min(through-t.first+1, uint64(len(t.outcomes)))) //nolint:gosec // at most the length of a slice
	var withCheckpoints []*attempt
	for i := range t.outcomes[:n] {
		r := refOfRow(&t.outcomes[i])
		t.dropCheckpointLocked(r, errAttemptEnded)
		if len(t.saved) > 0 && t.saved[r] != nil {
			withCheckpoints = append(withCheckpoints, t.saved[r])
			delete(t.saved, r)
		}
		delete(t.known, r)
	}
	// Moved to the front, so that the next outcomes need no new memory.
	left := copy(t.outcomes, t.outcomes[n:])
	clear(t.outcomes[left:])
	t.outcomes = t.outcomes[:left]
	t.first += uint64(n) //nolint:gosec // not negative
	t.sent = max(0, t.sent-n)
	if left == 0 {
		if cap(t.outcomes) > maxKeptOutcomes {
			t.outcomes = nil
		}
		t.signalIdle()
	}
	return withCheckpoints
}

// noteStartedLocked queues an attempt to be reported as started.
func (t *attemptTable) noteStartedLocked(a *attempt) {
	t.justStarted = append(t.justStarted, a)
	t.armLocked(startedReportDelay)
}

// progress stores the latest progress of an attempt for the next flush.
func (t *attemptTable) progress(a *attempt, permille uint32, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.phase != phaseRunning {
		return
	}
	a.lastProgress, a.permille, a.progressText = time.Now(), permille, text
	t.noteProgressLocked(a)
}

// noteProgressLocked queues the progress of an attempt for the next flush.
func (t *attemptTable) noteProgressLocked(a *attempt) {
	if !a.progressQueued {
		a.progressQueued = true
		t.progressed = append(t.progressed, a)
	}
	t.armLocked(startedReportDelay)
}

// armLocked schedules flushReports; one timer serves all attempts.
func (t *attemptTable) armLocked(after time.Duration) {
	switch {
	case t.flushArmed:
		return
	case t.flushTimer == nil:
		t.flushTimer = time.AfterFunc(after, t.flushReports)
	default:
		t.flushTimer.Reset(after)
	}
	t.flushArmed = true
}

// flushReports builds the reports of attempts that have run long enough, and of
// all progress.
func (t *attemptTable) flushReports() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flushArmed = false
	i := 0
	for ; i < len(t.justStarted) && now.Sub(t.justStarted[i].started) >= startedReportDelay; i++ {
		if a := t.justStarted[i]; a.phase == phaseRunning {
			a.announced = true
			t.started = append(t.started, a)
		}
	}
	clear(t.justStarted[:i])
	if t.justStarted = t.justStarted[i:]; len(t.justStarted) > 0 {
		t.armLocked(max(minFlushInterval, startedReportDelay-now.Sub(t.justStarted[0].started)))
	} else {
		t.justStarted = nil
	}
	for _, a := range t.progressed {
		a.progressQueued = false
		if a.phase == phaseRunning {
			t.progressReports = append(t.progressReports, &dtaskv1.Progress{Attempt: a.message(), Permille: a.permille, Text: a.progressText})
		}
	}
	t.progressed = nil
	if len(t.started)+len(t.progressReports) > 0 {
		signal(t.wake)
	}
}

// close stops the timers.
func (t *attemptTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flushArmed, t.outcomeArmed = true, true // so that no new one is scheduled
	for _, timer := range []*time.Timer{t.flushTimer, t.outcomeTimer} {
		if timer != nil {
			timer.Stop()
		}
	}
}
