package sequencer_test

import (
	"errors"
	"sync"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
)

// losingLog is a log whose entries wait for the driver of a test, or go at
// once, and whose leader can lose it in all ways that a leader can: entries that
// were never proposed, entries that are gone although nobody says so, entries
// that are committed although the proposer was told that nobody knows.
type losingLog struct {
	machine *fsm.Machine
	// observe is called before an entry is applied; what it gives, after.
	observe func(e fsm.Entry, late bool) (after func(fsm.Applied))

	mu    sync.Mutex
	queue []*memoryProposal // in order, not yet applied
	late  [][]byte          // told to be unknown; a later leader may commit them
	slow  bool              // entries wait for flush
	cut   bool              // leadership is lost: nothing goes through
	index uint64
	fate  func() error // of a proposal after the cut
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

// flush applies up to n entries that wait.
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

// lose takes leadership away: all that waits, and all that comes, has the fate
// that the function gives, errNeverProposed or another error.
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

// elect begins a new term after the first n entries of unknown fate, as a new
// leader may have them.
func (l *losingLog) elect(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked(len(l.queue))
	for _, data := range l.late[:min(n, len(l.late))] {
		l.applyLocked(data, true)
	}
	l.late, l.cut, l.slow = nil, false, false
}
