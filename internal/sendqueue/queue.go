// Package sendqueue lets many sources share one stream of messages. While a
// message is being sent, the sources that have data queue up for the next one:
// messages grow as the stream becomes slower, and no source waits for a timer.
package sendqueue

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Queue holds the sources, of type S, that are polled for the next message, and
// the items, of type I, that it contains without polling. M is the type of the
// messages. Add, AddDeferred, Flush and AddItem may be called by many
// goroutines at once and under any lock: they do not block.
type Queue[S, I, M any] struct {
	wakeup    chan struct{} // size 1: a token means that something was added
	immediate atomic.Bool   // the next message was deferred already: Run must not yield
	turns     []S           // sources that Drain has taken and not polled yet; Drain's own

	mu       sync.Mutex // guards the rest
	sources  []S
	deferred bool // some of sources came with AddDeferred
	items    []I
}

// New returns an empty queue.
func New[S, I, M any]() *Queue[S, I, M] {
	return &Queue[S, I, M]{wakeup: make(chan struct{}, 1)}
}

// Add appends a source to those that are polled. A source that is added twice
// is polled twice.
func (q *Queue[S, I, M]) Add(s S) {
	q.mu.Lock()
	q.sources = append(q.sources, s)
	q.mu.Unlock()
	q.wake()
}

// AddDeferred is Add without waking Run. A call of Flush must follow, when all
// sources that should share a message have been added.
func (q *Queue[S, I, M]) AddDeferred(s S) {
	q.mu.Lock()
	q.sources = append(q.sources, s)
	q.deferred = true
	q.mu.Unlock()
}

// Flush makes Run send immediately if any deferred source has not been polled.
func (q *Queue[S, I, M]) Flush() {
	q.mu.Lock()
	deferred := q.deferred
	q.deferred = false
	q.mu.Unlock()
	if deferred {
		q.immediate.Store(true)
		q.wake()
	}
}

// AddItem adds an item to the next message.
func (q *Queue[S, I, M]) AddItem(item I) {
	q.mu.Lock()
	q.items = append(q.items, item)
	q.mu.Unlock()
	q.wake()
}

func (q *Queue[S, I, M]) wake() {
	select {
	case q.wakeup <- struct{}{}:
	default: // the channel holds a token already
	}
}

// Run calls Drain whenever something has been added. It returns nil when ctx is
// done, and the error of send if that fails. Only one goroutine may call it.
func (q *Queue[S, I, M]) Run(ctx context.Context, pack func(sources []S, items []I) (m *M, turns int), send func(*M) error) error {
	for {
		select {
		case <-q.wakeup:
		case <-ctx.Done():
			return nil
		}
		if !q.immediate.Swap(false) {
			// Yield once: what other goroutines add meanwhile shares the
			// message.
			runtime.Gosched()
		}
		if err := q.Drain(pack, send); err != nil {
			return err
		}
	}
}

// Drain sends messages until the queue is empty.
//
// pack builds a message from the first turns sources, in order, and all items,
// or returns nil if none of them has data. The remaining sources are polled
// first for the next message. pack must take at least one source and must not
// keep the slice.
func (q *Queue[S, I, M]) Drain(pack func(sources []S, items []I) (m *M, turns int), send func(*M) error) error {
	for {
		var items []I
		if q.turns, items = q.take(q.turns); len(q.turns)+len(items) == 0 {
			return nil
		}
		m, turns := pack(q.turns, items)
		q.turns = slices.Delete(q.turns, 0, turns)
		if m == nil {
			continue
		}
		if err := send(m); err != nil {
			return err
		}
	}
}

// take appends all sources to those given and removes them and all items from
// the queue.
func (q *Queue[S, I, M]) take(sources []S) ([]S, []I) {
	q.mu.Lock()
	defer q.mu.Unlock()
	sources = append(sources, q.sources...)
	clear(q.sources)
	q.sources, q.deferred = q.sources[:0], false
	items := q.items
	q.items = nil
	return sources, items
}
