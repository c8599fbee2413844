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
type attemptTable struct {
	slots int
	base  context.Context //nolint:containedctx // parent of every attempt's context; never done; set before any attempt comes
	run   func()          // starts a goroutine that calls next until it gives nothing; set as base is
	lease *lease
	wake  chan struct{} // sent by whoever adds something to send; size 1, since one signal covers all
	idle  chan struct{} // sent while draining when running or outcomes became empty; size 1 as above

	mu              sync.Mutex // guards all below, and the attempts
	known           map[ref]*attempt
	queue           []*attempt // ready ones; may hold some that ended meanwhile
	active          int        // slot goroutines, at most slots
	starting        bool       // one of them has not asked for its first attempt yet
	running         int        // attempts whose executor runs
	draining        bool
	cordoned        bool // a person drains this worker: nothing begins
	connected       bool // a session is open
	goodbyeAnswered bool // its leader knows that this worker leaves
	stats           Stats
	outbox
}

func newAttemptTable(slots int, lease *lease) *attemptTable {
	t := &attemptTable{
		slots: slots, lease: lease,
		wake: make(chan struct{}, 1), idle: make(chan struct{}, 1),
		known: map[ref]*attempt{},
	}
	t.first = 1
	return t
}

// accept takes in the assignments of a leader of this epoch. One that is known
// already changes nothing. A malformed message is refused whole.
func (t *attemptTable) accept(m *dtaskv1.Assignments, epoch uint64) error {
	rows, err := columns.ReadAssignments(m)
	if err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	attempts := make([]attempt, rows.Left())
	for i := range attempts {
		a := &attempts[i]
		a.assignment = rows.Next()
		a.jobContext = m.GetContexts()[a.assignment.Context]
		a.policy = a.jobContext.GetPolicies()[a.assignment.Policy]
		a.ref = ref{job: a.jobContext.GetJob(), task: a.assignment.Task, attempt: a.assignment.Attempt}
		a.token = epoch<<32 | uint64(a.assignment.Attempt)
		if c := a.assignment.Extras.GetCheckpoint(); c.GetFormat() == dataFormat {
			a.lastData = c.GetData()
		}
		a.exclusive = a.policy.GetExecution() == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range attempts {
		a := &attempts[i]
		if t.known[a.ref] != nil {
			continue
		}
		t.known[a.ref] = a
		t.stats.Received++
		switch {
		case t.draining || t.cordoned:
			t.endLocked(a, endedBy(ErrDraining))
		case a.exclusive:
			a.phase = phaseRequesting
			t.requesting = append(t.requesting, a)
			t.requestsDue = true
			t.signal()
		default:
			a.phase = phaseReady
			t.queue = append(t.queue, a)
		}
	}
	t.spawnLocked()
	return nil
}

// grant lets an at-most-once attempt begin, ahead of what waits.
func (t *attemptTable) grant(r ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.known[r]
	if a == nil || a.phase != phaseRequesting {
		return
	}
	t.requesting = slices.DeleteFunc(t.requesting, func(b *attempt) bool { return b == a })
	a.phase = phaseReady
	t.queue = slices.Insert(t.queue, 0, a)
	t.spawnLocked()
}

// spawnLocked starts a slot goroutine if the queue can use one more. It starts the
// next itself once it runs: attempts that end at once are executed one after
// another by few, and those that take their time get one each.
func (t *attemptTable) spawnLocked() {
	if t.starting || t.active >= t.slots || len(t.queue) == 0 {
		return
	}
	t.active++
	t.starting = true
	t.run()
}

// next records the outcome of the attempt that its caller has executed, if any,
// and returns the next one to execute, or nil when the caller's goroutine shall
// end.
func (t *attemptTable) next(done *attempt, outcome *dtaskv1.Outcome) *attempt {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if done != nil {
		t.running--
		t.completeLocked(done, outcome, now)
	} else {
		t.starting = false
	}
	for len(t.queue) > 0 {
		a := t.queue[0]
		t.queue[0] = nil
		t.queue = t.queue[1:]
		if a.phase != phaseReady {
			continue // stopped while it waited
		}
		if a.exclusive && !t.lease.valid() {
			t.endLocked(a, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, Error: "lease ended before it began"})
			continue
		}
		a.start(t.base, now)
		t.running++
		t.noteStartedLocked(a)
		t.spawnLocked()
		return a
	}
	t.queue = nil
	t.active--
	t.signalIdle()
	return nil
}

