package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/connlimit"
	"github.com/dtask/dtask/internal/tlsconf"
)

const testCluster = "0123456789abcdef0123456789abcdef"

// authority issues the certificates of a test's replicas.
type authority struct{ *tlsconf.CA }

func newAuthority(t *testing.T) authority {
	t.Helper()
	ca, err := tlsconf.NewCA(testCluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return authority{ca}
}

// peering returns that of a replica.
func (a authority) peering(t *testing.T, serverID string) *tlsconf.Peering {
	t.Helper()
	r := a.certify(t, serverID, a)
	return &tlsconf.Peering{Source: func() *tlsconf.Replica { return r }}
}

// certify issues the certificate of a replica that trusts some CAs.
func (a authority) certify(t *testing.T, serverID string, trusted ...authority) *tlsconf.Replica {
	t.Helper()
	key, err := tlsconf.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.IssueReplica(tlsconf.ReplicaRequest{ServerID: serverID, Key: key.Public()}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var roots []*x509.Certificate
	for _, ca := range trusted {
		roots = append(roots, ca.Cert)
	}
	dir := t.TempDir()
	if err := tlsconf.Save(dir, cert, key, roots...); err != nil {
		t.Fatal(err)
	}
	r, err := tlsconf.LoadReplica(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// secured is a replica with TLS; certified is the id in its certificate.
func secured(t *testing.T, a authority, id, certified string) *server {
	t.Helper()
	self := Preface{ServerID: id, Instance: "i" + id, ClusterID: testCluster}
	s := newSecureServer(t, self, nil, a.peering(t, certified))
	s.mux.Attach(s.Transport)
	return s
}

func (s *server) watch(t *testing.T, other *server) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	conn, err := s.stream.connect(ctx, watchMagic, other.self.ServerID, other.address)
	if err == nil {
		err = conn.Close()
	}
	return err
}

func TestReplicasConnectOverTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	one, two := secured(t, ca, "n1", "n1"), secured(t, ca, "n2", "n2")
	if err := two.watch(t, one); err != nil {
		t.Error(err)
	}
	if got := one.mux.Handshakes()[handshakeOK]; got != 1 {
		t.Errorf("%d handshakes", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	conn, err := two.stream.connect(ctx, prefaceMagic, "n1", one.address)
	if err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return one.HasConnectionFrom("n2") })
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

func TestAReplicaThatReturnsUnderANewIDKeepsItsCertificate(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	if err := secured(t, ca, "n2-1", "n2").watch(t, secured(t, ca, "n1", "n1")); err != nil {
		t.Error(err)
	}
}

func TestTheServerIDMustBeThatOfTheCertificate(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	one, liar := secured(t, ca, "n1", "n1"), secured(t, ca, "n2", "n3")
	err := liar.watch(t, one)
	wantRefused(t, err, "server n2 has the certificate of server n3")
	wantRefusals(t, one, map[string]uint64{reasonServerID: 1})
	if err := one.watch(t, liar); err == nil || !strings.Contains(err.Error(), "certificate of replica n3, and must be n2") {
		t.Errorf("the dialer accepted it: %v", err)
	}
}

func TestAReplicaOfAnotherCAIsRefusedByBothSides(t *testing.T) {
	t.Parallel()
	one, foreign := secured(t, newAuthority(t), "n1", "n1"), secured(t, newAuthority(t), "n2", "n2")
	if err := foreign.watch(t, one); err == nil || !strings.Contains(err.Error(), "not issued by a CA") {
		t.Errorf("the dialer got %v", err)
	}
	// The other direction, without the check of the dialer.
	ca := newAuthority(t)
	careless := ca.peering(t, "n2").RaftClient("n1")
	careless.VerifyConnection = nil
	conn, err := (&tls.Dialer{Config: careless}).DialContext(t.Context(), "tcp", one.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := greet(conn, prefaceMagic, foreign.self, "n1"); err == nil || !strings.Contains(err.Error(), "bad certificate") {
		t.Errorf("the acceptor's answer: %v", err)
	}
	await(t, func() bool { return one.mux.Handshakes()[handshakeRefused] == 1 })
}

// await polls a condition that another goroutine makes true.
func await(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(testTimeout)
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("still waiting")
		}
	}
}

func TestBadHandshakesDelayNoOthersAndAreCounted(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	// As long as a replica may take on a slow machine, and the test waits for all silent ones.
	one := newImpatientServer(t, Preface{ServerID: "n1", Instance: "in1", ClusterID: testCluster}, nil, ca.peering(t, "n1"), 20*time.Second)
	one.mux.Attach(one.Transport)
	two := secured(t, ca, "n2", "n2")
	hello := clientHello(t, ca.peering(t, "n2").RaftClient("n1"))
	for range 200 { // more than the computing tokens
		dialRaw(t, one.address, nil)
		dialRaw(t, one.address, hello)                // then silence
		dialRaw(t, one.address, hello[:len(hello)/2]) // half a hello
	}
	dialRaw(t, one.address, []byte("GET / HTTP/1.1\r\n\r\n"))
	dialRaw(t, one.address, append([]byte(prefaceMagic), prefaceVersion, 0, 0))
	for _, protocols := range [][]string{{"other"}, {"http/1.1"}, nil} {
		cfg := tlsconf.Trust{Roots: one.tlsRoots()}.Config(nil, nil)
		cfg.NextProtos = protocols
		conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", one.address)
		if err == nil {
			if _, err = conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("%v is served", protocols)
			}
			_ = conn.Close()
		}
	}
	// The protocol decides, not the first bytes.
	for protocol, magic := range map[string]string{tlsconf.ProtocolGRPC: prefaceMagic, tlsconf.ProtocolRaft: grpcMagic} {
		cfg := ca.peering(t, "n2").RaftClient("n1")
		cfg.NextProtos, cfg.VerifyConnection = []string{protocol}, nil
		conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", one.address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(magic)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s over %s is served", magic, protocol)
		}
		_ = conn.Close()
	}
	if err := two.watch(t, one); err != nil {
		t.Errorf("a replica is not served: %v", err)
	}
	await(t, func() bool {
		h := one.mux.Handshakes()
		return h[handshakePlaintext] == 2 && h[handshakeProtocol] == 3 && h[handshakeOK] == 3 && h[handshakeTimeout] == 600
	})
}

