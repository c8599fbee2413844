package transport

import (
	"crypto/tls"
	"net"

	"github.com/dtask/dtask/internal/tlsconf"
)

// peerConns are the open TLS connections with other replicas, in one direction. They end
// when the CA of the peer's certificate is dropped: each side judges the certificate of the
// other one.
type peerConns struct {
	*tlsconf.OpenConns

	source tlsconf.Source
}

func newPeerConns(source tlsconf.Source) *peerConns {
	return &peerConns{tlsconf.NewOpenConns(func(state *tls.ConnectionState) bool { return source().TrustsPeer(state) }), source}
}

// add adds a connection after its handshake; nil if the peer is not a replica. before is the
// certificate that this replica had before the handshake: the CAs may have changed since.
func (p *peerConns) add(raw net.Conn, state tls.ConnectionState, before *tlsconf.Replica) *tlsconf.OpenConn {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	if _, _, err := tlsconf.PeerID(state.PeerCertificates[0]); err != nil {
		return nil
	}
	c := p.AddPeer(raw, state, before)
	if p.source() != before {
		c.CloseUntrusted()
	}
	return c
}

// CloseUntrusted closes the connections to and from replicas whose certificates are of a CA
// that this replica does not trust any more, and returns how many. Call it after the CAs
// have changed. The replicas connect again with the certificates that they have now.
func (m *Mux) CloseUntrusted() (closed int) {
	for _, conns := range m.peerConns() {
		closed += conns.CloseUntrusted()
	}
	return closed
}

// Untrusted returns how many connections CloseUntrusted would close now. One that is being
// opened while the CAs change is among them until it has closed itself.
func (m *Mux) Untrusted() (count int) {
	for _, conns := range m.peerConns() {
		count += conns.Untrusted()
	}
	return count
}

// peerConns returns the connections to and from replicas; none without TLS.
func (m *Mux) peerConns() (all []*peerConns) {
	if m.security == nil {
		return nil
	}
	m.mu.Lock()
	raft := m.raft
	m.mu.Unlock()
	if raft != nil && raft.stream.peers != nil {
		all = append(all, raft.stream.peers)
	}
	return append(all, m.security.peers)
}
