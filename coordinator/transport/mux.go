package transport

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/dtask/dtask/internal/connlimit"
	"github.com/dtask/dtask/internal/loglimit"
	"github.com/dtask/dtask/internal/tlsconf"
)

const (
	// sniffTimeout is how long a connection may take to send its first bytes, including
	// the handshake if there is one.
	sniffTimeout = 3 * time.Second
	// maxPending bounds the connections that have not sent their first bytes. The
	// oldest is closed when another one comes: a legitimate peer sends immediately, so
	// the ones that wait longest are silent.
	maxPending = 1024

	grpcMagic = "PRI " // the first bytes of HTTP/2, RFC 9113 §3.4
	magicLen  = len(grpcMagic)
)

// Mux shares one port between gRPC and Raft. The first four bytes of a connection tell
// its protocol. Each is read in a goroutine of its own: silent connections, incomplete
// prefaces and garbage delay no other connection, and are closed.
type Mux struct {
	base net.Listener
	log  *slog.Logger
	grpc *connListener

	security *security // nil: plaintext

	// Unless a test changes them, sniffTimeout and rejectTimeout.
	firstBytes, rejecting time.Duration

	limits  Limits            // of gRPC connections
	served  connlimit.Counter // gRPC connections, except those of replicas
	refused refusals
	limiter loglimit.Limiter // of refusals by a limit

	mu      sync.Mutex // guards what follows
	raft    *Transport // nil: not running
	pending list.List  // of *pendingConn, oldest first
	closed  bool

	conns sync.WaitGroup // one per connection goroutine
}

// pendingConn is a connection that has not been passed on.
type pendingConn struct {
	net.Conn
	host    string // see connlimit.Host
	heard   bool   // it has begun a handshake
	dropped bool   // because others came
}

// NewMux returns a Mux of the connections of base. It accepts none until Run, which
// closes base.
func NewMux(base net.Listener, log *slog.Logger) *Mux {
	m := &Mux{base: base, log: log, refused: newRefusals(portReasons), firstBytes: sniffTimeout, rejecting: rejectTimeout}
	m.grpc = newConnListener(base.Addr())
	return m
}

// Secure makes the Mux serve TLS only, as the replica of p. It must be called before Run.
// Raft and watch connections then must come from replicas of the same cluster, with the
// server ids of their certificates. Pass ServerCredentials to the gRPC server.
func (m *Mux) Secure(p tlsconf.Peering) { m.security = newSecurity(p) }

// GRPC returns the listener of the HTTP/2 connections. After it is closed they are
// refused; Raft continues.
func (m *Mux) GRPC() net.Listener { return m.grpc }

// Addr returns the address that base listens on.
func (m *Mux) Addr() net.Addr { return m.base.Addr() }

// Attach passes Raft and watch connections to a transport; nil refuses them.
func (m *Mux) Attach(t *Transport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.raft = t
}

// Run accepts connections until ctx is done or the listener fails. When it returns, the
// listeners are closed and its goroutines have ended; connections that were passed on
// stay open.
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
	const maxDelay = time.Second
	var wait time.Duration
	for {
		conn, err := m.base.Accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil { // such as too many open files: the port must survive it
			wait = min(max(2*wait, 5*time.Millisecond), maxDelay)
			m.log.WarnContext(ctx, "accepting connection failed", "err", err, "retry_in", wait)
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(wait):
			}
			continue
		}
		wait = 0
		m.start(conn)
	}
}

// start starts the goroutine of one connection.
func (m *Mux) start(conn net.Conn) {
	pending := &pendingConn{Conn: conn, host: connlimit.Host(conn.RemoteAddr())}
	for _, dropped := range m.begin(pending) {
		m.refuse(dropped, refusedHandshakes)
	}
}

// begin adds a connection and starts its goroutine. It returns the connections that the
// caller must refuse to make room for it.
func (m *Mux) begin(pending *pendingConn) (dropped []net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		_ = pending.Conn.Close() // the port ends
		return nil
	}
	dropped = m.makeRoom(pending.host)
	element := m.pending.PushBack(pending)
	m.conns.Go(func() {
		tuneConn(pending.Conn)
		err := m.dispatch(pending)
		m.mu.Lock()
		m.pending.Remove(element) // no effect if it was dropped
		refused := err != nil && !pending.dropped
		m.mu.Unlock()
		if refused {
			m.refuse(pending.Conn, refusalOf(err))
			m.log.Debug("connection refused", "remote", pending.RemoteAddr(), "err", err)
		}
	})
	return dropped
}

