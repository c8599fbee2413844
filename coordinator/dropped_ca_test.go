package coordinator

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// start runs the cluster until the test ends, and returns an administrator on the leader's
// machine.
func (c *yearCluster) start(ctx context.Context) *client.Client {
	c.t.Helper()
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, len(c.peers)) // the results of Run
	sockets := make(map[string]string)
	for i, p := range c.peers {
		cfg := Config{
			ID: p.ID, DataDir: filepath.Join(c.dirs[i], "data"), Listen: p.Address, Peers: c.peers, TLSDir: filepath.Join(c.dirs[i], "tls"),
			MinFree: new(MinFree), Logger: slog.New(slog.DiscardHandler),
		}
		if c.clocks != nil {
			cfg.Wall = c.clocks[p.ID].now
		}
		sockets[p.ID] = "unix:" + cfg.Socket()
		go func() { done <- Run(ctx, cfg) }()
	}
	c.t.Cleanup(func() {
		stop()
		for range c.peers {
			if err := <-done; err != nil {
				c.t.Error(err)
			}
		}
	})
	for _, p := range c.peers {
		c.passes(ctx, p, func(ctx context.Context, p Peer) error { return c.ask(ctx, p, time.Now) })
	}
	connect := func(id string) *client.Client {
		admin, err := client.New(client.Config{Addrs: []string{sockets[id]}})
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { _ = admin.Close() })
		return admin
	}
	status, err := connect("n1").ClusterStatus(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	return connect(status.GetLeader())
}

// hold opens an HTTP/2 connection to a replica. The channel is closed when it breaks.
func hold(t *testing.T, addr string, cfg *tls.Config) (broken <-chan struct{}) {
	t.Helper()
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: cfg}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	const noSettings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+noSettings); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len(noSettings))); err != nil { // gRPC serves it
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, conn)
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return done
}

// rotate replaces the CA; finish drops the old one. It waits until all replicas say that
// they have done that.
func rotate(t *testing.T, admin *client.Client, finish bool) {
	t.Helper()
	until(t, "the level allows it", func() error {
		_, err := admin.RotateCA(t.Context(), finish, false)
		return err
	})
	until(t, "all replicas use the new CA", func() error {
		st, err := admin.TLSStatus(t.Context())
		if err == nil && !allCurrent(st) {
			err = fmt.Errorf("finish = %t: %v", finish, st.GetReplicas())
		}
		return err
	})
}

// until tries something every 10 ms, for 10 seconds at most.
func until(t *testing.T, what string, try func() error) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(10 * time.Second); ; <-tick.C {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func allCurrent(st *dtaskv1.TLSStatusResponse) bool {
	for _, r := range st.GetReplicas() {
		if !r.GetCurrent() {
			return false
		}
	}
	return true
}

// What a replica opened with a certificate of the old CA must not survive the CA. That the
// leader stays is a test of test/e2e: here, a loaded machine would let another one be elected.
func TestConnectionsOfADroppedCAEnd(t *testing.T) {
	t.Parallel()
	c := newYearCluster(t, time.Now())
	old, err := tlsconf.LoadReplica(filepath.Join(c.dirs[1], "tls"))
	if err != nil {
		t.Fatal(err)
	}
	worker, err := tlsconf.OpenWorkerKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	admin := c.start(t.Context())
	peering := tlsconf.Peering{Source: func() *tlsconf.Replica { return old }}
	var ended []<-chan struct{}
	var stay []<-chan struct{}
	for _, i := range []int{0, 2} {
		ended = append(ended, hold(t, c.peers[i].Address, peering.GRPCClient()))
		stay = append(stay, hold(t, c.peers[i].Address, c.trust.Config(&worker, nil)), hold(t, c.peers[i].Address, c.trust.Config(nil, nil)))
	}
	rotate(t, admin, false)
	stay = append(stay, ended...)
	wantOpen(t, "while both CAs are trusted", stay)
	stay = stay[:len(stay)-len(ended)]
	rotate(t, admin, true)
	for _, broken := range ended {
		select {
		case <-broken:
		case <-time.After(5 * time.Second):
			t.Fatal("a connection with a certificate of the dropped CA is open")
		}
	}
	wantOpen(t, "of workers and clients", stay)
}

func wantOpen(t *testing.T, which string, conns []<-chan struct{}) {
	t.Helper()
	for _, broken := range conns {
		select {
		case <-broken:
			t.Errorf("a connection has ended: those %s should not", which)
		default:
		}
	}
}
