package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/internal/loglimit"
	"github.com/dtask/dtask/internal/tlsconf"
)

// streamLayer opens and accepts raft's connections. All of them have passed the preface
// and the admission of both sides. It keeps track of them, because raft's transport
// closes only those in its pool, and does not wait for the goroutines of those that it
// accepted.
type streamLayer struct {
	admission Admission
	dial      func(ctx context.Context, address string) (net.Conn, error)
	serverAt  func(raft.ServerAddress) (id string, ok bool)
	answer    func(Question) Answer
	tls       *tlsconf.Peering // nil: plaintext
	peers     *peerConns       // that were dialed; nil: plaintext
	log       *slog.Logger

	links    links
	accepted *connListener
	refused  refusals // peers refused by either side
	limiter  loglimit.Limiter

	mu     sync.Mutex // guards what follows
	conns  map[*trackedConn]struct{}
	proofs map[string]proof // of admitted peers, by server id
	closed bool

	inbound sync.WaitGroup // one per accepted connection, until it is closed
}

var _ raft.StreamLayer = (*streamLayer)(nil)

// advertisedAddr is a net.Addr of the configured text: raft tells the other replicas to
// dial LocalAddr, which may differ from the address that the listener is bound to.
type advertisedAddr string

// Network implements net.Addr.
func (advertisedAddr) Network() string { return "tcp" }

// String implements net.Addr.
func (a advertisedAddr) String() string { return string(a) }

func newStreamLayer(cfg *Config) *streamLayer {
	s := &streamLayer{
		admission: cfg.Admission,
		dial:      cfg.Dial,
		serverAt:  cfg.ServerAt,
		answer:    cfg.Answer,
		tls:       cfg.TLS,
		log:       cfg.Logger,
		links:     links{peers: make(map[Peer]bool), roundTrips: make(map[string]time.Duration)},
		accepted:  newConnListener(advertisedAddr(cfg.Advertise)),
		refused:   newRefusals(refusalReasons),
		proofs:    make(map[string]proof),
		conns:     make(map[*trackedConn]struct{}),
	}
	if cfg.TLS != nil {
		s.peers = newPeerConns(cfg.TLS.Source)
	}
	return s
}

// handle serves a Raft connection from the Mux, whose magic has been read and whose
// deadline is set. It returns when raft has accepted it or it is closed.
func (s *streamLayer) handle(conn net.Conn, proven proof) {
	peer, ok := s.receive(conn, proven)
	if !ok {
		return
	}
	tracked := s.track(conn, true, peer.ServerID)
	if tracked == nil {
		return
	}
	if err := s.accepted.deliver(tracked); err != nil {
		_ = tracked.Close()
	}
}

// receive is the acceptor's side of the preface and the admission. It closes a
// connection that does not pass.
func (s *streamLayer) receive(conn net.Conn, proven proof) (peer Preface, ok bool) {
	defer func() {
		if !ok {
			_ = conn.Close()
		}
	}()
	peer, err := readPreface(conn)
	if err != nil {
		s.refuse("connection to the raft port refused", conn.RemoteAddr().String(), err)
		return peer, false
	}
	refusal := s.admission.checkProof(proven, peer)
	if refusal == nil {
		refusal = s.admission.acceptDialer(peer)
	}
	if refusal != nil {
		s.refuse("connection from replica refused", peer.ServerID, refusal)
	}
	if err := reply(conn, s.admission.Self(), refusal); err != nil || refusal != nil {
		return peer, false
	}
	s.admitted(peer.ServerID, proven)
	return peer, conn.SetDeadline(time.Time{}) == nil
}

// admitted records what a peer has proved that was accepted.
func (s *streamLayer) admitted(serverID string, proven proof) {
	if proven.certified == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proofs[serverID] = proven
}

// proofOf returns what a server has proved.
func (s *streamLayer) proofOf(serverID string) (p proof, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok = s.proofs[serverID]
	return p, ok
}

