package transport

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// minAskTimeout bounds a question between replicas of one site. Distance is added.
	minAskTimeout = 150 * time.Millisecond
	// maxAskTimeout is the default heartbeat timeout: raft stands for election itself.
	maxAskTimeout = 500 * time.Millisecond
	// askRoundTrips is how many round trips a question takes at most: TCP, TLS, preface,
	// question, and a connection from the answering replica to a third one.
	askRoundTrips = 5
	// openTimeout bounds the opening of a kept connection, which nothing waits for.
	openTimeout = time.Second
)

// keptConns is how many connections of each kind are kept open to a peer: one for
// questions, and for raft as many as a candidate needs. It asks for the vote on one; as
// the leader it sends heartbeats and entries on two.
var keptConns = map[string]int{watchMagic: 1, prefaceMagic: 2}

// Peer is another replica.
type Peer struct{ ID, Address string }

// links keeps admitted connections to peers open, ahead of their use. A new connection
// takes three to four round trips until it carries a question. Between sites, the fast
// election would last longer than the timeout that it should avoid.
type links struct {
	readers sync.WaitGroup // one per idle connection, until it is taken or broken
	slack   time.Duration  // added to the limits of questions and of opening; for tests on slow machines

	mu         sync.Mutex // guards what follows
	peers      map[Peer]bool
	idle       []*idleConn              // the newest is the last
	roundTrips map[string]time.Duration // by server id, as last measured
	closed     bool
}

// idleConn is a connection that nobody uses. The peer sends nothing on it, so its
// reader ends when the connection breaks or is taken.
type idleConn struct {
	net.Conn
	magic string
	peer  Peer
	ended chan error // size 1: the reader's error, if the connection was taken
}

// KeepLinks opens the connections to peers that are missing, and closes those to other
// servers. It returns when it has tried all; the caller repeats it.
func (t *Transport) KeepLinks(ctx context.Context, peers []Peer) {
	t.stream.links.replace(peers)
	var opening sync.WaitGroup
	for _, p := range peers {
		opening.Go(func() { t.stream.openLinks(ctx, p) })
	}
	opening.Wait()
}

// openLinks opens the connections to one peer that are missing.
func (s *streamLayer) openLinks(ctx context.Context, p Peer) {
	for magic, want := range keptConns {
		for range want - s.links.count(magic, p) {
			opening, cancel := context.WithTimeout(ctx, s.links.openTimeout())
			conn, err := s.connect(opening, magic, p.ID, p.Address)
			cancel()
			if err != nil {
				return // it is down, and the caller repeats
			}
			s.links.put(magic, p, conn)
		}
	}
}

// AskTimeout bounds a question, including its connection and its answer. It grows with
// the longest round trip to a peer.
func (t *Transport) AskTimeout() time.Duration { return t.stream.links.askTimeout() }

// RoundTrip returns the longest round trip to a peer; 0 if none was measured.
func (t *Transport) RoundTrip() time.Duration { return t.stream.links.longest() }

func (l *links) askTimeout() time.Duration {
	return min(minAskTimeout+askRoundTrips*l.longest(), maxAskTimeout) + l.slack
}

func (l *links) openTimeout() time.Duration { return openTimeout + l.slack }

func (l *links) longest() (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, took := range l.roundTrips {
		longest = max(longest, took)
	}
	return longest
}

// measured records how long a peer took to answer the preface.
func (l *links) measured(id string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roundTrips[id] = took
}

// replace changes the peers, and closes the connections to other servers.
func (l *links) replace(peers []Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.peers)
	roundTrips := make(map[string]time.Duration)
	for _, p := range peers {
		l.peers[p] = true
		if took, ok := l.roundTrips[p.ID]; ok {
			roundTrips[p.ID] = took
		}
	}
	l.roundTrips = roundTrips
	l.discardLocked(func(c *idleConn) bool { return !l.peers[c.peer] })
}

// close closes the idle connections, and keeps no more.
func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.discardLocked(func(*idleConn) bool { return true })
}

// discard closes the idle connections to a peer.
func (l *links) discard(p Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.discardLocked(func(c *idleConn) bool { return c.peer == p })
}

// discardLocked closes idle connections. Their readers end.
func (l *links) discardLocked(unwanted func(*idleConn) bool) {
	l.idle = slices.DeleteFunc(l.idle, func(c *idleConn) bool {
		if !unwanted(c) {
			return false
		}
		_ = c.Close() // nothing was sent
		return true
	})
}

// count returns how many idle connections of a kind to a peer there are.
func (l *links) count(magic string, p Peer) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.countLocked(magic, p)
}

func (l *links) countLocked(magic string, p Peer) (count int) {
	for _, c := range l.idle {
		if c.magic == magic && c.peer == p {
			count++
		}
	}
	return count
}

// put keeps a connection on which nothing is in flight, or closes it if there are
// enough, or the server is not a peer.
func (l *links) put(magic string, p Peer, conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.peers[p] || l.countLocked(magic, p) >= keptConns[magic] || conn.SetDeadline(time.Time{}) != nil {
		_ = conn.Close() // nothing is in flight
		return
	}
	c := &idleConn{Conn: conn, magic: magic, peer: p, ended: make(chan error, 1)}
	l.idle = append(l.idle, c)
	l.readers.Go(func() {
		_, err := c.Read(make([]byte, 1))
		if l.remove(c) {
			_ = c.Close() // it broke
		}
		c.ended <- err
	})
}

// take returns an idle connection that is not broken, as far as this side knows, or
// nil.
func (l *links) take(magic string, p Peer) net.Conn {
	for {
		c := l.pop(magic, p)
		if c == nil {
			return nil
		}
		if c.interrupt() == nil {
			return c.Conn
		}
		_ = c.Close() // it broke just now
	}
}

// interrupt ends the reader of a connection that was taken. It returns an error if the
// connection is broken.
func (c *idleConn) interrupt() error {
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return err
	}
	if err := <-c.ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.Join(net.ErrClosed, err)
	}
	return c.SetReadDeadline(time.Time{})
}

// pop removes the newest idle connection of a kind to a peer.
func (l *links) pop(magic string, p Peer) *idleConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range slices.Backward(l.idle) {
		if c.magic == magic && c.peer == p {
			l.removeLocked(i)
			return c
		}
	}
	return nil
}

// remove removes an idle connection, unless it was taken.
func (l *links) remove(c *idleConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.idle, c)
	if i >= 0 {
		l.removeLocked(i)
	}
	return i >= 0
}

func (l *links) removeLocked(i int) { l.idle = slices.Delete(l.idle, i, i+1) }
