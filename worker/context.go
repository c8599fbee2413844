package worker

import (
	"context"
	"sync"
	"time"
)

// attemptContext is the context of one attempt. The inner context, with a timer
// and a parent, is created on first use: most short handlers never use it, and
// it would be most of their cost.
type attemptContext struct {
	base     context.Context //nolint:containedctx // this is a context
	deadline time.Time       // zero = none
	limit    time.Duration   // from the start to the deadline
	task     *Task           // of a handler; written before that is called

	mu     sync.Mutex      // guards the rest; never held while a context is cancelled
	inner  context.Context //nolint:containedctx // nil before first use
	cancel context.CancelCauseFunc
	cause  error // of an end before first use
}

// start makes the attempt running, with a context that ends at its timeout.
func (a *attempt) start(base context.Context, now time.Time) {
	a.phase, a.started, a.lastProgress = phaseRunning, now, now
	a.run = new(execution)
	a.ctx = &a.run.ctx
	a.ctx.base = base
	if limit := time.Duration(a.policy.GetTimeoutMs()) * time.Millisecond; limit > 0 {
		a.ctx.limit, a.ctx.deadline = limit, now.Add(limit)
	}
}

// get returns the inner context.
func (c *attemptContext) get() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		return c.inner
	}
	outer, release := c.base, context.CancelFunc(func() {})
	if !c.deadline.IsZero() {
		outer, release = context.WithDeadlineCause(c.base, c.deadline, c.timedOut())
	}
	inner, cancel := context.WithCancelCause(outer)
	c.inner = inner
	c.cancel = func(cause error) { cancel(cause); release() }
	if c.cause != nil {
		c.cancel(c.cause)
	}
	return inner
}

func (c *attemptContext) timedOut() error { return &timeoutError{what: "ran for", limit: c.limit} }

// Deadline returns when the attempt times out.
func (c *attemptContext) Deadline() (deadline time.Time, ok bool) {
	return c.deadline, !c.deadline.IsZero()
}

// Done is closed when the attempt must end.
func (c *attemptContext) Done() <-chan struct{} { return c.get().Done() }

// Err is nil until the attempt must end.
func (c *attemptContext) Err() error { return c.get().Err() } //nolint:wrapcheck // the interface's own errors

// Value returns the values of the worker's context, and makes context.Cause
// work.
func (c *attemptContext) Value(key any) any {
	if key == (taskKey{}) {
		if c.task == nil {
			return nil
		}
		return c.task
	}
	return c.get().Value(key)
}

// end ends the context; the first cause counts. It is called with nil after the
// attempt has ended, to release the context's resources.
func (c *attemptContext) end(cause error) {
	c.mu.Lock()
	if c.cause == nil {
		c.cause = cause
	}
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// causeAt returns why the context has ended by now, or nil.
func (c *attemptContext) causeAt(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.inner != nil:
		return context.Cause(c.inner)
	case c.cause != nil:
		return c.cause
	case !c.deadline.IsZero() && !now.Before(c.deadline):
		return c.timedOut()
	default:
		return nil
	}
}
