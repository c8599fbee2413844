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

// attemptTable holds every attempt that was received and whose outcome is not
// yet acknowledged, the attempts that wait for a slot, and the reports that
// wait to be sent. It outlives sessions.
//
// Invariant: an attempt in known is either held (its phase is before
// phaseEnded) or has exactly one outcome in outcomes.
type attemptTable struct {
	slots      int
	base       context.Context //nolint:containedctx // parent of all attempts' contexts; never done; set before the first attempt arrives
	run        func()          // starts a goroutine that calls next until it returns nil; set with base
	confirmed  *confirmations
	leaseEnded func() bool   // whether the lease has ended; called with the lock held
	wake       chan struct{} // size 1: a token means that there is something to send
	idle       chan struct{} // size 1: a token means, while draining, that running or outcomes became empty

	mu              sync.Mutex // guards the rest, and the attempts
	known           map[ref]*attempt
	queue           readyQueue // ready attempts, and some that ended while they waited
	active          int        // slot goroutines, at most slots
	starting        bool       // one of them has not called next yet
	running         int        // attempts whose executor runs
	draining        bool       // this worker stops
	cordoned        bool       // the operator drains this worker: nothing starts
	connected       bool       // a session is open
	goodbyeAnswered bool       // the session's leader knows that this worker leaves
	stats           Stats
	outbox
}

func newAttemptTable(slots int) *attemptTable {
	return &attemptTable{
		slots: slots, confirmed: newConfirmations(), leaseEnded: func() bool { return false }, wake: make(chan struct{}, 1), idle: make(chan struct{}, 1),
		known: map[ref]*attempt{}, outbox: outbox{first: 1, saved: map[ref]*attempt{}},
	}
}

// accept adds the assignments of a leader of this epoch, except those that are
// known. It rejects a malformed message as a whole.
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
		a.limited = len(a.policy.GetUses()) > 0 && !a.exclusive
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
		case a.limited && t.leaseEnded():
			t.endLocked(a, endedBy(errLimitedLeaseEnded))
		case a.exclusive:
			a.phase = phaseRequesting
			t.requesting = append(t.requesting, a)
			t.requestsDue = true
			signal(t.wake)
		default:
			a.phase = phaseReady
			t.queue.push(a)
		}
	}
	t.spawnLocked()
	return nil
}

// grant makes an at-most-once attempt ready, ahead of those of its priority.
func (t *attemptTable) grant(r ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.known[r]
	if a == nil || a.phase != phaseRequesting {
		return
	}
	t.dropRequestLocked(a)
	a.phase = phaseReady
	t.queue.pushGranted(a)
	t.spawnLocked()
}

func (t *attemptTable) dropRequestLocked(a *attempt) {
	t.requesting = slices.DeleteFunc(t.requesting, func(b *attempt) bool { return b == a })
}

// spawnLocked starts a slot goroutine if the queue can use one more. That one
// starts the next when it runs: a few goroutines execute short attempts one
// after another, and long attempts get a goroutine each.
func (t *attemptTable) spawnLocked() {
	if t.starting || t.active >= t.slots || t.queue.len() == 0 {
		return
	}
	t.active++
	t.starting = true
	t.run()
}

// next records the outcome of the attempt that its caller has executed, if any,
// and returns the next one to execute, or nil if the caller's goroutine must
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
	for t.queue.len() > 0 {
		if !t.confirmed.fresh(now) {
			t.requestConfirmation()
			t.active--
			return nil // the next confirmation starts a goroutine again
		}
		a := t.queue.pop()
		if a == nil {
			break // all were stopped while they waited
		}
		if a.limited && t.leaseEnded() { // this process was paused
			t.endLocked(a, endedBy(errLimitedLeaseEnded))
			continue
		}
		a.start(t.base, now)
		t.running++
		t.noteStartedLocked(a)
		t.spawnLocked()
		return a
	}
	t.active--
	t.signalIdle()
	return nil
}

// confirm records that the leader answered a heartbeat that was sent at this
// time: ready attempts may start. What the leader stopped before its answer must
// be stopped already.
func (t *attemptTable) confirm(sent time.Time, freshness time.Duration) {
	t.confirmed.renew(sent, freshness)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spawnLocked()
}

// requestConfirmation makes the session send a heartbeat, because a start waits
// for its answer.
func (t *attemptTable) requestConfirmation() {
	t.confirmed.requested.Store(true)
	signal(t.wake)
}

// begin is called immediately before the handler or command of an attempt
// starts: the preparation, or a pause of this process, may have taken any time.
// It waits for a fresh confirmation, and returns false if the attempt was ended
// meanwhile and must not start. The further items of an array belong to an
// attempt that has begun.
func (t *attemptTable) begin(a *attempt) bool {
	if !a.begun {
		a.begun = t.confirmed.fresh(time.Now()) || t.confirmed.awaitFresh(a.ctx, t.requestConfirmation)
	}
	return a.begun
}

