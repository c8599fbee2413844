package raftnode

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

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

// call opens a Raft connection as a peer would and returns what became of it.
func call(t *testing.T, address string, as Identity, target string) (Preface, error) {
	t.Helper()
	conn := dialRaw(t, address, nil)
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
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

func TestBadConnectionsDelayNobody(t *testing.T) {
	t.Parallel()
	n := newTestNode(t, "n1", nil)
	n.peers = []Server{{ID: "n1", Address: n.address}, {ID: "n2", Address: "127.0.0.1:1"}}
	n.start(t, []Server{{ID: n.id, Address: n.address}})
	for range 2 * maxPending { // more than there are places
		dialRaw(t, n.address, nil)
	}
	half := append([]byte(prefaceMagic), prefaceVersion, 0)
	for _, first := range [][]byte{half, []byte("PR"), []byte("GET / HTTP/1.1\r\n\r\n"), append([]byte(prefaceMagic), prefaceVersion, 0xff, 0xff)} {
		dialRaw(t, n.address, first)
	}
	if _, err := call(t, n.address, Identity{ServerID: "n2", Instance: "i2", ClusterID: "foreign"}, "n1"); err != nil {
		t.Errorf("an unborn replica refuses one of its peers: %v", err)
	}
	if _, err := call(t, n.address, Identity{ServerID: "n3", Instance: "i3"}, "n1"); err == nil {
		t.Error("a stranger without a cluster was accepted")
	}

	conn := dialRaw(t, n.address, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	accepted, err := n.mux.GRPC().Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(accepted.SetDeadline(time.Now().Add(patience)), conn.Close()); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(accepted); err != nil || string(text) != "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
		t.Errorf("gRPC got %q, %v", text, err)
	}
	if err := accepted.Close(); err != nil {
		t.Error(err)
	}
	if n.mux.Refused() < maxPending {
		t.Errorf("%d connections were refused", n.mux.Refused())
	}
}

func TestASilentConnectionIsClosed(t *testing.T) {
	t.Parallel()
	n := newTestNode(t, "n1", nil)
	conn := dialRaw(t, n.address, []byte("DT"))
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var netErr net.Error
	if _, err := conn.Read(make([]byte, 1)); err == nil || (errors.As(err, &netErr) && netErr.Timeout()) {
		t.Errorf("the connection is open still: %v", err)
	}
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	n := newTestNode(t, "n1", nil)
	n.peers = []Server{{ID: "n1"}, {ID: "n2"}}
	n.known = func(id string) (string, bool) { return "i2", id == "n2" }
	if err := n.identity.SetClusterID("c1"); err != nil {
		t.Fatal(err)
	}
	_, err := call(t, n.address, Identity{ServerID: "n2", Instance: "i2", ClusterID: "c1"}, "n1")
	if err == nil {
		t.Error("a replica that does not run raft took a raft connection")
	}
	n.start(t, []Server{{ID: n.id, Address: n.address}})
	peer, err := call(t, n.address, Identity{ServerID: "n2", Instance: "i2", ClusterID: "c1"}, "n1")
	if err != nil || peer.ServerID != "n1" || peer.ClusterID != "c1" || peer.Instance != n.identity.Get().Instance {
		t.Errorf("a good peer got %+v, %v", peer, err)
	}
	_, err = call(t, n.address, Identity{ServerID: "n2", Instance: "i2"}, "n1")
	if err != nil {
		t.Errorf("an unborn peer of --peers got %v", err)
	}
	_, err = call(t, n.address, Identity{ServerID: "n4", Instance: "i4", ClusterID: "c1"}, "n1")
	if err != nil {
		t.Errorf("a joined replica of the same cluster got %v", err)
	}
	for because, c := range map[string]struct {
		as     Identity
		target string
	}{
		"another instance":    {Identity{ServerID: "n2", Instance: "wiped", ClusterID: "c1"}, "n1"},
		"belongs to cluster":  {Identity{ServerID: "n2", Instance: "i2", ClusterID: "c2"}, "n1"},
		"not among the peers": {Identity{ServerID: "n3", Instance: "i3"}, "n1"},
		"this is server n1":   {Identity{ServerID: "n2", Instance: "i2", ClusterID: "c1"}, "n3"},
		"own":                 {Identity{ServerID: "n1", Instance: "i9", ClusterID: "c1"}, "n1"},
	} {
		_, err := call(t, n.address, c.as, c.target)
		wantRefused(t, err, because)
	}
	if n.Stats().PeersRefused != 5 {
		t.Errorf("%d peers were refused, want 5", n.Stats().PeersRefused)
	}
}

// The instance rule holds for the side that dials as well.
func TestASecondInstanceIsRefusedBothWays(t *testing.T) {
	t.Parallel()
	w := newNetwork()
	old, wiped := newTestNode(t, "n1", w), newTestNode(t, "n2", w)
	peers := []Server{{ID: "n1", Address: old.address, Voter: true}, {ID: "n2", Address: wiped.address, Voter: true}}
	old.peers, wiped.peers = peers, peers
	old.known = func(id string) (string, bool) { return "the instance before", id == "n2" }
	old.start(t, peers)
	wiped.start(t, nil) // as a replica would that asked nobody
	eventually(t, "the known replica refuses what it dials", func() bool { return old.Stats().PeersRefused > 0 })
	_, err := call(t, old.address, wiped.identity.Get(), "n1")
	wantRefused(t, err, "another instance")
	if wiped.LastIndex() != 0 || wiped.Term() != 0 {
		t.Errorf("the wiped replica took part: term %d, last index %d", wiped.Term(), wiped.LastIndex())
	}
}

func TestStringsSurviveTheirEncoding(t *testing.T) {
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

func FuzzReadGreeting(f *testing.F) {
	greeting := func(fields ...string) []byte { return appendStrings([]byte{prefaceVersion}, fields...) }
	f.Add(greeting("c", "n1", "i1", "n2"))
	f.Add(greeting("c", "n1"))
	f.Add([]byte{prefaceVersion, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := readGreeting(bytes.NewReader(data))
		if err != nil {
			return
		}
		again, err := readGreeting(bytes.NewReader(greeting(p.ClusterID, p.ServerID, p.Instance, p.Target)))
		if err != nil || again != p {
			t.Errorf("%+v became %+v, %v", p, again, err)
		}
	})
}

func TestTheMuxEndsWithItsContext(t *testing.T) {
	t.Parallel()
	base, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := NewMux(base, quiet())
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
