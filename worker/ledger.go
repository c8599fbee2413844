package worker

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/dtask/dtask/internal/columns"
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
	starting  bool       // one of them has not asked for its first attempt yet
	running   int        // attempts whose executor runs
	draining  bool
	cordoned  bool // a person drains this worker: nothing begins
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

// accept takes in the assignments of a leader of this epoch. One that is known
// already changes nothing. A malformed message is refused whole.
func (l *ledger) accept(m *dtaskv1.Assignments, epoch uint64) error {
	rows, err := columns.ReadAssignments(m)
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	attempts := make([]attempt, rows.Left())
	for i := range attempts {
		a := &attempts[i]
		a.given = rows.Next()
		a.shared = m.GetContexts()[a.given.Context]
		a.policy = a.shared.GetPolicies()[a.given.Policy]
		a.ref = ref{job: a.shared.GetJob(), task: a.given.Task, attempt: a.given.Attempt}
		a.token = epoch<<32 | uint64(a.given.Attempt)
		if c := a.given.Particular.GetCheckpoint(); c.GetForm() == dataForm {
			a.lastData = c.GetData()
		}
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
		case l.draining || l.cordoned:
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

// spawnLocked starts a slot goroutine if the queue can use one more. It starts the
// next itself once it runs: attempts that end at once are executed one after
// another by few, and those that take their time get one each.
func (l *ledger) spawnLocked() {
	if l.starting || l.active >= l.slots || len(l.queue) == 0 {
		return
	}
	l.active++
	l.starting = true
	l.run()
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
	} else {
		l.starting = false
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
		l.spawnLocked()
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
	a.ctx.end(nil)
	l.endLocked(a, outcome)
	l.outcomes[len(l.outcomes)-1].TookMS = uint32(min(now.Sub(a.started).Milliseconds(), math.MaxUint32)) //nolint:gosec // bounded, and not negative
}

// endLocked gives an attempt its outcome.
func (l *ledger) endLocked(a *attempt, outcome *dtaskv1.Outcome) {
	a.phase = phaseEnded
	a.given, a.run, a.shared, a.policy, a.body, a.item = columns.Assignment{}, nil, nil, nil, nil, nil
	a.ctx, a.text = nil, ""
	l.outcomes = append(l.outcomes, row(a.ref, outcome))
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
	l.handBackLocked()
	l.signal()
	l.signalMoved()
}

// cordon hands back what has not begun and all that comes, until it is lifted.
func (l *ledger) cordon(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cordoned = on
	if on {
		l.handBackLocked()
	}
}

// giveBack hands back those of these attempts that have not begun: another
// worker begins them sooner. Nobody begins them here any more.
func (l *ledger) giveBack(list []*dtaskv1.AttemptRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range list {
		if a := l.known[refOf(m)]; a != nil && a.phase == phaseReady && !a.exclusive {
			l.endLocked(a, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, Error: "another worker has a free slot"})
		}
	}
}

// handBackLocked ends what has not begun.
func (l *ledger) handBackLocked() {
	for _, a := range l.heldLocked() {
		if a.phase == phaseAsking || a.phase == phaseReady {
			l.stopLocked(a, ErrDraining)
		}
	}
	l.queue = nil
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
