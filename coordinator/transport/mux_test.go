package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/dtask/dtask/internal/tlsconf"
	"github.com/dtask/dtask/test/leak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(leak.Patient{M: m}) }

// testTimeout bounds every wait; it guards against hanging and measures nothing.
const testTimeout = 2 * time.Minute

func dialRaw(t *testing.T, address string, first []byte) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write(first); err != nil {
		t.Fatal(err)
	}
	return conn
}

// call opens a Raft connection as a peer does, and returns the answer.
func call(t *testing.T, address string, as Preface, target string) (Preface, error) {
	t.Helper()
	conn := dialRaw(t, address, nil)
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return greet(conn, prefaceMagic, as, target)
}

func wantRefused(t *testing.T, err error, because string) {
	t.Helper()
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), because) {
		t.Errorf("got %v, want a refusal because of %q", err, because)
	}
}

// wantRefusals compares how many peers a server has refused, by reason.
func wantRefusals(t *testing.T, s *server, want map[string]uint64) {
	t.Helper()
	got := s.Refused()
	maps.DeleteFunc(got, func(_ string, n uint64) bool { return n == 0 })
	if !maps.Equal(got, want) {
		t.Errorf("server %s has refused %v, want %v", s.self.ServerID, got, want)
	}
}

// server is server n1: a Mux and, once attached, the transport behind it.
type server struct {
	*Transport
	mux     *Mux
	address string
	self    Preface
}

func newServer(t *testing.T, self Preface, known func(string) (string, bool)) *server {
	t.Helper()
	return newSecureServer(t, self, known, nil)
}

// newSecureServer is newServer with TLS, unless tls is nil.
func newSecureServer(t *testing.T, self Preface, known func(string) (string, bool), tls *tlsconf.Peering) *server {
	t.Helper()
	return newImpatientServer(t, self, known, tls, testTimeout)
}

// newImpatientServer is newSecureServer with another time for the first bytes of a connection:
// the other tests want no connection to end because the machine is slow.
func newImpatientServer(t *testing.T, self Preface, known func(string) (string, bool), tls *tlsconf.Peering, firstBytes time.Duration) *server {
	t.Helper()
	base, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	s := &server{mux: NewMux(base, quiet), address: base.Addr().String(), self: self}
	s.mux.firstBytes, s.mux.rejecting = firstBytes, testTimeout
	if tls != nil {
		s.mux.Secure(*tls)
	}
	s.Transport = New(Config{
		TLS:       tls,
		Advertise: s.address, Timeout: testTimeout, Logger: quiet, RaftLogger: hclog.NewNullLogger(), TimeScale: 1,
		Admission: Admission{Self: func() Preface { return s.self }, Peers: []string{"n1", "n2"}, KnownInstance: known},
	})
	// The tests make other faults than questions that are answered late.
	s.stream.links.slack = testTimeout
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // ended below
	done := make(chan error, 1)
	go func() { done <- s.mux.Run(ctx) }()
	t.Cleanup(func() {
		s.mux.Attach(nil)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
		s.Wait()
	})
	return s
}

func TestBadConnectionsDelayNoOthers(t *testing.T) {
	t.Parallel()
	n := newServer(t, Preface{ServerID: "n1", Instance: "i1"}, nil)
	n.mux.Attach(n.Transport)
	for range 2 * maxPending { // more than the limit
		dialRaw(t, n.address, nil)
	}
	half := append([]byte(prefaceMagic), prefaceVersion, 0)
	for _, first := range [][]byte{half, []byte("PR"), []byte("GET / HTTP/1.1\r\n\r\n"), append([]byte(prefaceMagic), prefaceVersion, 0xff, 0xff)} {
		dialRaw(t, n.address, first)
	}
	if _, err := call(t, n.address, Preface{ServerID: "n2", Instance: "i2", ClusterID: "foreign"}, "n1"); err != nil {
		t.Errorf("a replica without a cluster refuses one of its peers: %v", err)
	}
	if _, err := call(t, n.address, Preface{ServerID: "n3", Instance: "i3"}, "n1"); err == nil {
		t.Error("an unknown replica without a cluster was accepted")
	}

	conn := dialRaw(t, n.address, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	accepted, err := n.mux.GRPC().Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(accepted.SetDeadline(time.Now().Add(testTimeout)), conn.Close()); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(accepted); err != nil || string(text) != "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
		t.Errorf("gRPC got %q, %v", text, err)
	}
	if err := accepted.Close(); err != nil {
		t.Error(err)
	}
	if got := n.mux.Refused(); got[refusedHandshakes] < maxPending {
		t.Errorf("connections were refused: %v", got)
	}
}

