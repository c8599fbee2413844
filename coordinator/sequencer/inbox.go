package sequencer

import (
	"context"
	"sync"
	"time"
)

// class orders the items of the inbox: those that free capacity come before
// those that need it.
type class int

const (
	classReport class = iota // outcomes from workers
	classWorker              // sessions, drains, membership, queries
	classCancel
	classSubmit
	classCount
)

// item is a request that waits for the sequencer.
type item interface {
	// run executes as much of the item as the batch has capacity for, and
	// reports whether the item is finished. Only the sequencer's goroutine
	// calls it.
	run(b *batch) (done bool)
	// refuse ends an item of which nothing was proposed.
	refuse(err error)
}

// inbox is the bounded queue in front of the sequencer. Safe for concurrent
// use; only the sequencer's goroutine calls take.
type inbox struct {
	mu     sync.Mutex
	queues [classCount][]item
	limits [classCount]int
	err    error         // set when the term has ended
	wake   chan struct{} // size 1: a token means that items may have arrived
	freed  chan struct{} // closed and replaced when a full class was taken
}

func newInbox(reports, others int) *inbox {
	return &inbox{
		limits: [classCount]int{classReport: reports, classWorker: others, classCancel: others, classSubmit: others},
		wake:   make(chan struct{}, 1),
		freed:  make(chan struct{}),
	}
}

// put adds an item. It returns ErrTermEnded, or a *BusyError if the class is
// full.
func (b *inbox) put(c class, it item) error {
	_, err := b.putAll(c, []item{it})
	return err
}

// putAll adds as many items as the class has capacity for. It returns their
// number, and why the others were refused.
func (b *inbox) putAll(c class, items []item) (taken int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	taken = min(len(items), b.limits[c]-len(b.queues[c]))
	if taken < len(items) {
		err = &BusyError{What: "too many waiting requests", Limit: LimitInbox, RetryAfter: 100 * time.Millisecond}
	}
	if taken > 0 {
		b.queues[c] = append(b.queues[c], items[:taken]...)
		b.signal()
	}
	return taken, err
}

// putWait adds an item as soon as the class has capacity. Callers use it for
// items that may hold up their stream but must not be refused.
func (b *inbox) putWait(ctx context.Context, c class, it item) error {
	for {
		b.mu.Lock()
		if b.err != nil || len(b.queues[c]) < b.limits[c] {
			err := b.err
			if err == nil {
				b.queues[c] = append(b.queues[c], it)
				b.signal()
			}
			b.mu.Unlock()
			return err
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default: // wake holds a token already
	}
}

// take removes and returns all items of a class.
func (b *inbox) take(c class) []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[c]
	b.queues[c] = nil
	if len(q) >= b.limits[c] {
		close(b.freed)
		b.freed = make(chan struct{})
	}
	return q
}

// close refuses all items, waiting and future.
func (b *inbox) close(err error) {
	b.mu.Lock()
	b.err = err
	var all []item
	for c := range b.queues {
		all = append(all, b.queues[c]...)
		b.queues[c] = nil
	}
	close(b.freed)
	b.freed = make(chan struct{})
	b.mu.Unlock()
	for _, it := range all {
		it.refuse(err)
	}
}

// backlog is what the sequencer has taken from the inbox and not finished, by
// class.
type backlog [classCount][]item

// run executes the items of one class as far as the batch has capacity. It
// takes more from the inbox only after its own items are finished: items in the
// inbox count towards its bound, and items in the backlog don't.
func (l *backlog) run(in *inbox, b *batch, c class) {
	l.execute(b, c)
	if len(l[c]) == 0 {
		l[c] = in.take(c)
		l.execute(b, c)
	}
}

func (l *backlog) execute(b *batch, c class) {
	done := 0
	for _, it := range l[c] {
		if b.full() || !it.run(b) {
			break
		}
		done++
	}
	l[c] = l[c][done:]
	if len(l[c]) == 0 {
		l[c] = nil
	}
}

// empty reports whether nothing is left over.
func (l *backlog) empty() bool {
	for _, q := range l {
		if len(q) > 0 {
			return false
		}
	}
	return true
}

// refuse refuses all items that are left over.
func (l *backlog) refuse(err error) {
	for c, q := range l {
		for _, it := range q {
			it.refuse(err)
		}
		l[c] = nil
	}
}
