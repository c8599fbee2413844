package transport

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/dtask/dtask/internal/tlsconf"
)

// inUse are connections of each kind that are in use.
func inUse(ctx context.Context, t *testing.T, from, to *rotating, creds *PeerCredentials) map[string]net.Conn {
	t.Helper()
	conns := make(map[string]net.Conn)
	add := func(kind string, conn net.Conn, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		conns[kind] = conn
	}
	for kind, magic := range map[string]string{"raft": prefaceMagic, "watch": watchMagic} {
		conn, err := from.stream.connect(ctx, magic, to.self.ServerID, to.address)
		add(kind, conn, err)
	}
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.address)
	if err == nil {
		raw, _, err = creds.ClientHandshake(ctx, "", raw)
	}
	add("gRPC", raw, err)
	return conns
}

// Commits don't wait for handshakes when the old CA is dropped: no connection needs it any more.
func TestConnectionsOfTheOldCAAreReplacedBeforeItIsDropped(t *testing.T) {
	t.Parallel()
	old, next := newAuthority(t), newAuthority(t)
	one, two := newRotating(t, "n1", old), newRotating(t, "n2", old)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	peer := Peer{"n1", one.address}
	two.KeepLinks(ctx, []Peer{peer})
	creds := ClientCredentials(tlsconf.Peering{Source: two.cert.Load})
	conns := inUse(ctx, t, two, one, creds)
	renew := func(when string, want int) {
		t.Helper()
		if left := two.RenewLinks(ctx, []Peer{peer}, creds); left != want {
			t.Errorf("%s: %d connections are left, want %d", when, left, want)
		}
	}
	const all = 3 + 3 // idle ones, and those in use
	renew("before the CA is replaced", 0)
	two.cert.Store(next.certify(t, "n2", next, old))
	renew("while the peer does not trust the new CA", all)
	one.cert.Store(old.certify(t, "n1", next, old))
	renew("while the peer has a certificate of the old CA", all)
	for kind, conn := range conns {
		if _, err := conn.Write([]byte{0}); err != nil {
			t.Errorf("the %s connection has ended although no better one can be opened: %v", kind, err)
		}
	}
	one.cert.Store(next.certify(t, "n1", next, old))
	renew("when both have certificates of the new CA", 0)
	for kind, conn := range conns {
		if _, err := io.Copy(io.Discard, conn); err == nil {
			t.Errorf("the %s connection was not closed by this side", kind)
		}
	}
	for magic, want := range keptConns {
		if n := two.stream.links.count(magic, peer); n != want {
			t.Errorf("%d idle %s connections, want %d", n, magic, want)
		}
	}
	inUse(ctx, t, two, one, creds) // these stay
	renew("again", 0)
	two.cert.Store(next.certify(t, "n2", next))
	if d, g := two.mux.CloseUntrusted(), creds.CloseUntrusted(); d != 0 || g != 0 {
		t.Errorf("closed %d dialed and %d gRPC connections when the old CA was dropped", d, g)
	}
}
