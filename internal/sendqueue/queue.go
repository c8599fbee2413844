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
	"time"
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
	start    func() // starts a sender after Start, unless one runs or has failed; nil: none may start
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
	start := q.takeStart()
	q.mu.Unlock()
	q.wake(start)
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
	var start func()
	if deferred {
		start = q.takeStart()
	}
	q.mu.Unlock()
	if deferred {
		q.immediate.Store(true)
		q.wake(start)
	}
}

// AddItem adds an item to the next message.
func (q *Queue[S, I, M]) AddItem(item I) {
	q.mu.Lock()
	q.items = append(q.items, item)
	start := q.takeStart()
	q.mu.Unlock()
	q.wake(start)
}

// wake wakes the sender, or starts one.
func (q *Queue[S, I, M]) wake(start func()) {
	select {
	case q.wakeup <- struct{}{}:
	default: // the channel holds a token already
	}
	if start != nil {
		start()
	}
}

// takeStart returns what starts a sender, once; nil if none has to be started. The caller
// holds mu.
func (q *Queue[S, I, M]) takeStart() (start func()) {
	start, q.start = q.start, nil
	return start
}

// linger is how long a sender of Start waits for more before it ends. Starting another one
// costs about a microsecond.
const linger = 10 * time.Millisecond

// Start is Run in a goroutine that exists only while there is something to send: there may
// be thousands of idle queues. If send fails, failed is called, and nothing more is sent.
// It is called once, instead of Run.
func (q *Queue[S, I, M]) Start(ctx context.Context, pack func(sources []S, items []I) (m *M, turns int), send func(*M) error, failed func(error)) {
	var start func()
	start = func() {
		go func() {
			for {
				if err := q.runUntilIdle(ctx, pack, send); err != nil {
					failed(err)
					return
				}
				if ctx.Err() != nil || q.retire(start) {
					return
				}
			}
		}()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.start = start; len(q.sources)+len(q.items) > 0 {
		q.takeStart()()
	}
}

// retire lets the next one who adds something start another sender. It fails if something
// has been added: Add and the others then wake this sender.
func (q *Queue[S, I, M]) retire(start func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.sources)+len(q.items) > 0 {
		return false
	}
	q.start = start
	return true
}

// runUntilIdle is Run until nothing has been added for a while.
func (q *Queue[S, I, M]) runUntilIdle(ctx context.Context, pack func(sources []S, items []I) (m *M, turns int), send func(*M) error) error {
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for {
		select {
		case <-q.wakeup:
		case <-idle.C:
			return nil
		case <-ctx.Done():
			return nil
		}
		if err := q.sendAll(pack, send); err != nil {
			return err
		}
		idle.Reset(linger)
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
		if err := q.sendAll(pack, send); err != nil {
			return err
		}
	}
}

// sendAll sends everything after a wake-up.
func (q *Queue[S, I, M]) sendAll(pack func(sources []S, items []I) (m *M, turns int), send func(*M) error) error {
	if !q.immediate.Swap(false) {
		// Yield once: what other goroutines add meanwhile shares the
		// message.
		runtime.Gosched()
	}
	return q.Drain(pack, send)
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
