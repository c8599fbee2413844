package sequencer_test

import (
	"errors"
	"sync"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// losingLog is a log whose entries wait for the test, or are applied
// immediately, and whose leader can lose them in all possible ways: entries
// that were never proposed, and entries with an unknown outcome that are lost,
// or that are committed later.
type losingLog struct {
	machine *fsm.Machine
	// observe is called before an entry is applied, and its result after.
	observe func(e fsm.Entry, late bool) (after func(fsm.Applied))

	mu    sync.Mutex
	queue []*memoryProposal // in order, not yet applied
	late  [][]byte          // with an unknown outcome; a later leader may commit them
	slow  bool              // entries wait for flush
	cut   bool              // leadership is lost: all proposals fail
	index uint64
	fate  func() error // returns the error of a proposal after the cut
}

func (l *losingLog) Propose(data []byte) sequencer.Proposal {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &memoryProposal{data: data, done: make(chan struct{})}
	l.queue = append(l.queue, p)
	switch {
	case l.cut:
		l.loseLocked()
	case !l.slow:
		l.flushLocked(len(l.queue))
	}
	return p
}

// flush applies up to n waiting entries.
func (l *losingLog) flush(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked(n)
}

func (l *losingLog) flushLocked(n int) {
	for ; n > 0 && len(l.queue) > 0; n-- {
		p := l.queue[0]
		l.queue = l.queue[1:]
		p.response = l.applyLocked(p.data, false)
		p.index = l.index
		close(p.done)
	}
}

func (l *losingLog) applyLocked(data []byte, late bool) any {
	e, err := fsm.Decode(data)
	if err != nil {
		return err
	}
	after := l.observe(e, late)
	l.index++
	response := l.machine.Apply(l.index, data)
	if applied, ok := response.(fsm.Applied); ok {
		after(applied)
	}
	return response
}

// lose ends leadership: waiting and later proposals fail with the error that
// the function returns, errNeverProposed or another.
func (l *losingLog) lose(fate func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.fate = true, fate
	l.loseLocked()
}

func (l *losingLog) loseLocked() {
	for _, p := range l.queue {
		p.err = l.fate()
		if !errors.Is(p.err, errNeverProposed) {
			l.late = append(l.late, p.data)
		}
		close(p.done)
	}
	l.queue = nil
}

// elect starts a new term. The new leader has the first n entries with an
// unknown outcome.
func (l *losingLog) elect(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked(len(l.queue))
	for _, data := range l.late[:min(n, len(l.late))] {
		l.applyLocked(data, true)
	}
	l.late, l.cut, l.slow = nil, false, false
}
