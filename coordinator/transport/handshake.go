package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/internal/connlimit"
	"github.com/dtask/dtask/internal/loglimit"
	"github.com/dtask/dtask/internal/tlsconf"
	"github.com/dtask/dtask/internal/turns"
)

const (
	// maxSecurePending is maxPending of a port with TLS. Handshakes queue for the
	// processors, so that legitimate peers wait, too.
	maxSecurePending = 4096
	// maxPerHost bounds the handshakes of one other machine. Its oldest one is closed when
	// another comes.
	maxPerHost = 100
)

// The results of handshakes, for metrics.
const (
	handshakeOK        = "ok"
	handshakePlaintext = "plaintext" // the peer doesn't speak TLS
	handshakeProtocol  = "protocol"  // the peer speaks another application protocol
	handshakeRefused   = "refused"   // the peer's certificate is not of a replica of this cluster
	handshakeTimeout   = "timeout"
	handshakeClosed    = "closed" // by the peer, or by the limits on handshakes
	handshakeFailed    = "failed" // for another reason, such as TLS 1.2
)

var handshakeResults = []string{
	handshakeOK, handshakePlaintext, handshakeProtocol, handshakeRefused, handshakeTimeout, handshakeClosed, handshakeFailed,
}

// security is what a Mux with TLS has in addition.
type security struct {
	peering tlsconf.Peering
	peers   *peerConns // that were accepted
	// computing are the turns of handshakes that compute: twice as many as processors. The
	// rest of the replica must run while thousands of peers connect.
	computing *turns.Turns
	config    *tls.Config               // of all connections, to begin with
	counts    map[string]*atomic.Uint64 // by result; the map is never modified
	limiter   loglimit.Limiter
}

func newSecurity(p tlsconf.Peering) *security {
	s := &security{
		peering: p, peers: newPeerConns(p.Source), computing: turns.New(2 * runtime.GOMAXPROCS(0)),
		counts: make(map[string]*atomic.Uint64, len(handshakeResults)),
	}
	for _, result := range handshakeResults {
		s.counts[result] = new(atomic.Uint64)
	}
	s.config = &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: s.configForClient}
	return s
}

// configForClient is GetConfigForClient of the connections of secure. A configuration lives
// as long as its connections, so that they share what they can.
func (s *security) configForClient(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	gate, ok := hello.Conn.(*gatedConn)
	if !ok {
		return nil, errors.New("transport: the connection is not from the mux")
	}
	gate.hear()
	cfg, err := s.peering.GetConfigForClient(hello)
	if err != nil {
		return nil, err
	}
	gate.offered = true
	if verify := cfg.VerifyConnection; verify != nil { // it is the connection's own
		cfg.VerifyConnection = func(state tls.ConnectionState) error {
			err := verify(state)
			gate.refused = err != nil
			return err
		}
	}
	return cfg, nil
}

// secure does the server's side of the handshake on a connection that has a deadline, and
// calls heard when the peer has said something.
func (m *Mux) secure(raw net.Conn, heard func()) (*secureConn, error) {
	gate := &gatedConn{Conn: turns.NewConn(raw, m.security.computing, time.Now().Add(m.firstBytes)), recording: true, heard: heard}
	before := m.security.peering.Source()
	conn := tls.Server(gate, m.security.config)
	err := conn.Handshake() //nolint:noctx // raw has a deadline, and Mux.close closes it
	gate.Finish()
	state := conn.ConnectionState()
	if err == nil && state.NegotiatedProtocol != tlsconf.ProtocolGRPC && state.NegotiatedProtocol != tlsconf.ProtocolRaft {
		err = errNoProtocol
		// A scanner takes a connection that only breaks for a fault of the network. What was
		// written before fits into the socket's buffer, so that this does not wait.
		_ = conn.CloseWrite()
	}
	result := classifyHandshake(err, gate.offered, gate.refused)
	m.security.counts[result].Add(1)
	switch result {
	case handshakeOK:
		return &secureConn{Conn: conn, raw: raw, peer: m.security.peers.add(raw, state, before)}, nil
	case handshakePlaintext:
		m.rejectPlaintext(raw, gate.recorded)
	case handshakeRefused:
		if suppressed, ok := m.security.limiter.Allow(connlimit.Host(raw.RemoteAddr())); ok {
			m.log.Warn("connection from replica refused", "remote", raw.RemoteAddr(), "err", err, "suppressed", suppressed)
		}
	}
	return nil, err
}