func TestASilentConnectionIsClosed(t *testing.T) {
	t.Parallel()
	n := newImpatientServer(t, Preface{ServerID: "n1", Instance: "i1"}, nil, nil, sniffTimeout)
	conn := dialRaw(t, n.address, []byte("DT"))
	if err := conn.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	var netErr net.Error
	if _, err := conn.Read(make([]byte, 1)); err == nil || (errors.As(err, &netErr) && netErr.Timeout()) {
		t.Errorf("the connection is still open: %v", err)
	}
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	n := newServer(t, Preface{ServerID: "n1", Instance: "i1", ClusterID: "c1"}, func(id string) (string, bool) { return "i2", id == "n2" })
	_, err := call(t, n.address, Preface{ServerID: "n2", Instance: "i2", ClusterID: "c1"}, "n1")
	if err == nil {
		t.Error("a replica without raft accepted a Raft connection")
	}
	n.mux.Attach(n.Transport)
	peer, err := call(t, n.address, Preface{ServerID: "n2", Instance: "i2", ClusterID: "c1"}, "n1")
	if err != nil || peer.ServerID != "n1" || peer.ClusterID != "c1" || peer.Instance != "i1" {
		t.Errorf("a good peer got %+v, %v", peer, err)
	}
	_, err = call(t, n.address, Preface{ServerID: "n2", Instance: "i2"}, "n1")
	if err != nil {
		t.Errorf("a peer of --peers without a cluster got %v", err)
	}
	_, err = call(t, n.address, Preface{ServerID: "n4", Instance: "i4", ClusterID: "c1"}, "n1")
	if err != nil {
		t.Errorf("a joined replica of the same cluster got %v", err)
	}
	for because, c := range map[string]struct {
		as     Preface
		target string
	}{
		"another instance":    {Preface{ServerID: "n2", Instance: "wiped", ClusterID: "c1"}, "n1"},
		"belongs to cluster":  {Preface{ServerID: "n2", Instance: "i2", ClusterID: "c2"}, "n1"},
		"not among the peers": {Preface{ServerID: "n3", Instance: "i3"}, "n1"},
		"this is server n1":   {Preface{ServerID: "n2", Instance: "i2", ClusterID: "c1"}, "n3"},
		"own":                 {Preface{ServerID: "n1", Instance: "i9", ClusterID: "c1"}, "n1"},
	} {
		_, err := call(t, n.address, c.as, c.target)
		wantRefused(t, err, because)
	}
	wantRefusals(t, n, map[string]uint64{reasonInstance: 1, reasonCluster: 2, reasonServerID: 2})
}

// A replica that does not know the cluster's operations would halt at the next one.
func TestAReplicaBelowTheLevelOfTheClusterIsRefusedByBothSides(t *testing.T) {
	t.Parallel()
	preface := func(id string, l Levels) Preface {
		return Preface{ServerID: id, Instance: "i" + id, ClusterID: "c1", Levels: l}
	}
	for name, c := range map[string]struct {
		one, two Levels
		because  string // empty: they accept each other
	}{
		"both at their level":     {Levels{1, 1, "v0.1.0"}, Levels{1, 1, "v0.1.0"}, ""},
		"both know no level":      {Levels{}, Levels{}, ""},
		"one has a later build":   {Levels{1, 3, "v0.2.0"}, Levels{1, 1, "v0.1.0"}, ""},
		"one has applied more":    {Levels{3, 3, "v0.2.0"}, Levels{1, 3, "v0.2.0"}, ""},
		"the dialer is too old":   {Levels{2, 3, "v0.2.0"}, Levels{1, 1, "v0.1.0"}, "server n2 runs dtask v0.1.0, which supports feature levels up to 1, and the cluster is at level 2"},
		"the acceptor is too old": {Levels{1, 1, "v0.1.0"}, Levels{2, 3, "v0.2.0"}, "server n1 runs dtask v0.1.0"},
		"it announces no level":   {Levels{2, 3, "v0.2.0"}, Levels{}, "server n2 runs dtask of an unknown version, which supports feature levels up to 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newServer(t, preface("n1", c.one), nil)
			n.mux.Attach(n.Transport)
			peer, err := call(t, n.address, preface("n2", c.two), "n1")
			if c.because != "" {
				wantRefused(t, err, c.because)
			} else if err != nil || peer.Levels != c.one {
				t.Errorf("got %+v, %v, want the levels %+v", peer, err, c.one)
			}
		})
	}
}

func TestPrefaceStringsRoundTrip(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	var a, b, c string
	if err := readStrings(bytes.NewReader(appendStrings(nil, "n1", "", long)), &a, &b, &c); err != nil {
		t.Fatal(err)
	}
	if a != "n1" || b != "" || c != long[:255] {
		t.Errorf("got %q, %q, %q", a, b, c)
	}
}

func FuzzReadPreface(f *testing.F) {
	greeting := func(fields ...string) []byte { return appendStrings([]byte{prefaceVersion}, fields...) }
	f.Add(greeting("c", "n1", "i1", "n2", "1", "2", "v0.2.0"))
	f.Add(greeting("c", "n1", "i1", "n2", "1", "2", "v0.2.0", "of a later build"))
	f.Add(greeting("c", "n1", "i1", "n2", "1", "-2", ""))
	f.Add(greeting("c", "n1"))
	f.Add([]byte{prefaceVersion, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := readPreface(bytes.NewReader(data))
		if err != nil {
			return
		}
		again, err := readPreface(bytes.NewReader(writtenPreface([]byte{prefaceVersion}, p, p.Target)))
		if err != nil || again != p {
			t.Errorf("%+v became %+v, %v", p, again, err)
		}
	})
}

func TestMuxStopsWithItsContext(t *testing.T) {
	t.Parallel()
	base, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := NewMux(base, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	dialRaw(t, base.Addr().String(), nil)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}
	if _, err := m.GRPC().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept returned %v", err)
	}
}
