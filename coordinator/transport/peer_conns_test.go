package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dtask/dtask/internal/tlsconf"
)

// rotating is a replica whose certificate and CAs change.
type rotating struct {
	*server

	cert atomic.Pointer[tlsconf.Replica]
}

func newRotating(t *testing.T, id string, ca authority) *rotating {
	t.Helper()
	r := new(rotating)
	r.cert.Store(ca.certify(t, id, ca))
	r.server = newSecureServer(t, Preface{ServerID: id, Instance: "i" + id, ClusterID: testCluster}, nil, &tlsconf.Peering{Source: r.cert.Load})
	r.mux.Attach(r.Transport)
	return r
}

func TestConnectionsEndWithTheCAOfTheirPeerAndNoOthersDo(t *testing.T) {
	t.Parallel()
	old, next := newAuthority(t), newAuthority(t)
	one, two := newRotating(t, "n1", old), newRotating(t, "n2", old)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	dialRaft := func(magic string) net.Conn {
		conn, err := two.stream.connect(ctx, magic, "n1", one.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	creds := ClientCredentials(tlsconf.Peering{Source: two.cert.Load})
	dialGRPC := func(secure func(net.Conn) (net.Conn, error)) net.Conn {
		conn, err := secure(dialRaw(t, one.address, nil))
		if err == nil {
			_, err = io.WriteString(conn, grpcMagic)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		accepted, err := one.mux.GRPC().Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = accepted.Close() })
		return conn
	}
	asReplica := func(raw net.Conn) (net.Conn, error) {
		conn, _, err := creds.ClientHandshake(ctx, "", raw)
		return conn, err
	}
	worker, err := tlsconf.OpenWorkerKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []*tls.Certificate{nil, &worker} {
		cfg := tlsconf.Trust{Roots: []*x509.Certificate{old.Cert}}.Config(own, nil)
		dialGRPC(func(raw net.Conn) (net.Conn, error) {
			conn := tls.Client(raw, cfg)
			err := conn.HandshakeContext(ctx)
			return conn, err
		})
	}
	want := func(when string, accepted, dialed, grpc int) {
		t.Helper()
		if a, d, g := one.mux.CloseUntrusted(), two.mux.CloseUntrusted(), creds.CloseUntrusted(); a != accepted || d != dialed || g != grpc {
			t.Errorf("%s: closed %d accepted, %d dialed and %d gRPC connections, want %d, %d and %d", when, a, d, g, accepted, dialed, grpc)
		}
	}
	for _, trusted := range [][]authority{{next, old}, {next}} {
		first := map[string]net.Conn{"raft": dialRaft(prefaceMagic), "watch": dialRaft(watchMagic), "gRPC": dialGRPC(asReplica)}
		await(t, func() bool { return one.HasConnectionFrom("n2") })
		if len(trusted) > 1 {
			one.cert.Store(next.certify(t, "n1", trusted...))
			two.cert.Store(next.certify(t, "n2", trusted...))
			want("while both CAs are trusted", 0, 0, 0)
			continue // these end, and those of the next certificates stay
		}
		one.cert.Store(next.certify(t, "n1", trusted...))
		two.cert.Store(next.certify(t, "n2", trusted...))
		want("when the old CA is dropped", 3, 2, 1)
		for what, conn := range first {
			if _, err := conn.Write([]byte{0}); err != nil {
				t.Errorf("a %s connection with a certificate of the new CA has ended: %v", what, err)
			}
		}
	}
}

// A connection may be opened while a CA is being dropped.
func TestAConnectionWhoseCAIsDroppedDuringItsHandshakeEnds(t *testing.T) {
	t.Parallel()
	old, next := newAuthority(t), newAuthority(t)
	before, now := old.certify(t, "n1", old), next.certify(t, "n1", next)
	conns := newPeerConns(func() *tlsconf.Replica { return now })
	for _, c := range []struct {
		ca   authority
		ends bool
	}{{old, true}, {next, false}} {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.ca.certify(t, "n2", c.ca).Cert, c.ca.Cert}}
		added := conns.add(near, state, before)
		if err := near.SetDeadline(time.Time{}); errors.Is(err, io.ErrClosedPipe) != c.ends {
			t.Errorf("closed: %v, want %t", err, c.ends)
		}
		added.Leave()
		_ = near.Close()
	}
	now = before // so that nothing is trusted that was not closed
	if n := conns.CloseUntrusted(); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
}