// Dial implements raft.StreamLayer. The peer must be the server that the configuration
// has under this address.
func (s *streamLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	target, ok := s.serverAt(address)
	if !ok {
		return nil, fmt.Errorf("no server of the cluster has the address %s", address)
	}
	if target == s.admission.Self().ServerID {
		return s.dialSelf()
	}
	if conn := s.links.take(prefaceMagic, Peer{target, string(address)}); conn != nil {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.connect(ctx, prefaceMagic, target, string(address))
}

// connect opens a connection to a server and passes the admission of both sides. The
// magic is its kind. The ctx has a deadline, which bounds the connecting only.
func (s *streamLayer) connect(ctx context.Context, magic, target, address string) (net.Conn, error) {
	conn, err := s.dial(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("dialing %s: %w", target, err)
	}
	var proven proof
	if s.tls != nil {
		raw := conn
		if conn, proven, err = s.secure(ctx, raw, target); err != nil {
			_ = raw.Close()
			s.refuse("connection to replica refused", target, err)
			return nil, fmt.Errorf("connecting to %s: %w", target, err)
		}
	}
	deadline, _ := ctx.Deadline()
	if err := s.introduce(conn, magic, target, proven, deadline); err != nil {
		_ = conn.Close()
		s.refuse("connection to replica refused", target, err)
		return nil, fmt.Errorf("connecting to %s: %w", target, err)
	}
	tracked := s.track(conn, false, "")
	if tracked == nil {
		return nil, net.ErrClosed
	}
	return tracked, nil
}

// secure is the dialer's side of the TLS handshake with a server.
func (s *streamLayer) secure(ctx context.Context, raw net.Conn, target string) (net.Conn, proof, error) {
	before := s.tls.Source()
	conn := tls.Client(raw, s.tls.RaftClient(target))
	if err := conn.HandshakeContext(ctx); err != nil {
		if isConnectionClosed(err) {
			return nil, proof{}, err
		}
		return nil, proof{}, &refusal{reasonCertificate, err}
	}
	secured := &secureConn{Conn: conn, raw: raw}
	proven, err := secured.proven()
	if err == nil {
		secured.peer = s.peers.add(raw, secured.ConnectionState(), before)
	}
	return secured, proven, err
}

// dialSelf connects raft with itself, without the network: no peer may claim to be this
// server.
func (s *streamLayer) dialSelf() (net.Conn, error) {
	near, far := net.Pipe()
	accepted := s.track(far, true, "")
	if accepted == nil {
		return nil, errors.Join(net.ErrClosed, near.Close())
	}
	if err := s.accepted.deliver(accepted); err != nil {
		return nil, errors.Join(err, accepted.Close(), near.Close())
	}
	dialed := s.track(near, false, "")
	if dialed == nil {
		return nil, net.ErrClosed
	}
	return dialed, nil
}

// hasConnectionFrom reports whether a Raft connection that a server opened to this one
// is up.
func (s *streamLayer) hasConnectionFrom(server string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		if conn.raftPeer == server {
			return true
		}
	}
	return false
}

// introduce is the dialer's side of the preface and the admission.
func (s *streamLayer) introduce(conn net.Conn, magic, target string, proven proof, deadline time.Time) error {
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	own, began := s.admission.Self(), time.Now()
	peer, err := greet(conn, magic, own, target)
	if err != nil {
		return err
	}
	s.links.measured(target, time.Since(began))
	if peer.ServerID != target {
		return &refusal{reasonServerID, &RefusedError{ServerID: peer.ServerID, Reason: "it answers at the address of " + target}}
	}
	if err := s.admission.checkProof(proven, peer); err != nil {
		return err
	}
	if err := s.admission.accept(own, peer); err != nil {
		return err
	}
	s.admitted(target, proven)
	return conn.SetDeadline(time.Time{})
}

// refuse counts a peer that was refused, and logs it at a limited rate. Raft logs a
// peer that is merely unreachable.
func (s *streamLayer) refuse(msg, peer string, err error) {
	if isUnreachable(err) {
		return
	}
	s.refused[reasonOf(err)].Add(1)
	if suppressed, ok := s.limiter.Allow(msg + peer); ok {
		s.log.Warn(msg, "peer", peer, "err", err, "suppressed", suppressed) //nolint:sloglint // msg is one of the constants above
	}
}

// track registers conn; it returns nil, with conn closed, if the layer is closed.
// raftPeer is the server that opened it for raft, "" for all other connections.
func (s *streamLayer) track(conn net.Conn, inbound bool, raftPeer string) *trackedConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return nil
	}
	tracked := &trackedConn{Conn: conn, layer: s, inbound: inbound, raftPeer: raftPeer}
	s.conns[tracked] = struct{}{}
	if inbound {
		s.inbound.Add(1)
	}
	return tracked
}

// Accept implements net.Listener.
func (s *streamLayer) Accept() (net.Conn, error) { return s.accepted.Accept() }

// Addr implements net.Listener: the address that the other replicas dial.
func (s *streamLayer) Addr() net.Addr { return s.accepted.Addr() }

// Close implements net.Listener. It breaks all connections, so that no goroutine of
// raft waits for a peer.
func (s *streamLayer) Close() error {
	s.mu.Lock()
	s.closed = true
	conns := s.conns
	s.conns = make(map[*trackedConn]struct{})
	s.mu.Unlock()
	s.links.close()
	for conn := range conns {
		_ = conn.Conn.Close() // the network's end only: raft still calls Close itself
	}
	return s.accepted.Close()
}

// trackedConn is removed from its layer when it is closed.
type trackedConn struct {
	net.Conn
	layer    *streamLayer
	inbound  bool
	raftPeer string
	once     sync.Once
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.once.Do(func() {
		c.layer.mu.Lock()
		delete(c.layer.conns, c)
		c.layer.mu.Unlock()
		if c.inbound {
			c.layer.inbound.Done()
		}
	})
	return c.Conn.Close()
}
