package tlsconf

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"net"
	"slices"
	"sync"
)

// OpenConns are open TLS connections that end when their peers are not trusted any more.
// Safe for concurrent use.
type OpenConns struct {
	trusts func(*tls.ConnectionState) bool

	mu   sync.Mutex // guards open
	open map[*OpenConn]struct{}
}

// OpenConn is one of OpenConns.
type OpenConn struct {
	conns *OpenConns
	raw   net.Conn
	state tls.ConnectionState
	own   *Replica // what this side had before the handshake; nil unless AddPeer added it
}

// NewOpenConns returns an empty set. trusts reports whether a peer is trusted now.
func NewOpenConns(trusts func(*tls.ConnectionState) bool) *OpenConns {
	return &OpenConns{trusts: trusts, open: make(map[*OpenConn]struct{})}
}

// Add adds a connection after its handshake. The code that closes it calls Leave.
func (o *OpenConns) Add(raw net.Conn, state tls.ConnectionState) *OpenConn {
	return o.add(&OpenConn{raw: raw, state: state})
}

// AddPeer is Add for a connection between two replicas. own is what this one had before the
// handshake.
func (o *OpenConns) AddPeer(raw net.Conn, state tls.ConnectionState, own *Replica) *OpenConn {
	return o.add(&OpenConn{raw: raw, state: state, own: own})
}

func (o *OpenConns) add(c *OpenConn) *OpenConn {
	c.conns = o
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[c] = struct{}{}
	return c
}

// all returns the open connections.
func (o *OpenConns) all() []*OpenConn {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.open))
}

// CloseAll closes all connections.
func (o *OpenConns) CloseAll() {
	for _, c := range o.all() {
		_ = c.raw.Close() // nothing that it may report matters
	}
}

// CloseUntrusted closes the connections whose peers are not trusted, and returns how many.
func (o *OpenConns) CloseUntrusted() (closed int) {
	for _, c := range o.all() { // checking signatures takes time: not under the lock
		if c.CloseUntrusted() {
			closed++
		}
	}
	return closed
}

// Untrusted returns how many connections CloseUntrusted would close now.
func (o *OpenConns) Untrusted() (count int) {
	for _, c := range o.all() {
		if !o.trusts(&c.state) {
			count++
		}
	}
	return count
}

// CloseUntrusted closes the connection unless its peer is trusted. The user of the
// connection notices that it is broken, and closes it, too.
func (c *OpenConn) CloseUntrusted() (closed bool) {
	if c.conns.trusts(&c.state) {
		return false
	}
	_ = c.raw.Close() // nothing that it may report matters
	return true
}

// Leave removes a connection that is being closed. It may be called on nil, and again.
func (c *OpenConn) Leave() {
	if c == nil {
		return
	}
	c.conns.mu.Lock()
	defer c.conns.mu.Unlock()
	delete(c.conns.open, c)
}

// Outdated returns the connections with a replica on which one side presented a certificate
// that the first CA of now has not issued.
func (o *OpenConns) Outdated(serverID string, now *Replica) []*OpenConn {
	return slices.DeleteFunc(o.all(), func(c *OpenConn) bool {
		_, id, err := PeerID(c.state.PeerCertificates[0])
		return err != nil || id != serverID || !c.IsOutdated(now)
	})
}

// IsOutdated reports whether Outdated returns the connection, which AddPeer has added.
func (c *OpenConn) IsOutdated(now *Replica) bool {
	return !c.own.IsOf(now.Roots[0]) || !c.isIssuedBy(now.Roots[0])
}

// isIssuedBy reports whether a CA issued the certificate of the peer, which was verified.
func (c *OpenConn) isIssuedBy(ca *x509.Certificate) bool {
	return c.state.PeerCertificates[0].CheckSignatureFrom(ca) == nil
}

// NotIssuedBy returns the connections whose peers have a certificate of another CA. All peers
// must have one.
func (o *OpenConns) NotIssuedBy(ca *x509.Certificate) []*OpenConn {
	return slices.DeleteFunc(o.all(), func(c *OpenConn) bool { return c.isIssuedBy(ca) })
}

// Close closes the connection, and removes it. The user of the connection notices that it is
// broken.
func (c *OpenConn) Close() {
	c.Leave()
	_ = c.raw.Close() // nothing that it may report matters
}
