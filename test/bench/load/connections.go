package load

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// maxReceive bounds one message of a leader, window the bytes in flight.
const (
	maxReceive = 16 << 20
	window     = 1 << 20
)

// connections are the shared connections, several to each address. Thousands of
// workers acquire them simultaneously, so that acquire takes no lock.
type connections struct {
	each int
	// secure has what secures each connection to an address, by its index; empty: nothing.
	secure     []credentials.TransportCredentials
	handshakes *handshakes
	hint       atomic.Pointer[string] // the leader's address according to a coordinator; nil: unknown
	open       sync.Map               // endpoint → *shared
}

// shared is a connection of several workers.
type shared struct {
	*grpc.ClientConn

	lastContact atomic.Int64 // time of the last message, in Unix ns

	mu     sync.Mutex // guards stream
	stream *muxStream // the last one; nil before the first
}

// silent reports whether no message has arrived for limit.
func (c *shared) silent(now time.Time, limit time.Duration) bool {
	return now.UnixNano()-c.lastContact.Load() > int64(limit)
}

// endpoint identifies one of the connections to an address.
type endpoint struct {
	addr  string
	index int
}

func newConnections(each int, secure []credentials.TransportCredentials) *connections {
	return &connections{each: each, secure: secure, handshakes: newHandshakes()}
}

// acquire returns the connection that a worker uses to an address.
func (c *connections) acquire(addr string, worker int) (*shared, error) {
	p := endpoint{addr: addr, index: worker % c.each}
	if conn, ok := c.open.Load(p); ok {
		return conn.(*shared), nil //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	creds := insecure.NewCredentials()
	if len(c.secure) > 0 {
		creds = c.handshakes.credentials(c.secure[p.index])
	}
	client, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(creds),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.3, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: livenessTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
	)
	if err != nil {
		return nil, fmt.Errorf("preparing a connection to %s: %w", addr, err)
	}
	conn := &shared{ClientConn: client}
	conn.lastContact.Store(time.Now().UnixNano())
	if other, ok := c.open.LoadOrStore(p, conn); ok {
		_ = conn.Close()       // it was not used
		conn = other.(*shared) //nolint:errcheck,forcetypeassert // as above
	}
	return conn, nil
}

// discard closes a connection that timed out, so that it is not used again.
func (c *connections) discard(addr string, worker int, conn *shared) {
	if c.open.CompareAndDelete(endpoint{addr: addr, index: worker % c.each}, conn) {
		_ = conn.Close() // its sessions have ended
	}
}

// leader returns the address to try first; empty if unknown.
func (c *connections) leader() string {
	if hint := c.hint.Load(); hint != nil {
		return *hint
	}
	return ""
}

// setLeader stores the leader's address.
func (c *connections) setLeader(addr string) {
	if c.leader() != addr {
		c.hint.Store(&addr)
	}
}

// forget records that the coordinator at an address is no longer the leader.
func (c *connections) forget(addr string) {
	if hint := c.hint.Load(); hint != nil && *hint == addr {
		c.hint.CompareAndSwap(hint, nil)
	}
}

func (c *connections) close() {
	c.open.Range(func(_, conn any) bool {
		_ = conn.(*shared).Close() //nolint:errcheck,forcetypeassert // as above
		return true
	})
}
