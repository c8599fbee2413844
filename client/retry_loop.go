package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Delays between rounds. The first is short because most elections are.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// waitingDelay is after which time Config.Waiting learns of a call that is not taken. Elections
// end sooner.
const waitingDelay = 3 * time.Second

// slowerAtMost is how many times as long as the round before the next one may take.
const slowerAtMost = 4

// faultTimeout is how long addresses that don't respond are tried if all others have a
// fault that stays. An election or a restart ends sooner.
const faultTimeout = 3 * time.Second

// errTimeout is the cause of a retryLoop's context after no coordinator has
// taken the call for Config.Timeout.
var errTimeout = errors.New("client: deadline exceeded")

// A retryLoop is the state of one operation across coordinators and rounds. It
// belongs to the goroutine that called do.
type retryLoop struct {
	cancel   context.CancelCauseFunc
	timeout  time.Duration
	timer    *time.Timer // fires after timeout; stopped while a stream is connected
	deadline time.Time   // when timer fires, unless it is stopped

	op         operation
	limit      time.Duration // of the next attempt
	backoff    time.Duration // next delay, before jitter
	minBackoff time.Duration // that a coordinator requested
	took       time.Duration // by the last round
	connected  bool          // the stream of the current attempt has received a message
	unknown    bool          // some attempt may have had its effect
	fullAt     string        // address of the last coordinator that answered, if the cluster is overloaded
	last       map[string]string
	foreign    map[string]bool // addresses in last that belong to another cluster
	answered   map[string]bool // addresses in last that did not take the call
	waiting    func(text string)
	reported   bool // to waiting
	began      time.Time
	// Of the addresses of the current round: how many were tried, how many have a fault
	// that stays, and of which kind, and whether a coordinator responded that may take
	// the call.
	tried, faulty int
	fault         error
	reached       bool
}

// newRetryLoop returns a loop and its context, which ends with parent or after
// the timeout. The caller must call end.
func newRetryLoop(parent context.Context, timeout time.Duration, op operation) (context.Context, *retryLoop) {
	ctx, cancel := context.WithCancelCause(parent)
	return ctx, &retryLoop{
		cancel: cancel, timeout: timeout, deadline: time.Now().Add(timeout),
		timer: time.AfterFunc(timeout, func() { cancel(errTimeout) }),
		began: time.Now(), op: op, limit: op.timeout, backoff: minPause,
		last: make(map[string]string), foreign: make(map[string]bool), answered: make(map[string]bool),
	}
}

func (w *retryLoop) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// noteConnected stops the timeout while a stream is connected.
func (w *retryLoop) noteConnected() {
	if !w.connected {
		w.connected = true
		w.timer.Stop()
		w.backoff = minPause
		clear(w.last)
		clear(w.foreign)
		clear(w.answered)
	}
}

// noteDisconnected restarts the timeout after a stream has ended.
func (w *retryLoop) noteDisconnected() {
	if w.connected {
		w.timer.Reset(w.timeout)
		w.deadline = time.Now().Add(w.timeout)
		w.reported = false
	}
}

// beginRound starts counting for hopeless.
func (w *retryLoop) beginRound() { w.tried, w.faulty, w.fault, w.reached = 0, 0, nil, false }

// hopeless reports whether the loop should end after this round: no coordinator can be
// used, and another round would not change that.
func (w *retryLoop) hopeless() bool {
	return w.faulty > 0 && !w.reached && (w.faulty == w.tried || time.Since(w.began) > faultTimeout)
}

// full reports whether the cluster was overloaded at the last attempt that reached it.
func (w *retryLoop) full() bool { return w.fullAt != "" }

// note records the error at addr for the final error.
func (w *retryLoop) note(addr string, j classifiedError) {
	w.last[addr] = j.message
	w.tried++
	if j.fault != nil {
		w.faulty++
		w.fault = worseFault(w.fault, j.fault)
	} else if !j.unsent && j.next != tryOwn && j.next != tryLeader {
		w.reached = true
	}
	w.answered[addr] = !j.unsent && (j.next == tryLeader || j.next == retryLater)
	delete(w.foreign, addr)
	if j.next == tryOwn {
		w.foreign[addr] = true
	}
	w.unknown = w.unknown || j.unknown
	switch {
	case j.full:
		w.fullAt = addr
	case !j.unsent || w.fullAt == addr:
		w.fullAt = "" // an unreachable address does not change what the others reported
	}
	w.minBackoff = max(w.minBackoff, j.pause)
}

// worseFault returns the fault of two that the caller can do less about: a coordinator that
// is not trusted by any clock, then one that is not trusted by this machine's.
func worseFault(a, b error) error {
	if errors.Is(a, ErrClock) && errors.Is(b, ErrUntrusted) || !errors.Is(a, ErrUntrusted) {
		return b
	}
	return a
}