var errNoProtocol = errors.New("the peer speaks no protocol of this port")

// classifyHandshake returns the result of a handshake: offered is true if the peer sent a
// hello, refused if it was the check of its certificate that failed.
func classifyHandshake(err error, offered, refused bool) string {
	_, plaintext := errors.AsType[tls.RecordHeaderError](err)
	network, isNetwork := errors.AsType[net.Error](err)
	switch {
	case err == nil:
		return handshakeOK
	case refused:
		return handshakeRefused
	case errors.Is(err, errNoProtocol), offered && strings.Contains(err.Error(), "unsupported application protocols"):
		return handshakeProtocol
	case plaintext && !offered:
		return handshakePlaintext
	case isNetwork && network.Timeout():
		return handshakeTimeout
	case isConnectionClosed(err):
		return handshakeClosed
	default:
		return handshakeFailed
	}
}

// Handshakes returns how many TLS handshakes had each result; nil without TLS.
func (m *Mux) Handshakes() map[string]uint64 {
	if m.security == nil {
		return nil
	}
	out := make(map[string]uint64, len(handshakeResults))
	for result, n := range m.security.counts {
		out[result] = n.Load()
	}
	return out
}

// secureConn is a TLS connection of the shared port. Closing it closes the TCP connection
// and sends no close_notify: that write may wait for five seconds for a peer that does not
// read, and connections are closed to end something. gRPC and Raft both know where a
// message ends, so that a connection that is cut off is not mistaken for a complete one.
type secureConn struct {
	*tls.Conn
	raw  net.Conn
	peer *tlsconf.OpenConn // nil: not a replica
}

// Close implements net.Conn.
func (c *secureConn) Close() error {
	c.peer.Leave()
	return c.raw.Close()
}

// isReplica reports whether the peer of a gRPC connection is a replica of this cluster.
func (s *security) isReplica(conn *secureConn) bool {
	if conn == nil {
		return false
	}
	state := conn.ConnectionState()
	if len(state.PeerCertificates) == 0 {
		return false
	}
	if _, _, err := tlsconf.PeerID(state.PeerCertificates[0]); err != nil {
		return false // a worker's, which is not worth a check of its signatures
	}
	_, err := s.peering.Source().VerifyPeer(&state)
	return err == nil
}

// proven returns what the peer, a replica, has proved by its certificate, which has been
// verified.
func (c *secureConn) proven() (p proof, err error) {
	certs := c.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return p, tlsconf.ErrNotReplica
	}
	cert := certs[0]
	_, id, err := tlsconf.PeerID(cert)
	return proof{id, tlsconf.KeyHash(cert)}, err
}

// gatedConn is the connection under a handshake. It records what is read before the peer's
// hello; without a hello, the peer may speak plaintext.
type gatedConn struct {
	*turns.Conn
	recording bool // changed by the goroutine of the handshake, as what follows
	recorded  []byte
	heard     func() // called when the peer has said hello; nil after that

	offered bool // the peer's hello was accepted
	refused bool // the peer's certificate was not
}

// hear notes that the peer has said hello.
func (c *gatedConn) hear() {
	c.heard()
	c.recording, c.recorded, c.heard = false, nil, nil
}

// Read implements net.Conn.
func (c *gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.recording {
		c.recorded = append(c.recorded, p[:n]...)
	}
	return n, err //nolint:wrapcheck // of the connection itself
}
