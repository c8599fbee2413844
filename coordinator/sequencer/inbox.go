package sequencer

import (
	"context"
	"sync"
	"time"
)

// class orders what waits in the inbox: what frees capacity goes before what
// needs it.
type class int

const (
	classReport class = iota // outcomes from workers
	classWorker              // workers come and go; questions
	classCancel
	classSubmit
	classCount
)

// item is something that waits for the sequencer.
type item interface {
	// run does as much of the item as the batch has room for, and reports
	// whether it is done. Called by the sequencer's goroutine only.
	run(s *Sequencer, b *batch) (done bool)
	// refuse ends the item, of which nothing was proposed.
	refuse(err error)
}

// inbox is the bounded queue between everybody and the sequencer. Safe for
// concurrent use; take is for the sequencer alone.
type inbox struct {
	mu     sync.Mutex
	queues [classCount][]item
	limits [classCount]int
	err    error         // set once the term is over
	wake   chan struct{} // size 1: a token says that something has come
	room   chan struct{} // closed and replaced when a class that was full was taken
}

func newInbox(reports, others int) *inbox {
	return &inbox{
		limits: [classCount]int{classReport: reports, classWorker: others, classCancel: others, classSubmit: others},
		wake:   make(chan struct{}, 1),
		room:   make(chan struct{}),
	}
}

// put adds an item, or refuses it: ErrTermEnded, or a *BusyError if its class is
// full.
func (b *inbox) put(c class, it item) error {
	_, err := b.putAll(c, []item{it})
	return err
}

// putAll adds items, as many as there is room for, and gives their number and why
// the others were refused.
func (b *inbox) putAll(c class, items []item) (taken int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	taken = min(len(items), b.limits[c]-len(b.queues[c]))
	if taken < len(items) {
		err = &BusyError{What: "too many requests wait", Limit: LimitInbox, RetryAfter: 100 * time.Millisecond}
	}
	if taken > 0 {
		b.queues[c] = append(b.queues[c], items[:taken]...)
		b.signal()
	}
	return taken, err
}

// putWait adds an item as soon as there is room: for what holds its stream up
// rather than gets lost.
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
		room := b.room
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return cause(ctx)
		}
	}
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default: // a token is there already
	}
}

// take removes all that waits in a class.
func (b *inbox) take(c class) []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[c]
	b.queues[c] = nil
	if len(q) >= b.limits[c] {
		close(b.room)
		b.room = make(chan struct{})
	}
	return q
}

// close refuses all that waits and all that comes.
func (b *inbox) close(err error) {
	b.mu.Lock()
	b.err = err
	var all []item
	for c := range b.queues {
		all = append(all, b.queues[c]...)
		b.queues[c] = nil
	}
	close(b.room)
	b.room = make(chan struct{})
	b.mu.Unlock()
	for _, it := range all {
		it.refuse(err)
	}
}

// backlog is what the sequencer has taken and not finished, by class.
type backlog [classCount][]item

// run works off one class as far as the batch has room. More is taken only once
// nothing is left: what waits in the inbox counts against its bound, and what
// was taken does not.
func (l *backlog) run(s *Sequencer, b *batch, c class) {
	l.work(s, b, c)
	if len(l[c]) == 0 {
		l[c] = s.inbox.take(c)
		l.work(s, b, c)
	}
}

func (l *backlog) work(s *Sequencer, b *batch, c class) {
	done := 0
	for _, it := range l[c] {
		if !b.room() || !it.run(s, b) {
			break
		}
		done++
	}
	if done == len(l[c]) {
		l[c] = nil
	} else {
		l[c] = l[c][done:]
	}
}

// waits reports whether anything is left over.
func (l *backlog) waits() bool {
	for _, q := range l {
		if len(q) > 0 {
			return true
		}
	}
	return false
}

// refuse ends all that is left over.
func (l *backlog) refuse(err error) {
	for c, q := range l {
		for _, it := range q {
			it.refuse(err)
		}
		l[c] = nil
	}
}