// tlsRoots are the CAs that a replica trusts.
func (s *server) tlsRoots() []*x509.Certificate { return s.stream.tls.Source().Roots }

// clientHello returns the first bytes of a handshake.
func clientHello(t *testing.T, cfg *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(near, cfg).HandshakeContext(ctx) // never answered
	}()
	buffer := make([]byte, 16<<10)
	n, err := far.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = far.Close()
	<-done
	return buffer[:n]
}

func TestHandlersSeeTheCertificateOfTheirPeer(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	one := secured(t, ca, "n1", "n1")
	seen := make(chan credentials.TLSInfo, 1) // size 1: one call at a time
	server := grpc.NewServer(grpc.Creds(ServerCredentials()), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			p, _ := peer.FromContext(ctx)
			info, _ := p.AuthInfo.(credentials.TLSInfo)
			seen <- info
			return handler(ctx, req)
		}))
	healthv1.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1) // size 1: the result of Serve
	go func() { served <- server.Serve(one.mux.GRPC()) }()
	defer func() {
		server.Stop()
		<-served
	}()
	worker, err := tlsconf.OpenWorkerKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	trust := tlsconf.Trust{Roots: one.tlsRoots()}
	for name, c := range map[string]struct {
		creds credentials.TransportCredentials
		check func(tls.ConnectionState) bool
	}{
		"replica": {ClientCredentials(*ca.peering(t, "n2")), func(s tls.ConnectionState) bool {
			id, err := one.stream.tls.Source().VerifyPeer(&s)
			return err == nil && id == "n2"
		}},
		"worker":      {credentials.NewTLS(trust.Config(&worker, nil)), func(s tls.ConnectionState) bool { return len(s.PeerCertificates) == 1 }},
		"anyone else": {credentials.NewTLS(trust.Config(nil, nil)), func(s tls.ConnectionState) bool { return len(s.PeerCertificates) == 0 }},
	} {
		if err := checkHealth(t, one.address, c.creds); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		info := <-seen
		if info.SecurityLevel != credentials.PrivacyAndIntegrity || !c.check(info.State) {
			t.Errorf("%s: handlers see %+v", name, info)
		}
	}
	err = checkHealth(t, one.address, insecure.NewCredentials())
	if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "this port requires TLS: use --ca-file") {
		t.Errorf("a client without TLS got %v", err)
	}
}

func checkHealth(t *testing.T, address string, creds credentials.TransportCredentials) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	_, err = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	return err
}

// addressedConn is a connection from an address.
type addressedConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *addressedConn) RemoteAddr() net.Addr { return advertisedAddr(c.from) }

func (c *addressedConn) Close() error {
	c.closed = true
	return nil
}

func TestTheHandshakesOfOneMachineAreLimited(t *testing.T) {
	t.Parallel()
	m := &Mux{log: slog.New(slog.DiscardHandler), security: newSecurity(tlsconf.Peering{}), refused: newRefusals(portReasons)}
	var conns []*addressedConn
	add := func(from string, heard bool) *addressedConn {
		c := &addressedConn{from: from}
		host := connlimit.Host(c.RemoteAddr())
		for _, dropped := range m.makeRoom(host) {
			m.refuse(dropped, refusedHandshakes)
		}
		m.pending.PushBack(&pendingConn{Conn: c, host: host, heard: heard})
		conns = append(conns, c)
		return c
	}
	other, busy := add("10.0.0.2:1", false), add("[::ffff:10.0.0.1]:1", true)
	silent := add("10.0.0.1:2", false)
	for range maxPerHost - 2 {
		add("10.0.0.1:3", true)
	}
	for range 2 * maxPerHost {
		add("127.0.0.1:1", true)
	}
	if slices.ContainsFunc(conns, func(c *addressedConn) bool { return c.closed }) {
		t.Fatal("closed below the limit")
	}
	add("10.0.0.1:4", true)
	if !silent.closed || busy.closed || other.closed {
		t.Error("the silent one of the same machine must be closed first")
	}
	add("10.0.0.1:5", true)
	if !busy.closed || other.closed {
		t.Error("then the oldest one of the same machine")
	}
	if got := m.Refused(); got[refusedHandshakes] != 2 {
		t.Errorf("refused: %v", got)
	}
}

// Scanners of ports take a connection that breaks for a fault of the network, and give up.
func TestAConnectionWithoutAProtocolEndsWithCloseNotify(t *testing.T) {
	t.Parallel()
	s := secured(t, newAuthority(t), "a", "a")
	raw, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	if err := raw.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}) //nolint:gosec // a scanner
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	alert, err := io.ReadAll(raw) // one record: it is encrypted, as all are
	if err != nil || len(alert) == 0 || alert[0] != 23 {
		t.Errorf("got %x, %v", alert, err)
	}
}
