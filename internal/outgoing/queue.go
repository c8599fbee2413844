// Package outgoing lets many speakers share a stream of messages. While one message
// is on its way, whoever has something to say asks for a place in the next: so a
// message grows as the stream becomes slower, and nobody waits for a timer.
package outgoing

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Queue holds who is to be asked for the next message, S, and the notes, N, that are
// said without asking anybody; M is a message. Ask, Join, Hurry and Note may be called by
// many goroutines at once, and under any lock: they do not wait.
type Queue[S, N, M any] struct {
	news  chan struct{} // size 1: there is something
	hurry atomic.Bool   // it has waited for its company already
	turns []S           // Drain's own, who has asked and had no turn yet

	mu     sync.Mutex // guards the rest
	asked  []S
	joined bool // some of them with Join, and they have had no turn
	notes  []N
}

// New gives an empty queue.
func New[S, N, M any]() *Queue[S, N, M] {
	return &Queue[S, N, M]{news: make(chan struct{}, 1)}
}

// Ask puts a speaker behind all that have asked. One that asks twice is asked twice.
func (q *Queue[S, N, M]) Ask(s S) {
	q.mu.Lock()
	q.asked = append(q.asked, s)
	q.mu.Unlock()
	q.wake()
}

// Join is Ask for one of several that ask together: a Hurry follows when all of them have.
func (q *Queue[S, N, M]) Join(s S) {
	q.mu.Lock()
	q.asked = append(q.asked, s)
	q.joined = true
	q.mu.Unlock()
}

// Hurry has Run send at once for those that have joined, unless it has already.
func (q *Queue[S, N, M]) Hurry() {
	q.mu.Lock()
	joined := q.joined
	q.joined = false
	q.mu.Unlock()
	if joined {
		q.hurry.Store(true)
		q.wake()
	}
}

// Note adds a note to the next message.
func (q *Queue[S, N, M]) Note(n N) {
	q.mu.Lock()
	q.notes = append(q.notes, n)
	q.mu.Unlock()
	q.wake()
}

func (q *Queue[S, N, M]) wake() {
	select {
	case q.news <- struct{}{}:
	default: // a token is there already
	}
}

// Run sends messages, as Drain does, whenever there is something to say. It returns nil
// when ctx is done, and the error of send when that fails. One goroutine may call it
// at a time.
func (q *Queue[S, N, M]) Run(ctx context.Context, pack func(asked []S, notes []N) (m *M, turns int), send func(*M) error) error {
	for {
		select {
		case <-q.news:
		case <-ctx.Done():
			return nil
		}
		if !q.hurry.Swap(false) {
			// Let the others go on for a moment: what they say meanwhile shares the message.
			runtime.Gosched()
		}
		if err := q.Drain(pack, send); err != nil {
			return err
		}
	}
}

// Drain sends messages until nothing is left to say.
//
// pack makes a message of the first turns of those that have asked, in their order,
// and of all notes; nil if nobody has anything. Who had no turn is asked again, first
// of all. pack must not keep the slice of speakers, and takes one turn at least.
func (q *Queue[S, N, M]) Drain(pack func(asked []S, notes []N) (m *M, turns int), send func(*M) error) error {
	for {
		var notes []N
		if q.turns, notes = q.take(q.turns); len(q.turns)+len(notes) == 0 {
			return nil
		}
		m, turns := pack(q.turns, notes)
		q.turns = slices.Delete(q.turns, 0, turns)
		if m == nil {
			continue
		}
		if err := send(m); err != nil {
			return err
		}
	}
}

// take moves all that is there behind asked.
func (q *Queue[S, N, M]) take(asked []S) ([]S, []N) {
	q.mu.Lock()
	defer q.mu.Unlock()
	asked = append(asked, q.asked...)
	clear(q.asked)
	q.asked, q.joined = q.asked[:0], false
	notes := q.notes
	q.notes = nil
	return asked, notes
}
