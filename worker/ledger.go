package worker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ledger is what this worker holds and owes: every attempt that was received and
// whose outcome is not yet acknowledged, the attempts that wait for a slot, and
// the outcomes and notes that wait to be sent. It outlives sessions.
//
// Invariant: an attempt in known is either held (phase below ended) or has
// exactly one outcome in outcomes.
type ledger struct {
	slots int
	base  context.Context //nolint:containedctx // parent of every attempt's context; never done; set before any attempt comes
	run   func()          // starts a goroutine that calls next until it gives nothing; set as base is
	lease *lease
	wake  chan struct{} // sent by whoever adds something to send; size 1, since one signal covers all
	moved chan struct{} // sent while draining when running or outcomes became empty; size 1 as above

	mu        sync.Mutex // guards all below, and the attempts
	known     map[ref]*attempt
	queue     []*attempt // ready ones; may hold some that ended meanwhile
	active    int        // slot goroutines, at most slots
	running   int        // attempts whose executor runs
	draining  bool
	connected bool // a session is open
	farewell  bool // its leader knows that this worker leaves
	stats     Stats
	outbox
}

func newLedger(slots int, lease *lease) *ledger {
	l := &ledger{
		slots: slots, lease: lease,
		wake: make(chan struct{}, 1), moved: make(chan struct{}, 1),
		known: map[ref]*attempt{},
	}
	l.first = 1
	return l
}

// accept takes assignments in. One that is known already changes nothing. A
// message that points outside itself is refused whole.
func (l *ledger) accept(m *dtaskv1.Assignments) error {
	attempts := make([]attempt, len(m.GetTasks()))
	for i, task := range m.GetTasks() {
		contexts := m.GetContexts()
		if int(task.GetContext()) >= len(contexts) || int(task.GetPolicy()) >= len(contexts[task.GetContext()].GetPolicies()) {
			return fmt.Errorf("%w: an assignment points to a job or policy that its message lacks", errProtocol)
		}
		a := &attempts[i]
		a.shared = contexts[task.GetContext()]
		a.policy = a.shared.GetPolicies()[task.GetPolicy()]
		a.assignment = task
		a.ref = ref{job: a.shared.GetJob(), task: task.GetTask(), attempt: task.GetAttempt()}
		a.exclusive = a.policy.GetExecution() == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range attempts {
		a := &attempts[i]
		if l.known[a.ref] != nil {
			continue
		}
		l.known[a.ref] = a
		l.stats.Received++
		switch {
		case l.draining:
			l.endLocked(a, endedBy(ErrDraining))
		case a.exclusive:
			a.phase = phaseAsking
			l.asking = append(l.asking, a)
			l.askDue = true
			l.signal()
		default:
			a.phase = phaseReady
			l.queue = append(l.queue, a)
		}
	}
	l.spawnLocked()
	return nil
}

// grant lets an at-most-once attempt begin, ahead of what waits.
func (l *ledger) grant(r ref) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.known[r]
	if a == nil || a.phase != phaseAsking {
		return
	}
	l.asking = slices.DeleteFunc(l.asking, func(b *attempt) bool { return b == a })
	a.phase = phaseReady
	l.queue = slices.Insert(l.queue, 0, a)
	l.spawnLocked()
}

// spawnLocked starts as many slot goroutines as the queue can use.
func (l *ledger) spawnLocked() {
	for n := min(l.slots-l.active, len(l.queue)); n > 0; n-- {
		l.active++
		l.run()
	}
}

// next records the outcome of the attempt that its caller has executed, if any,
// and returns the next one to execute, or nil when the caller's goroutine shall
// end.
func (l *ledger) next(done *attempt, outcome *dtaskv1.Outcome) *attempt {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if done != nil {
		l.running--
		l.finishLocked(done, outcome, now)
	}
	for len(l.queue) > 0 {
		a := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		if a.phase != phaseReady {
			continue // stopped while it waited
		}
		if a.exclusive && !l.lease.valid() {
			l.endLocked(a, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, Error: "lease ended before it began"})
			continue
		}
		a.begin(l.base, now)
		l.running++
		l.noteLocked(a)
		return a
	}
	l.queue = nil
	l.active--
	l.signalMoved()
	return nil
}

