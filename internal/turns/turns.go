// Package turns bounds how many TLS handshakes compute at a time.
//
// Thousands of peers may begin a handshake at once. If all of them computed in the order of
// arrival, each would wait for all others at every step, and none would be done before its
// peer gives up. A [Turns] lets some compute and the one that asked last be next; a [Conn]
// takes part in it while a handshake computes, and not while it waits for the peer.
package turns

import (
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// Turns bounds how many compute at a time. While more want to, the one that asked last is
// next: peers give up after some seconds and ask again, so that in the order of arrival an
// overloaded port would compute only for peers that have left, and never recover. New makes
// it. Safe for concurrent use.
type Turns struct {
	mu      sync.Mutex
	free    int
	waiting []chan struct{} // oldest first; closed when it is its turn
}

// New returns Turns that lets n compute at a time; n is at least 1.
func New(n int) *Turns { return &Turns{free: n} }

// Take waits until the caller may compute, and reports whether that came before a time. The
// caller then calls End when it has computed.
func (t *Turns) Take(until time.Time) bool {
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
func (t *Turns) ask() (turn chan struct{}) {
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
func (t *Turns) withdraw(turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting, turn)
	if i < 0 {
		return false
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	return true
}

// End returns a turn.
func (t *Turns) End() {
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

// Conn is the connection under a handshake, which has a turn while it computes and none while
// it waits for its peer: peers that are silent in the middle of a handshake must not keep
// others from theirs. A flight of a handshake fits into the socket's buffer, so that writing
// does not wait. One goroutine uses it until Finish returns.
type Conn struct {
	net.Conn
	turns    *Turns
	until    time.Time
	holds    bool
	finished bool // set before others use the connection
}

// NewConn returns a Conn without a turn, as of a side that reads first. Waits for turns end
// at a time.
func NewConn(conn net.Conn, turns *Turns, until time.Time) *Conn {
	return &Conn{Conn: conn, turns: turns, until: until}
}

// Begin takes the first turn of the side that writes first. It reports whether that came in
// time.
func (c *Conn) Begin() bool {
	c.holds = c.turns.Take(c.until)
	return c.holds
}

// Read implements net.Conn. Its error is os.ErrDeadlineExceeded if the turn did not come in
// time.
func (c *Conn) Read(p []byte) (int, error) {
	if c.finished {
		return c.Conn.Read(p)
	}
	c.release()
	n, err := c.Conn.Read(p)
	if err != nil {
		return n, err
	}
	if !c.Begin() {
		return 0, os.ErrDeadlineExceeded
	}
	return n, nil
}

// release returns the turn.
func (c *Conn) release() {
	if c.holds {
		c.holds = false
		c.turns.End()
	}
}

// Finish ends the handshake: from now on c only passes on what is read.
func (c *Conn) Finish() {
	c.release()
	c.finished = true
}
