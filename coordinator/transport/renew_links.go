package transport

import (
	"context"
	"net"
	"time"

	"github.com/dtask/dtask/internal/tlsconf"
)

// renewDelay separates the ends of two connections to one peer: what was under way on one is
// sent again on another one before the next ends.
const renewDelay = 20 * time.Millisecond

// RenewLinks replaces the connections to peers, those with creds included, on which one side
// presented a certificate of the old CA, while the CA is being replaced. It leaves those to
// peers that still have such a certificate, and returns how many. When the old CA is dropped,
// all of these connections would end at the same time, and commits would wait for handshakes.
//
// It replaces the connections of one peer after the other: the other peers are enough for a
// commit. Before it closes those in use, others are open.
func (t *Transport) RenewLinks(ctx context.Context, peers []Peer, creds *PeerCredentials) (left int) {
	if t.stream.tls == nil {
		return 0
	}
	now := t.stream.tls.Source()
	if !now.IsReplacing() {
		return 0
	}
	delay := t.timeScale.Scale(renewDelay)
	for _, p := range peers {
		left += t.stream.renewLinks(ctx, p, now, delay, t.stream.peers, creds.peers)
	}
	return left
}

// renewLinks is RenewLinks for one peer.
func (s *streamLayer) renewLinks(ctx context.Context, p Peer, now *tlsconf.Replica, delay time.Duration, sets ...*peerConns) (left int) {
	outdated := func() (list []*tlsconf.OpenConn) {
		for _, set := range sets {
			list = append(list, set.Outdated(p.ID, now)...)
		}
		return list
	}
	if left = len(outdated()); left == 0 || !s.renewIdle(ctx, p, now) {
		return left
	}
	for _, c := range outdated() {
		c.Close()
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		s.openLinks(ctx, p) // one was taken
	}
	return len(outdated())
}

// renewIdle replaces the connections to a peer that nobody uses. It does nothing and returns
// false if the peer can't be reached, or still has a certificate of the old CA.
func (s *streamLayer) renewIdle(ctx context.Context, p Peer, now *tlsconf.Replica) bool {
	opening, cancel := context.WithTimeout(ctx, s.links.openTimeout())
	defer cancel()
	conn, err := s.connect(opening, prefaceMagic, p.ID, p.Address)
	if err != nil {
		return false // it is down, and the caller repeats
	}
	if c := openConnOf(conn); c == nil || c.IsOutdated(now) {
		_ = conn.Close() // nothing was sent
		return false
	}
	s.links.discard(p)
	s.links.put(prefaceMagic, p, conn)
	s.openLinks(ctx, p)
	return true
}

// openConnOf returns what keeps track of a connection of connect with TLS.
func openConnOf(conn net.Conn) *tlsconf.OpenConn {
	if tracked, ok := conn.(*trackedConn); ok {
		conn = tracked.Conn
	}
	if secured, ok := conn.(*secureConn); ok {
		return secured.peer
	}
	return nil
}