// finishLocked decides how an executed attempt ended: a stop that came before
// the commit wins over whatever the executor says.
func (t *attemptTable) completeLocked(a *attempt, outcome *dtaskv1.Outcome, now time.Time) {
	if a.phase != phaseCommitted {
		if cause := a.ctx.causeAt(now); cause != nil {
			ended := endedBy(cause)
			ended.ExitCode, ended.Signal = outcome.GetExitCode(), outcome.GetSignal()
			outcome = ended
		}
	}
	a.ctx.end(nil)
	t.endLocked(a, outcome)
	t.outcomes[len(t.outcomes)-1].TookMS = uint32(min(now.Sub(a.started).Milliseconds(), math.MaxUint32)) //nolint:gosec // bounded, and not negative
}

// endLocked gives an attempt its outcome.
func (t *attemptTable) endLocked(a *attempt, outcome *dtaskv1.Outcome) {
	a.phase = phaseEnded
	a.assignment, a.run, a.jobContext, a.policy, a.body, a.item = columns.Assignment{}, nil, nil, nil, nil, nil
	a.ctx, a.progressText = nil, ""
	t.outcomes = append(t.outcomes, outcomeRow(a.ref, outcome))
	t.stats.count(outcome.GetKind())
	t.signal()
}

// commit makes the success of an attempt final, so that its output can be
// published. It reports false if the attempt was ended before.
func (t *attemptTable) commit(a *attempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.phase != phaseRunning || a.ctx.causeAt(time.Now()) != nil {
		return false
	}
	a.phase = phaseCommitted
	return true
}

// stop ends an attempt; it reports whether the attempt was held. One that has
// not begun has its outcome at once.
func (t *attemptTable) stop(r ref, cause error) bool {
	t.mu.Lock()
	a := t.known[r]
	if a == nil || a.phase == phaseEnded {
		t.mu.Unlock()
		return false
	}
	ctx := t.stopLocked(a, cause)
	t.mu.Unlock()
	if ctx != nil {
		ctx.end(cause)
	}
	return true
}

// stopLocked returns the context that is left to be ended without the lock, or
// nil.
func (t *attemptTable) stopLocked(a *attempt, cause error) *attemptContext {
	switch a.phase {
	case phaseRequesting:
		t.requesting = slices.DeleteFunc(t.requesting, func(b *attempt) bool { return b == a })
		t.endLocked(a, endedBy(cause))
	case phaseReady:
		t.endLocked(a, endedBy(cause))
	case phaseRunning:
		return a.ctx
	case phaseCommitted, phaseEnded:
	}
	return nil
}

// stopRunning ends running attempts: all, or the exclusive ones.
func (t *attemptTable) stopRunning(cause error, exclusiveOnly bool) {
	t.mu.Lock()
	var contexts []*attemptContext
	for _, a := range t.known {
		if a.phase == phaseRunning && (a.exclusive || !exclusiveOnly) {
			contexts = append(contexts, a.ctx)
		}
	}
	t.mu.Unlock()
	for _, ctx := range contexts {
		ctx.end(cause)
	}
}

// drain takes nothing more and hands back what has not begun.
func (t *attemptTable) drain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draining = true
	t.releaseUnstartedLocked()
	t.signal()
	t.signalIdle()
}

// cordon hands back what has not begun and all that comes, until it is lifted.
func (t *attemptTable) cordon(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cordoned = on
	if on {
		t.releaseUnstartedLocked()
	}
}

// giveBack hands back those of these attempts that have not begun: another
// worker begins them sooner. Nobody begins them here any more.
func (t *attemptTable) steal(list []*dtaskv1.AttemptRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range list {
		if a := t.known[refOf(m)]; a != nil && a.phase == phaseReady && !a.exclusive {
			t.endLocked(a, &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, Error: "another worker has a free slot"})
		}
	}
}

// handBackLocked ends what has not begun.
func (t *attemptTable) releaseUnstartedLocked() {
	for _, a := range t.heldLocked() {
		if a.phase == phaseRequesting || a.phase == phaseReady {
			t.stopLocked(a, ErrDraining)
		}
	}
	t.queue = nil
}

// busy is the number of attempts that run, owed the number of outcomes not yet
// acknowledged.
func (t *attemptTable) busy() (running, owed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running, len(t.outcomes)
}

// ended reports whether nothing more will be written by an attempt.
func (t *attemptTable) ended(r ref) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.known[r]
	return a == nil || a.phase == phaseEnded
}

// heldLocked lists the attempts that have no outcome, in order.
func (t *attemptTable) heldLocked() []*attempt {
	var held []*attempt
	for _, a := range t.known {
		if a.phase != phaseEnded {
			held = append(held, a)
		}
	}
	slices.SortFunc(held, func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.task, b.task), cmp.Compare(a.attempt, b.attempt))
	})
	return held
}

func (t *attemptTable) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *attemptTable) signalIdle() {
	if !t.draining {
		return
	}
	select {
	case t.idle <- struct{}{}:
	default:
	}
}
