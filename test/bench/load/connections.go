package load

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// maxReceive bounds one message of a leader; window is what may be in flight.
const (
	maxReceive = 16 << 20
	window     = 1 << 20
)

// connections are those that the workers share, some to each address. Thousands
// of workers ask for them at the same moment, so asking takes no lock.
type connections struct {
	each int
	hint atomic.Pointer[string] // who leads, as somebody said; nil: unknown
	open sync.Map               // place → *shared
}

// shared is a connection that some workers have together.
type shared struct {
	*grpc.ClientConn

	lastContact atomic.Int64 // when any of them last heard anything, in ns of Unix time

	mu     sync.Mutex // guards stream
	stream *muxStream // the last one; nil before the first
}

// silent reports whether nobody has heard anything for so long.
func (c *shared) silent(now time.Time, limit time.Duration) bool {
	return now.UnixNano()-c.lastContact.Load() > int64(limit)
}

// place is one of the connections to an address.
type endpoint struct {
	addr string
	n    int
}

func newConnections(each int) *connections { return &connections{each: each} }

// take gives the connection that a worker uses to an address.
func (c *connections) take(addr string, worker int) (*shared, error) {
	p := endpoint{addr: addr, n: worker % c.each}
	if conn, ok := c.open.Load(p); ok {
		return conn.(*shared), nil //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	client, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
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

// leave closes a connection whose other end said nothing for too long, to nobody.
func (c *connections) leave(addr string, worker int, conn *shared) {
	if c.open.CompareAndDelete(endpoint{addr: addr, n: worker % c.each}, conn) {
		_ = conn.Close() // whatever it says, it is gone
	}
}

// leader is whom to try first; empty if nobody is known.
func (c *connections) leader() string {
	if hint := c.hint.Load(); hint != nil {
		return *hint
	}
	return ""
}

// setLeader notes who leads.
func (c *connections) setLeader(addr string) {
	if c.leader() != addr {
		c.hint.Store(&addr)
	}
}

// forget notes that the one at an address leads no longer.
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
