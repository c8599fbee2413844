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

// Pauses between rounds: the first is short because most elections are.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// errPatience is the cause of a walk's context once nobody took the call for
// Config.Timeout.
var errTimeout = errors.New("client: nobody took the call in time")

// A walk is one operation's way from coordinator to coordinator. It belongs to
// the goroutine that called do; heard is called by that goroutine too.
type retryLoop struct {
	cancel  context.CancelCauseFunc
	timeout time.Duration
	timer   *time.Timer // fires when patience is used up; stopped while a stream is up

	op         operation
	limit      time.Duration // of the next try
	backoff    time.Duration // of the next pause, before jitter
	minBackoff time.Duration // what the leader asked for
	connected  bool          // the present try heard from its coordinator
	unknown    bool          // some try may have had its effect
	full       bool          // so said the last try
	last       map[string]string
}

// newWalk returns a walk and its context, which is done when patience is used
// up or parent is done. The caller ends it.
func newRetryLoop(parent context.Context, timeout time.Duration, op operation) (context.Context, *retryLoop) {
	ctx, cancel := context.WithCancelCause(parent)
	return ctx, &retryLoop{
		cancel: cancel, timeout: timeout,
		timer: time.AfterFunc(timeout, func() { cancel(errTimeout) }),
		op:    op, limit: op.timeout, backoff: minPause,
		last: make(map[string]string),
	}
}

func (w *retryLoop) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// heard stops the clock while a stream is up.
func (w *retryLoop) noteConnected() {
	if !w.connected {
		w.connected = true
		w.timer.Stop()
		w.backoff = minPause
		clear(w.last)
	}
}

// broken starts the clock anew after a stream.
func (w *retryLoop) noteDisconnected() {
	if w.connected {
		w.timer.Reset(w.timeout)
	}
}

// note remembers what happened at addr, for the error at the end.
func (w *retryLoop) note(addr string, j classifiedError) {
	w.last[addr] = j.message
	w.unknown = w.unknown || j.unknown
	w.full = j.full
	w.minBackoff = max(w.minBackoff, j.pause)
}

// cutOff remembers a try that ended because the walk did: its coordinator may
// have had the call already.
func (w *retryLoop) noteInterrupted(j classifiedError) { w.unknown = w.unknown || j.unknown }

// pause waits before the next round: from half to one and a half of a time that
// grows. It doubles while something is full. While nobody leads it grows by a quarter: the
// caller waits for about a quarter longer than that. It tells false if the walk ended
// meanwhile.
func (w *retryLoop) pause(ctx context.Context) bool {
	d := max(w.backoff/2+rand.N(w.backoff), min(w.minBackoff, maxPause*5)) //nolint:gosec // spreads clients, keeps no secret
	longer := w.backoff / 4
	if w.full {
		longer = w.backoff
	}
	w.backoff, w.minBackoff = min(w.backoff+longer, maxPause), 0
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// failed is the error of a try that ends the walk.
func (w *retryLoop) failed(j classifiedError) error {
	if j.local != nil {
		return fmt.Errorf("%s: %w", w.op.name, j.local)
	}
	return &Error{Kind: j.kind, Message: w.op.name + ": " + j.message, Faults: j.faults, Unknown: j.unknown}
}

// gaveUp is the error of a walk that ran out of time, or whose caller left.
func (w *retryLoop) timedOut(parent context.Context) error {
	if parent.Err() != nil {
		return fmt.Errorf("%s: %w", w.op.name, context.Cause(parent))
	}
	var why []string
	for addr, message := range w.last {
		why = append(why, addr+": "+message)
	}
	slices.Sort(why)
	if len(why) == 0 {
		why = []string{"no answer"}
	}
	kind, what := ErrUnreachable, "no coordinator took it within"
	if w.full && !w.unknown {
		kind, what = ErrBusy, "the cluster was busy for"
	}
	return &Error{
		Kind:    kind,
		Message: fmt.Sprintf("%s: %s %s: %s", w.op.name, what, w.timeout, strings.Join(why, "; ")),
		Unknown: w.unknown,
		Key:     w.op.key,
	}
}
