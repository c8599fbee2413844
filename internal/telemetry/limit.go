package telemetry

import (
	"net"
	"sync/atomic"

	"github.com/dtask/dtask/internal/connlimit"
)

// The limits of connections: a port for metrics has few callers. Each connection takes one
// of the files that the program may open, which it needs for other things.
const (
	maxConns       = 256
	maxConnsOfHost = 64 // see connlimit.Host
)

// A LimitedListener closes the connections that its limits refuse.
type LimitedListener struct {
	net.Listener
	open    connlimit.Counter
	refused atomic.Uint64
}

// Limit returns a listener that bounds the open connections of l. Pass it to Serve, or under
// TLS.
func Limit(l net.Listener) *LimitedListener { return &LimitedListener{Listener: l} }

// Refused returns how many connections were refused; 0 for nil.
func (l *LimitedListener) Refused() uint64 {
	if l == nil {
		return 0
	}
	return l.refused.Load()
}

// Accept implements net.Listener.
func (l *LimitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		release, refused := l.open.Open(connlimit.Host(conn.RemoteAddr()), maxConnsOfHost, maxConns)
		if refused == "" {
			return &countedConn{conn, release}, nil
		}
		l.refused.Add(1)
		_ = conn.Close() // it is refused: the error of closing does not matter
	}
}

// countedConn counts until it is closed.
type countedConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.release()
	return c.Conn.Close()
}
