package session

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
)

const (
	// maxAdmissionWait is how long a session may wait for its turn. A worker
	// whose turn is later is rejected with a retry delay. It is shorter than
	// the workers' liveness timeout.
	maxAdmissionWait = 500 * time.Millisecond
	// maxOpening bounds the sessions that are being opened concurrently: enough
	// for one log entry to hold many of them, and few enough that all of them,
	// and the work that waits behind them, get CPU time soon.
	maxOpening = 256
	// helloGrace is how long a session without a hello counts as being opened.
	helloGrace = 500 * time.Millisecond
	// rateWindow is the time over which the rate of openings is measured.
	rateWindow = 100 * time.Millisecond
	// maxInterval bounds the measured interval between two openings.
	maxInterval = 20 * time.Millisecond
	// maxRetryDelay bounds the delay after which a rejected worker may retry.
	maxRetryDelay = 10 * time.Second
)

// admission admits sessions at a bounded rate and with bounded concurrency, so
// that thousands of workers that reconnect simultaneously don't starve the
// leader: Go schedules runnable goroutines in turn, so that thousands of
// sessions that are being opened would delay the log.
//
// Sessions whose turn is near wait for it. Each of the others gets a retry time
// of its own, spaced at the measured rate of openings, so that an overloaded
// leader gets as many requests as it can answer.
type admission struct {
	step  time.Duration // minimum interval between two turns
	burst time.Duration // how many unused turns are kept

	mu        sync.Mutex // guards the rest
	next      time.Time  // the next turn
	nextRetry time.Time  // when the next rejected worker may retry

	opening  int           // sessions that had their turn and are not open yet
	interval time.Duration // measured between two openings while workers are rejected; otherwise step
	since    time.Time     // start of the current measurement
	opened   int           // sessions opened since then
	rejected bool          // any session was rejected since then
}

func newAdmission(rate int) *admission {
	step := time.Second / time.Duration(rate)
	return &admission{step: step, interval: step, burst: step * time.Duration(max(16, rate/10))}
}

// take takes the next turn and returns the time until then. If the turn is not
// near, it returns false and the delay after which to retry. release must
// follow a turn.
func (a *admission) take(now time.Time) (wait time.Duration, admitted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if earliest := now.Add(a.step - a.burst); a.next.Before(earliest) {
		a.next = earliest
	}
	if wait = a.next.Sub(now); wait <= maxAdmissionWait && a.opening < maxOpening {
		if a.opening == 0 {
			a.measure(now)
		}
		a.opening++
		a.next = a.next.Add(a.step)
		return max(wait, 0), true
	}
	a.rejected = true
	earliest := now.Add(time.Duration(a.opening) * a.interval)
	if earliest.Before(a.next) {
		earliest = a.next
	}
	if a.nextRetry.Before(earliest) {
		a.nextRetry = earliest
	}
	if wait = a.nextRetry.Sub(now); wait > maxRetryDelay {
		return maxRetryDelay/2 + rand.N(maxRetryDelay/2), false //nolint:gosec // spreads reconnects, guards nothing
	}
	a.nextRetry = a.nextRetry.Add(a.interval)
	return wait, false
}

// release ends a turn: the session is open, or was refused.
func (a *admission) release(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opening--
	a.opened++
	if took := now.Sub(a.since); took >= rateWindow {
		a.interval = a.step
		if a.rejected {
			a.interval = min(max(took/time.Duration(a.opened), a.step), maxInterval)
		}
		a.measure(now)
	}
}

// measure starts a measurement of the rate of openings.
func (a *admission) measure(now time.Time) { a.since, a.opened, a.rejected = now, 0, false }

// turn is the permission to open one session.
type turn struct {
	a      *admission
	at     time.Time // when it starts
	ended  atomic.Bool
	unused *time.Timer // ends the turn of a stream that opens no session; nil for a session's own turn
}

type turnKey struct{}

// turnOf returns the turn that Enter put into ctx, or nil.
func turnOf(ctx context.Context) *turn {
	t, _ := ctx.Value(turnKey{}).(*turn)
	return t
}

// enter returns a turn, or an error with the delay after which to retry. It
// does not wait.
func (a *admission) enter() (*turn, error) {
	now := time.Now()
	wait, admitted := a.take(now)
	if !admitted {
		spread := rand.N(50 * time.Millisecond) //nolint:gosec // spreads reconnects, guards nothing
		return nil, &sequencer.BusyError{What: "many workers are connecting", RetryAfter: wait + spread}
	}
	return &turn{a: a, at: now.Add(wait)}, nil
}

// end ends the turn, once.
func (t *turn) end() {
	if !t.ended.Swap(true) {
		t.a.release(time.Now())
	}
}

// wait waits until the turn starts, or returns why ctx ended.
func (t *turn) wait(ctx context.Context) error {
	wait := time.Until(t.at)
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ending(ctx)
	}
}
