package worker

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Connections are shared by the workers of one process: one connection to each
// coordinator, with one stream that carries the sessions of all workers. The
// memory, goroutines and system calls of a connection and of a message are then
// paid once. A worker without [WithConnections] has Connections of its own.
// Safe for concurrent use.
//
// A connection is open while any session uses it. If a session times out, its
// connection is not used for new sessions.
type Connections struct {
	mu   sync.Mutex // guards the rest, and the users of each
	open map[endpoint]*connection
}

// endpoint is where a connection leads, and how it is secured.
type endpoint struct {
	addr  string
	tls   *tls.Config
	token string
}

// connection is one of Connections.
type connection struct {
	*grpc.ClientConn

	endpoint endpoint
	users    int

	mu  sync.Mutex // guards mux
	mux *muxStream // the current one, or the last; nil before the first session
}

// NewConnections returns an empty set.
func NewConnections() *Connections { return &Connections{open: make(map[endpoint]*connection)} }

// WithConnections makes a worker share its connections with all other workers
// that have the same Connections. They should also have the same dialer: the
// first session dials.
func WithConnections(c *Connections) Option {
	return func(w *Worker) { w.conns = c }
}

// acquire returns the connection to an endpoint, and dials it if no session
// uses one. The caller releases it.
func (c *Connections) acquire(e endpoint, dial func() (*grpc.ClientConn, error)) (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.open[e]
	if conn == nil {
		fresh, err := dial()
		if err != nil {
			return nil, err
		}
		conn = &connection{ClientConn: fresh, endpoint: e}
		c.open[e] = conn
	}
	conn.users++
	return conn, nil
}

// release ends the use of a connection. An unhealthy one is not used for new
// sessions; the others that use it find out for themselves.
func (c *Connections) release(conn *connection, healthy bool) {
	c.mu.Lock()
	conn.users--
	last := conn.users == 0
	if (last || !healthy) && c.open[conn.endpoint] == conn {
		delete(c.open, conn.endpoint)
	}
	c.mu.Unlock()
	if last {
		_ = conn.Close() // nothing is left to lose
		conn.mu.Lock()
		defer conn.mu.Unlock()
		if conn.mux != nil {
			conn.mux.close()
		}
	}
}

// releaseKept releases the connection that the last session left open.
func (w *Worker) releaseKept() {
	if w.kept != nil {
		w.conns.release(w.kept, true)
		w.kept = nil
	}
}

// open returns the slot of a new session. The stream is opened with the first
// session and after it has ended.
func (c *connection) open(ctx context.Context) *streamSlot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mux == nil || !c.mux.isOpen() {
		c.mux = newMuxStream(ctx, c)
	}
	return c.mux.open()
}

// connect returns a connection for one session.
func (w *Worker) connect(addr string) (*connection, error) {
	return w.conns.acquire(endpoint{addr: addr, tls: w.cfg.TLS, token: w.cfg.Token}, func() (*grpc.ClientConn, error) {
		creds := insecure.NewCredentials()
		if w.cfg.TLS != nil {
			creds = credentials.NewTLS(w.cfg.TLS)
		}
		if w.member != nil {
			creds = w.secured.Track(creds) // a dropped CA ends them
		}
		// passthrough: the dialer resolves the name, again for each connection.
		conn, err := grpc.NewClient("passthrough:///"+addr,
			grpc.WithTransportCredentials(creds),
			grpc.WithContextDialer(w.dial),
			grpc.WithDisableServiceConfig(),
			grpc.WithDisableRetry(),
			grpc.WithInitialWindowSize(window),
			grpc.WithInitialConnWindowSize(window),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: livenessTimeout}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		)
		if err != nil {
			return nil, fmt.Errorf("preparing a connection to %s: %w", addr, err)
		}
		return conn, nil
	})
}
