package transport

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// sniffTimeout is how long a connection may take to say what it is.
	sniffTimeout = 3 * time.Second
	// maxPending bounds the connections that have not said it. When a further
	// one comes, the oldest is closed: a good one speaks at once, so those that
	// wait longest are the silent ones.
	maxPending = 1024

	grpcMagic = "PRI " // the first bytes of HTTP/2, RFC 9113 §3.4
	magicLen  = len(grpcMagic)
)

// Mux shares one port between gRPC and Raft. Each connection is told apart by its
// first four bytes, in a goroutine of its own: silence, half a preface and
// garbage delay nobody, and are closed.
type Mux struct {
	base net.Listener
	log  *slog.Logger
	grpc *handListener

	mu      sync.Mutex // guards what follows
	raft    *Transport // nil: not running
	pending list.List  // of net.Conn, the oldest in front
	closed  bool

	conns  sync.WaitGroup // one per connection goroutine
	refuse atomic.Uint64  // connections closed unserved
}

// NewMux wraps base. Nothing is accepted until Run; Run closes base. To take TLS, base
// is a TLS listener.
func NewMux(base net.Listener, log *slog.Logger) *Mux {
	m := &Mux{base: base, log: log}
	m.grpc = newHandListener(base.Addr())
	return m
}

// GRPC returns the listener of the connections that speak HTTP/2. To close it is to
// refuse them; Raft goes on.
func (m *Mux) GRPC() net.Listener { return m.grpc }

// Addr returns the address that base listens on.
func (m *Mux) Addr() net.Addr { return m.base.Addr() }

// Refused returns how many connections were closed unserved.
func (m *Mux) Refused() uint64 { return m.refuse.Load() }

// Attach gives the connections of Raft and its watches to a transport; nil refuses
// them.
func (m *Mux) Attach(t *Transport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.raft = t
}

// Run accepts connections until ctx is done or the listener fails. When it returns,
// the listeners are closed and all its goroutines have ended; connections
// that were handed on live on.
func (m *Mux) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, m.close)
	defer stop()
	err := m.accept(ctx)
	m.close()
	m.conns.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("accepting connections: %w", err)
}

func (m *Mux) accept(ctx context.Context) error {
	const slowest = time.Second
	var wait time.Duration
	for {
		conn, err := m.base.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil { // such as too many open files: the port must outlive it
			wait = min(max(2*wait, 5*time.Millisecond), slowest)
			m.log.WarnContext(ctx, "accepting a connection failed", "err", err, "retry_in", wait)
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(wait):
			}
			continue
		}
		wait = 0
		m.begin(conn)
	}
}

// begin starts the goroutine of one connection.
func (m *Mux) begin(conn net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		m.drop(conn)
		return
	}
	if m.pending.Len() >= maxPending {
		if oldest, ok := m.pending.Remove(m.pending.Front()).(net.Conn); ok {
			m.drop(oldest)
		}
	}
	place := m.pending.PushBack(conn)
	m.conns.Go(func() {
		tuneConn(conn)
		if err := m.dispatch(conn); err != nil {
			m.drop(conn)
			m.log.Debug("connection refused", "remote", conn.RemoteAddr(), "err", err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.pending.Remove(place) // nothing if it was the oldest and dropped
	})
}

func (m *Mux) drop(conn net.Conn) {
	m.refuse.Add(1)
	_ = conn.Close() // it is refused: nobody reads what closing says
}

// dispatch reads the first bytes and hands the connection on.
func (m *Mux) dispatch(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(sniffTimeout)); err != nil {
		return err
	}
	var magic [magicLen]byte
	if _, err := io.ReadFull(conn, magic[:]); err != nil {
		return fmt.Errorf("it did not say what it is: %w", err)
	}
	switch string(magic[:]) {
	case grpcMagic:
		if err := conn.SetDeadline(time.Time{}); err != nil {
			return err
		}
		return m.grpc.hand(&replayConn{Conn: conn, prefix: magic[:]})
	case prefaceMagic, watchMagic:
		m.mu.Lock()
		raft := m.raft
		m.mu.Unlock()
		if raft == nil {
			return errors.New("raft is not running here")
		}
		if string(magic[:]) == watchMagic {
			raft.stream.handleWatch(conn)
		} else {
			raft.stream.handle(conn)
		}
		return nil
	default:
		return fmt.Errorf("it begins with %q", magic[:])
	}
}

// close closes the listeners and the connections that were not handed on.
func (m *Mux) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	_ = m.base.Close() // its Accept reports what matters
	_ = m.grpc.Close()
	for e := m.pending.Front(); e != nil; e = e.Next() {
		if conn, ok := e.Value.(net.Conn); ok {
			_ = conn.Close()
		}
	}
}

// replayConn gives back the bytes that were read to tell what it is.
type replayConn struct {
	net.Conn
	prefix []byte
}

// Read implements net.Conn.
func (c *replayConn) Read(p []byte) (int, error) {
	if len(c.prefix) > 0 {
		n := copy(p, c.prefix)
		c.prefix = c.prefix[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// handListener is a net.Listener whose connections are handed to it.
type handListener struct {
	addr   net.Addr
	conns  chan net.Conn // unbuffered: whoever hands one over knows that it was taken
	closed chan struct{}
	once   sync.Once
}

func newHandListener(addr net.Addr) *handListener {
	return &handListener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// hand blocks until the connection is accepted; it fails when the listener is closed.
func (l *handListener) hand(conn net.Conn) error {
	select {
	case <-l.closed:
		return net.ErrClosed
	default:
	}
	select {
	case l.conns <- conn:
		return nil
	case <-l.closed:
		return net.ErrClosed
	}
}

// Accept implements net.Listener.
func (l *handListener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *handListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *handListener) Addr() net.Addr { return l.addr }
