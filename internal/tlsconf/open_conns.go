package tlsconf

import (
	"crypto/tls"
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
}

// NewOpenConns returns an empty set. trusts reports whether a peer is trusted now.
func NewOpenConns(trusts func(*tls.ConnectionState) bool) *OpenConns {
	return &OpenConns{trusts: trusts, open: make(map[*OpenConn]struct{})}
}

// Add adds a connection after its handshake. The code that closes it calls Leave.
func (o *OpenConns) Add(raw net.Conn, state tls.ConnectionState) *OpenConn {
	c := &OpenConn{conns: o, raw: raw, state: state}
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