// completeLocked decides how an executed attempt ended: a stop that came before
// the commit overrides the outcome of the executor, unless it has not begun.
func (t *attemptTable) completeLocked(a *attempt, outcome *dtaskv1.Outcome, now time.Time) {
	if a.phase != phaseCommitted && outcome.GetKind() != dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED {
		if cause := a.ctx.causeAt(now); cause != nil {
			ended := endedBy(cause)
			ended.ExitCode, ended.Signal = outcome.GetExitCode(), outcome.GetSignal()
			outcome = ended
		}
	}
	a.ctx.end(nil)
	t.endLocked(a, outcome)
	t.outcomes[len(t.outcomes)-1].TookMS = milliseconds(now.Sub(a.started))
}

// milliseconds returns a duration as reports have it.
func milliseconds(d time.Duration) uint32 {
	return uint32(max(0, min(d.Milliseconds(), math.MaxUint32))) //nolint:gosec // bounded
}

// endLocked gives an attempt its outcome.
func (t *attemptTable) endLocked(a *attempt, outcome *dtaskv1.Outcome) {
	a.phase = phaseEnded
	a.assignment, a.run, a.jobContext, a.policy, a.body, a.item = columns.Assignment{}, nil, nil, nil, nil, nil
	a.ctx, a.progressText = nil, ""
	if succeeded(outcome) && (a.saves > 0 || a.checkpointer.Load() != nil) {
		t.saved[a.ref] = a
	}
	t.outcomes = append(t.outcomes, outcomeRow(a.ref, outcome))
	t.stats.count(outcome.GetKind())
	t.outcomeAddedLocked(succeeded(outcome))
}

// commit makes the success of an attempt final, so that its output can be
// published. It returns false if the attempt has been ended.
func (t *attemptTable) commit(a *attempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.phase != phaseRunning || a.ctx.causeAt(time.Now()) != nil {
		return false
	}
	a.phase = phaseCommitted
	return true
}

// stop ends an attempt, and reports whether it was held. An attempt that has
// not started gets its outcome immediately.
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

// stopLocked returns the context to end without holding the lock, or nil.
func (t *attemptTable) stopLocked(a *attempt, cause error) *attemptContext {
	switch a.phase {
	case phaseRequesting:
		t.dropRequestLocked(a)
		t.endLocked(a, endedBy(cause))
	case phaseReady:
		t.endLocked(a, endedBy(cause))
	case phaseRunning:
		return a.ctx
	case phaseCommitted, phaseEnded:
	}
	return nil
}

// stopRunning ends all running attempts.
func (t *attemptTable) stopRunning(cause error) {
	t.endRunning(func(*attempt) error { return cause })
}

// stopLeased ends the attempts that must not run without a lease: at-most-once ones, and
// those that count towards a named limit.
func (t *attemptTable) stopLeased() {
	t.endRunning(func(a *attempt) error {
		switch {
		case a.exclusive:
			return ErrLeaseEnded
		case a.limited:
			return errLimitedLeaseEnded
		}
		return nil
	})
}

// endRunning ends the running attempts for which cause is not nil.
func (t *attemptTable) endRunning(cause func(*attempt) error) {
	t.mu.Lock()
	ends := make(map[*attemptContext]error)
	for _, a := range t.known {
		if a.phase == phaseRunning {
			if err := cause(a); err != nil {
				ends[a.ctx] = err
			}
		}
	}
	t.mu.Unlock()
	for ctx, err := range ends {
		ctx.end(err)
	}
}

// drain releases all attempts that have not started, and all that still arrive.
func (t *attemptTable) drain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draining = true
	t.releaseUnstartedLocked()
	signal(t.wake)
	t.signalIdle()
}

// cordon releases all attempts that have not started, and all that arrive until
// it is called with false.
func (t *attemptTable) cordon(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cordoned = on
	if on {
		t.releaseUnstartedLocked()
	}
}

// steal releases those of the given attempts that have not started, because
// another worker can start them sooner. They never start here.
func (t *attemptTable) steal(list []*dtaskv1.AttemptRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range list {
		if a := t.known[refOf(m)]; a != nil && a.phase == phaseReady && !a.exclusive {
			t.endLocked(a, released("another worker has a free slot"))
		}
	}
}

// releaseUnstartedLocked ends all attempts that have not started.
func (t *attemptTable) releaseUnstartedLocked() {
	for _, a := range t.heldLocked() {
		if a.phase == phaseRequesting || a.phase == phaseReady {
			t.stopLocked(a, ErrDraining)
		}
	}
	t.queue.clear()
}

// counts returns how many attempts run, and how many outcomes are not
// acknowledged.
func (t *attemptTable) counts() (running, unacked int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running, len(t.outcomes)
}

// ended reports whether an attempt will write nothing more.
func (t *attemptTable) ended(r ref) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.known[r]
	return a == nil || a.phase == phaseEnded
}

// heldLocked returns the attempts without an outcome, in order.
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

func (t *attemptTable) signalIdle() {
	if t.draining {
		signal(t.idle)
	}
}
