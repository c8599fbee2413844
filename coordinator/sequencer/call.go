package sequencer

import (
	"context"
	"errors"

	"github.com/dtask/dtask/fsm"
)

// call is a request with its answer. Every request is one: a new operation of
// the API needs a method that passes a function to do.
type call[R any] struct {
	f      func(b *batch) (R, error)
	answer chan answered[R] // size 1: the caller may have left
}

type answered[R any] struct {
	value R
	err   error
}

// do runs f in the sequencer's goroutine and returns its result after the
// commit of the batch. A *RejectedError of f waits for the commit too: it was
// decided by a view that may never come true. Any other error means that f
// proposed nothing, and is returned immediately.
func do[R any](ctx context.Context, in *inbox, c class, f func(b *batch) (R, error)) (R, error) {
	q := &call[R]{f: f, answer: make(chan answered[R], 1)}
	var none R
	if err := in.put(c, q); err != nil {
		return none, err
	}
	select {
	case r := <-q.answer:
		return r.value, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

func (q *call[R]) refuse(err error) { q.answer <- answered[R]{err: err} }

func (q *call[R]) run(b *batch) bool {
	var r answered[R]
	r.value, r.err = q.f(b)
	if _, rejected := errors.AsType[*RejectedError](r.err); r.err != nil && !rejected {
		q.answer <- r
		return true
	}
	b.then(func(_ uint64, err error) {
		if err != nil {
			r = answered[R]{err: err}
		}
		q.answer <- r
	})
	return true
}

// apply proposes one operation. already reports that the operation found its
// work done: the state rejected it with AlreadyEnded, and isDone accepts the
// current state.
func apply(
	ctx context.Context, in *inbox, c class, op fsm.Op, isDone func(v *fsm.State) bool,
) (already bool, err error) {
	return do(ctx, in, c, func(b *batch) (bool, error) {
		r := b.entry.Do(op)
		return settled(r, r == fsm.AlreadyEnded && isDone != nil && isDone(b.view))
	})
}

// settled returns a *RejectedError unless the reason means that the work is, or
// already was, done.
func settled(r fsm.Reason, already bool) (bool, error) {
	if r != fsm.Accepted && !already {
		return false, &RejectedError{Reason: r}
	}
	return already, nil
}

// action is a small piece of work for the sequencer's goroutine. Nothing
// follows it, and it always fits into a batch.
type action func(b *batch)

func (a action) run(b *batch) bool { a(b); return true }
func (a action) refuse(error)      {}