// noteInterrupted records an attempt that ended with the loop. Its coordinator
// may have taken the call.
func (w *retryLoop) noteInterrupted(j classifiedError) { w.unknown = w.unknown || j.unknown }

// pause waits before the next round: half to one and a half times the backoff,
// which doubles while the cluster is overloaded. While no leader is known it
// grows by a quarter, so that the caller waits for at most a quarter longer
// than the election takes. It reports false if the loop ended.
//
// A cluster that is overloaded has not taken the call. Another attempt that the timeout
// ends would make that unknown, so it is not begun if it would hardly end before.
func (w *retryLoop) pause(ctx context.Context) bool {
	d := max(w.backoff/2+rand.N(w.backoff), min(w.minBackoff, maxPause*5)) //nolint:gosec // spreads clients; not a secret
	longer := w.backoff / 4
	if w.full() {
		longer = w.backoff
	}
	w.backoff, w.minBackoff = min(w.backoff+longer, maxPause), 0
	if left := time.Until(w.deadline) - d; w.full() && !w.unknown && left <= min(slowerAtMost*w.took, w.timeout/4) {
		w.report(waitingDelay)
		<-ctx.Done()
		return false
	}
	w.report(d)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// report reports a call that will not have been taken for waitingDelay after another pause.
func (w *retryLoop) report(pause time.Duration) {
	left := time.Until(w.deadline)
	if w.waiting == nil || w.reported || w.timeout-left+pause < waitingDelay {
		return
	}
	w.reported = true
	what := "no coordinator takes the call"
	if w.full() {
		what = "cluster busy"
	}
	w.waiting(fmt.Sprintf("%s: %s, retrying for up to %s: %s", w.op.name, what, w.timeout, strings.Join(w.reasons(), "; ")))
}

// hasAnswered reports whether a coordinator answered last that did not take the call.
func (w *retryLoop) hasAnswered() bool {
	for _, answered := range w.answered {
		if answered {
			return true
		}
	}
	return false
}

// failed returns the error of an attempt that ends the loop.
func (w *retryLoop) failed(j classifiedError) error {
	if j.local != nil {
		return fmt.Errorf("%s: %w", w.op.name, j.local)
	}
	return &Error{Kind: j.kind, Message: w.op.name + ": " + j.message, Faults: j.faults, Unknown: j.unknown}
}

// timedOut returns the error of a loop whose timeout expired or whose caller
// has gone.
func (w *retryLoop) timedOut(parent context.Context) error {
	if parent.Err() != nil {
		return fmt.Errorf("%s: %w", w.op.name, context.Cause(parent))
	}
	if len(w.foreign) > 0 && len(w.foreign) == len(w.last) {
		return w.allForeign()
	}
	why := w.reasons()
	if len(why) == 0 {
		why = []string{"no response"}
	}
	if len(w.foreign) > 0 {
		why = append(why, foreignAdvice)
	}
	kind, what := ErrUnreachable, "no coordinator responded within"
	if w.hasAnswered() {
		what = "no coordinator took the call within"
	}
	if w.full() && !w.unknown {
		kind, what = ErrBusy, "cluster busy for"
	}
	return &Error{
		Kind:    kind,
		Message: fmt.Sprintf("%s: %s %s: %s", w.op.name, what, w.timeout, strings.Join(why, "; ")),
		Unknown: w.unknown, Answered: kind == ErrUnreachable && w.hasAnswered(), //nolint:errorlint // the kind itself
		Key: w.op.key,
	}
}

// reasons returns the last error of each address.
func (w *retryLoop) reasons() []string {
	var why []string
	for addr, message := range w.last {
		why = append(why, addr+": "+message)
	}
	slices.Sort(why)
	return why
}

// faulted returns the error of a loop that hopeless has ended. Unknown is set only if an
// earlier attempt may have had its effect.
func (w *retryLoop) faulted() error {
	return &Error{
		Kind: w.fault, Message: fmt.Sprintf("%s: %s", w.op.name, strings.Join(w.reasons(), "; ")),
		Unknown: w.unknown, Key: w.op.key,
	}
}

// allForeign returns the error of a loop in which all addresses belong to other
// clusters. Unknown is set only if an earlier attempt may have had its effect.
func (w *retryLoop) allForeign() error {
	return &Error{
		Kind:    ErrForeignCluster,
		Message: fmt.Sprintf("%s: no coordinator of this cluster: %s: %s", w.op.name, strings.Join(w.reasons(), "; "), foreignAdvice),
		Unknown: w.unknown, Key: w.op.key,
	}
}