// finishLocked decides how an executed attempt ended: a stop that came before
// the commit wins over whatever the executor says.
func (l *ledger) finishLocked(a *attempt, outcome *dtaskv1.Outcome, now time.Time) {
	if a.phase != phaseCommitted {
		if cause := a.ctx.ended(now); cause != nil {
			ended := endedBy(cause)
			ended.ExitCode, ended.Signal = outcome.GetExitCode(), outcome.GetSignal()
			outcome = ended
		}
	}
	outcome.StartedAt = a.started.UnixMilli()
	outcome.EndedAt = max(now.UnixMilli(), outcome.GetStartedAt())
	a.ctx.end(nil)
	l.endLocked(a, outcome)
}

// endLocked gives an attempt its outcome.
func (l *ledger) endLocked(a *attempt, outcome *dtaskv1.Outcome) {
	a.phase = phaseEnded
	a.assignment, a.shared, a.policy = nil, nil, nil
	a.ctx, a.text = nil, ""
	outcome.Attempt = a.message()
	l.outcomes = append(l.outcomes, outcome)
	l.stats.count(outcome.GetKind())
	l.signal()
}

// commit makes the success of an attempt final, so that its output can be
// published. It reports false if the attempt was ended before.
func (l *ledger) commit(a *attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.phase != phaseRunning || a.ctx.ended(time.Now()) != nil {
		return false
	}
	a.phase = phaseCommitted
	return true
}

// stop ends an attempt; it reports whether the attempt was held. One that has
// not begun has its outcome at once.
func (l *ledger) stop(r ref, cause error) bool {
	l.mu.Lock()
	a := l.known[r]
	if a == nil || a.phase == phaseEnded {
		l.mu.Unlock()
		return false
	}
	ctx := l.stopLocked(a, cause)
	l.mu.Unlock()
	if ctx != nil {
		ctx.end(cause)
	}
	return true
}

// stopLocked returns the context that is left to be ended without the lock, or
// nil.
func (l *ledger) stopLocked(a *attempt, cause error) *attemptContext {
	switch a.phase {
	case phaseAsking:
		l.asking = slices.DeleteFunc(l.asking, func(b *attempt) bool { return b == a })
		l.endLocked(a, endedBy(cause))
	case phaseReady:
		l.endLocked(a, endedBy(cause))
	case phaseRunning:
		return a.ctx
	case phaseCommitted, phaseEnded:
	}
	return nil
}

// stopRunning ends running attempts: all, or the exclusive ones.
func (l *ledger) stopRunning(cause error, exclusiveOnly bool) {
	l.mu.Lock()
	var contexts []*attemptContext
	for _, a := range l.known {
		if a.phase == phaseRunning && (a.exclusive || !exclusiveOnly) {
			contexts = append(contexts, a.ctx)
		}
	}
	l.mu.Unlock()
	for _, ctx := range contexts {
		ctx.end(cause)
	}
}

// drain takes nothing more and hands back what has not begun.
func (l *ledger) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	for _, a := range l.heldLocked() {
		if a.phase == phaseAsking || a.phase == phaseReady {
			l.stopLocked(a, ErrDraining)
		}
	}
	l.queue = nil
	l.signal()
	l.signalMoved()
}

// busy is the number of attempts that run, owed the number of outcomes not yet
// acknowledged.
func (l *ledger) busy() (running, owed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running, len(l.outcomes)
}

// ended reports whether nothing more will be written by an attempt.
func (l *ledger) ended(r ref) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.known[r]
	return a == nil || a.phase == phaseEnded
}

// heldLocked lists the attempts that have no outcome, in order.
func (l *ledger) heldLocked() []*attempt {
	var held []*attempt
	for _, a := range l.known {
		if a.phase != phaseEnded {
			held = append(held, a)
		}
	}
	slices.SortFunc(held, func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.task, b.task), cmp.Compare(a.attempt, b.attempt))
	})
	return held
}

func (l *ledger) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *ledger) signalMoved() {
	if !l.draining {
		return
	}
	select {
	case l.moved <- struct{}{}:
	default:
	}
}
