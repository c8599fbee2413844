package transport

import (
	"crypto/tls"
	"net"
	"sync"

	"github.com/dtask/dtask/internal/tlsconf"
)

// peerConns are the open TLS connections with other replicas, in one direction. They end
// when the CA of the peer's certificate is dropped: each side judges the certificate of the
// other one.
type peerConns struct {
	source tlsconf.Source

	mu   sync.Mutex // guards open
	open map[*peerConn]struct{}
}

// peerConn is one of peerConns. It is left when the connection is closed.
type peerConn struct {
	conns *peerConns
	raw   net.Conn
	state tls.ConnectionState
}

func newPeerConns(source tlsconf.Source) *peerConns {
	return &peerConns{source: source, open: make(map[*peerConn]struct{})}
}

// add adds a connection after its handshake; nil if the peer is not a replica. before is the
// certificate that this replica had before the handshake: the CAs may have changed since.
func (p *peerConns) add(raw net.Conn, state tls.ConnectionState, before *tlsconf.Replica) *peerConn {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	if _, _, err := tlsconf.PeerID(state.PeerCertificates[0]); err != nil {
		return nil
	}
	c := &peerConn{conns: p, raw: raw, state: state}
	p.mu.Lock()
	p.open[c] = struct{}{}
	p.mu.Unlock()
	if now := p.source(); now != before {
		c.closeUntrusted(now)
	}
	return c
}

// leave removes a connection that is being closed. It may be called on nil, and again.
func (c *peerConn) leave() {
	if c == nil {
		return
	}
	c.conns.mu.Lock()
	defer c.conns.mu.Unlock()
	delete(c.conns.open, c)
}

// closeUntrusted closes the connection unless its peer is trusted. Its user notices that as
// a broken connection, and closes its own end.
func (c *peerConn) closeUntrusted(now *tlsconf.Replica) (closed bool) {
	if now.TrustsPeer(&c.state) {
		return false
	}
	_ = c.raw.Close() // nothing that it may report matters
	return true
}

// closeUntrusted closes the connections with peers that are not trusted any more, and
// returns how many.
func (p *peerConns) closeUntrusted() (closed int) {
	now := p.source()
	p.mu.Lock()
	all := make([]*peerConn, 0, len(p.open))
	for c := range p.open {
		all = append(all, c)
	}
	p.mu.Unlock()
	for _, c := range all { // checking signatures takes time: not under the lock
		if c.closeUntrusted(now) {
			closed++
		}
	}
	return closed
}

// CloseUntrusted closes the connections to and from replicas whose certificates are of a CA
// that this replica does not trust any more, and returns how many. Call it after the CAs
// have changed. The replicas connect again with the certificates that they have now.
func (m *Mux) CloseUntrusted() (closed int) {
	if m.security == nil {
		return 0
	}
	m.mu.Lock()
	raft := m.raft
	m.mu.Unlock()
	if raft != nil && raft.stream.peers != nil {
		closed = raft.stream.peers.closeUntrusted()
	}
	return closed + m.security.peers.closeUntrusted()
}
