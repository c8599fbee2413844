package transport

import (
	"slices"
	"sync"
	"time"
)

// turns bounds how many compute at a time. While more want to, the one that asked last is
// next: peers give up after some seconds and ask again, so that in the order of arrival an
// overloaded port would compute only for peers that have left, and never recover. Safe for
// concurrent use.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []chan struct{} // oldest first; closed when it is its turn
}

func newTurns(n int) *turns { return &turns{free: n} }

// take waits until the caller may compute, and reports whether that came before a time.
func (t *turns) take(until time.Time) bool {
	turn := t.ask()
	if turn == nil {
		return true
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-turn:
		return true
	case <-timer.C:
		return !t.withdraw(turn)
	}
}

// ask takes a turn that is free, or returns what is closed when it is the caller's.
func (t *turns) ask() (turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		return nil
	}
	turn = make(chan struct{})
	t.waiting = append(t.waiting, turn)
	return turn
}

// withdraw stops waiting. It returns false if the turn has come.
func (t *turns) withdraw(turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting, turn)
	if i < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	return true
}

// end returns a turn.
func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.waiting) - 1
	if last < 0 {
		t.free++
		return
	}
	close(t.waiting[last])
	t.waiting = slices.Delete(t.waiting, last, last+1)
}