// makeRoom removes connections if there are too many for another one of a host: the oldest
// one that is silent, or the oldest one if none is. The caller holds mu.
func (m *Mux) makeRoom(host string) (dropped []net.Conn) {
	most := maxPending
	if m.security != nil {
		most = maxSecurePending
		if host != "" {
			dropped = m.makeRoomOf(dropped, func(c *pendingConn) bool { return c.host == host }, maxPerHost)
		}
	}
	return m.makeRoomOf(dropped, func(*pendingConn) bool { return true }, most)
}

// makeRoomOf keeps fewer connections than most of a kind, and appends the one that it
// removes.
func (m *Mux) makeRoomOf(dropped []net.Conn, kind func(*pendingConn) bool, most int) []net.Conn {
	if m.pending.Len() < most {
		return dropped
	}
	n := 0
	var oldest, silent *list.Element
	for e := m.pending.Front(); e != nil; e = e.Next() {
		c, ok := e.Value.(*pendingConn)
		if !ok || !kind(c) {
			continue
		}
		n++
		oldest = cmp.Or(oldest, e)
		if !c.heard {
			silent = cmp.Or(silent, e)
		}
	}
	if n < most {
		return dropped
	}
	if c, ok := m.pending.Remove(cmp.Or(silent, oldest)).(*pendingConn); ok {
		c.dropped = true
		dropped = append(dropped, c.Conn)
	}
	return dropped
}

// hear marks a connection as not silent.
func (m *Mux) hear(c *pendingConn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.heard = true
}

// dispatch reads the first bytes, after the handshake if the port has TLS, and passes the
// connection on. The caller closes a connection for which it returns an error.
func (m *Mux) dispatch(pending *pendingConn) (err error) {
	conn := pending.Conn
	if err := conn.SetDeadline(time.Now().Add(m.firstBytes)); err != nil {
		return err
	}
	var secured *secureConn
	if m.security != nil {
		if secured, err = m.secure(conn, func() { m.hear(pending) }); err != nil {
			return fmt.Errorf("tls: %w", err)
		}
		conn = secured
		defer func() {
			if err != nil {
				secured.peer.Leave()
			}
		}()
	}
	var magic [magicLen]byte
	if _, err := io.ReadFull(conn, magic[:]); err != nil {
		return fmt.Errorf("reading its first bytes: %w", err)
	}
	protocol, proven, err := protocolOf(secured)
	if err != nil {
		return err
	}
	switch {
	case string(magic[:]) == grpcMagic && protocol != tlsconf.ProtocolRaft:
		return m.serve(conn, pending.host, m.security.isReplica(secured), magic[:])
	case (string(magic[:]) == prefaceMagic || string(magic[:]) == watchMagic) && protocol != tlsconf.ProtocolGRPC:
		m.mu.Lock()
		raft := m.raft
		m.mu.Unlock()
		if raft == nil {
			return errors.New("raft is not running")
		}
		if string(magic[:]) == watchMagic {
			raft.stream.handleWatch(conn, proven)
		} else {
			raft.stream.handle(conn, proven)
		}
		return nil
	default:
		return fmt.Errorf("unknown protocol: it starts with %q", magic[:])
	}
}

// protocolOf returns the protocol of a connection and what its peer has proved, if it is
// another replica; both are empty without TLS.
func protocolOf(conn *secureConn) (protocol string, proven proof, err error) {
	if conn == nil {
		return "", proven, nil
	}
	if protocol = conn.ConnectionState().NegotiatedProtocol; protocol == tlsconf.ProtocolRaft {
		proven, err = conn.proven()
	}
	return protocol, proven, err
}

// close closes the listeners and the connections that were not passed on.
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
		if c, ok := e.Value.(*pendingConn); ok {
			_ = c.Conn.Close()
		}
	}
}

// replayConn returns the bytes again that were read to tell its protocol.
type replayConn struct {
	net.Conn
	prefix  []byte
	release func() // called when it is closed
}

// Close implements net.Conn.
func (c *replayConn) Close() error {
	c.release()
	return c.Conn.Close()
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

// connListener is a net.Listener of connections that are delivered to it.
type connListener struct {
	addr   net.Addr
	conns  chan net.Conn // unbuffered: deliver returns when the connection is accepted
	closed chan struct{}
	once   sync.Once
}

func newConnListener(addr net.Addr) *connListener {
	return &connListener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// deliver returns when the connection is accepted; it fails if the listener is closed.
func (l *connListener) deliver(conn net.Conn) error {
	select {
	case l.conns <- conn:
		return nil
	case <-l.closed:
		return net.ErrClosed
	}
}

// Accept implements net.Listener.
func (l *connListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *connListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *connListener) Addr() net.Addr { return l.addr }
