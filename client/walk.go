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
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// errPatience is the cause of a walk's context once nobody took the call for
// Config.Timeout.
var errPatience = errors.New("client: nobody took the call in time")

// A walk is one operation's way from coordinator to coordinator. It belongs to
// the goroutine that called do; heard is called by that goroutine too.
type walk struct {
	cancel  context.CancelCauseFunc
	timeout time.Duration
	timer   *time.Timer // fires when patience is used up; stopped while a stream is up

	op       operation
	limit    time.Duration // of the next try
	wait     time.Duration // of the next pause, before jitter
	floor    time.Duration // what the leader asked for
	streamed bool          // the present try heard from its coordinator
	unknown  bool          // some try may have had its effect
	full     bool          // so said the last try
	last     map[string]string
}

// newWalk returns a walk and its context, which is done when patience is used
// up or parent is done. The caller ends it.
func newWalk(parent context.Context, timeout time.Duration, op operation) (context.Context, *walk) {
	ctx, cancel := context.WithCancelCause(parent)
	return ctx, &walk{
		cancel: cancel, timeout: timeout,
		timer: time.AfterFunc(timeout, func() { cancel(errPatience) }),
		op:    op, limit: op.limit, wait: firstPause,
		last: make(map[string]string),
	}
}

func (w *walk) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// heard stops the clock while a stream is up.
func (w *walk) heard() {
	if !w.streamed {
		w.streamed = true
		w.timer.Stop()
		w.wait = firstPause
		clear(w.last)
	}
}

// broken starts the clock anew after a stream.
func (w *walk) broken() {
	if w.streamed {
		w.timer.Reset(w.timeout)
	}
}

// note remembers what happened at addr, for the error at the end.
func (w *walk) note(addr string, j judgement) {
	w.last[addr] = j.message
	w.unknown = w.unknown || j.unknown
	w.full = j.full
	w.floor = max(w.floor, j.pause)
}

// cutOff remembers a try that ended because the walk did: its coordinator may
// have had the call already.
func (w *walk) cutOff(j judgement) { w.unknown = w.unknown || j.unknown }

// pause waits before the next round: from half to one and a half of a time that
// grows. It doubles while something is full. While nobody leads it grows by a quarter: the
// caller waits for about a quarter longer than that. It tells false if the walk ended
// meanwhile.
func (w *walk) pause(ctx context.Context) bool {
	d := max(w.wait/2+rand.N(w.wait), min(w.floor, maxPause*5)) //nolint:gosec // spreads clients, keeps no secret
	longer := w.wait / 4
	if w.full {
		longer = w.wait
	}
	w.wait, w.floor = min(w.wait+longer, maxPause), 0
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
func (w *walk) failed(j judgement) error {
	if j.local != nil {
		return fmt.Errorf("%s: %w", w.op.name, j.local)
	}
	return &Error{Kind: j.kind, Message: w.op.name + ": " + j.message, Faults: j.faults, Unknown: j.unknown}
}

// gaveUp is the error of a walk that ran out of time, or whose caller left.
func (w *walk) gaveUp(parent context.Context) error {
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
