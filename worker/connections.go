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

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Connections are those that the workers of one process share, one to each
// coordinator, and on each of them one stream that carries the sessions of all: what
// a connection costs both ends in memory, goroutines and system calls, and what a
// message costs, is then paid once. A worker belongs to the Connections that WithConnections
// gives it, and else has its own. Safe for concurrent use.
//
// A connection is open while somebody has a session over it. One whose session
// failed without a word from the other end is given to nobody any more.
type Connections struct {
	mu   sync.Mutex // guards the rest, and the users of each
	open map[place]*connection
}

// place is where a connection leads, how it is secured, and who uses it.
type place struct {
	addr  string
	tls   *tls.Config
	token string
}

// connection is one of them.
type connection struct {
	*grpc.ClientConn

	place place
	users int

	mu      sync.Mutex // guards the rest
	carries *carrier   // the last one; nil before the first
	plain   bool       // the other end knows streams of one session only
}

// NewConnections makes an empty set.
func NewConnections() *Connections { return &Connections{open: make(map[place]*connection)} }

// WithConnections has a worker share its connections with all others that were
// given the same. They should have the same dialer: whoever comes first dials.
func WithConnections(c *Connections) Option {
	return func(w *Worker) { w.conns, w.shares = c, true }
}

// take gives the connection to a place, which is opened with first use. The caller
// gives it back.
func (c *Connections) take(p place, dial func() (*grpc.ClientConn, error)) (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.open[p]
	if conn == nil {
		fresh, err := dial()
		if err != nil {
			return nil, err
		}
		conn = &connection{ClientConn: fresh, place: p}
		c.open[p] = conn
	}
	conn.users++
	return conn, nil
}

// giveBack ends the use of a connection. One that is not sound is given to nobody
// any more; those who use it yet will see for themselves.
func (c *Connections) giveBack(conn *connection, sound bool) {
	c.mu.Lock()
	conn.users--
	last := conn.users == 0
	if (last || !sound) && c.open[conn.place] == conn {
		delete(c.open, conn.place)
	}
	c.mu.Unlock()
	if last {
		_ = conn.Close() // whatever it says, it is gone
		conn.endCarrier()
	}
}

// begin begins a session over the connection, and says how to leave it.
func (c *connection) begin(ctx context.Context, shared bool) (s stream, leave func(), err error) {
	if shared {
		if carries := c.carrier(ctx); carries != nil {
			p := carries.open(ctx)
			return p, p.leave, nil
		}
	}
	own, err := dtaskv1.NewWorkerServiceClient(c).Session(ctx)
	return own, func() {}, err //nolint:wrapcheck // the caller says what it was at
}

// carrier gives the stream that the sessions of the connection share; nil if the
// other end knows no such thing.
func (c *connection) carrier(ctx context.Context) *carrier {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plain {
		return nil
	}
	if c.carries == nil || !c.carries.lives() {
		c.carries = newCarrier(ctx, c)
	}
	return c.carries
}

// isPlain notes that the other end knows streams of one session only.
func (c *connection) isPlain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plain = true
}

// endCarrier ends the stream that sessions shared.
func (c *connection) endCarrier() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.carries != nil {
		c.carries.close()
	}
}

// connect gives a connection for one session.
func (w *Worker) connect(addr string) (*connection, error) {
	return w.conns.take(place{addr: addr, tls: w.cfg.TLS, token: w.cfg.Token}, func() (*grpc.ClientConn, error) {
		creds := insecure.NewCredentials()
		if w.cfg.TLS != nil {
			creds = credentials.NewTLS(w.cfg.TLS)
		}
		// passthrough: the dialer resolves the name, anew for each connection.
		conn, err := grpc.NewClient("passthrough:///"+addr,
			grpc.WithTransportCredentials(creds),
			grpc.WithContextDialer(w.dial),
			grpc.WithDisableServiceConfig(),
			grpc.WithDisableRetry(),
			grpc.WithInitialWindowSize(window),
			grpc.WithInitialConnWindowSize(window),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: patience}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		)
		if err != nil {
			return nil, fmt.Errorf("preparing a connection to %s: %w", addr, err)
		}
		return conn, nil
	})
}
