package coordinator

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// start runs the cluster until the test ends.
func (c *yearCluster) start(ctx context.Context) {
	c.t.Helper()
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, len(c.peers)) // the results of Run
	c.admins = make(map[string]*client.Client)
	for i, p := range c.peers {
		cfg := Config{
			ID: p.ID, DataDir: filepath.Join(c.dirs[i], "data"), Listen: p.Address, Peers: c.peers, TLSDir: filepath.Join(c.dirs[i], "tls"),
			MinFree: new(MinFree), Logger: slog.New(cmp.Or[slog.Handler](c.log, slog.DiscardHandler)),
		}
		if c.clocks != nil {
			cfg.Wall = c.clocks[p.ID].now
		}
		admin, err := client.New(client.Config{Addrs: []string{"unix:" + cfg.Socket()}})
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { _ = admin.Close() })
		c.admins[p.ID] = admin
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
}

// lead returns the replica that leads now, and an administrator on its machine.
func (c *yearCluster) lead() (Peer, *client.Client, error) {
	status, err := c.admins[c.peers[0].ID].ClusterStatus(c.t.Context())
	if err != nil {
		return Peer{}, nil, err
	}
	i := slices.IndexFunc(c.peers, func(p Peer) bool { return p.ID == status.GetLeader() })
	if i < 0 {
		return Peer{}, nil, errors.New("no leader")
	}
	return c.peers[i], c.admins[status.GetLeader()], nil
}

// administer calls the leader until it has done something. A busy machine may elect another
// one at any time.
func (c *yearCluster) administer(what string, call func(ctx context.Context, admin *client.Client) error) {
	c.t.Helper()
	until(c.t, what, func() error {
		_, admin, err := c.lead()
		if err == nil {
			err = call(c.t.Context(), admin)
		}
		return err
	})
}

// hold opens an HTTP/2 connection to a replica and answers its pings. The channel is closed
// when it breaks.
func hold(t *testing.T, addr string, cfg *tls.Config) (broken <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hostileTimeout)
	defer cancel()
	conn, frames, err := dialHTTP2(ctx, addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			frame, err := frames.ReadFrame()
			if err != nil {
				return
			}
			if ping, ok := frame.(*http2.PingFrame); ok && !ping.IsAck() {
				_ = frames.WritePing(true, ping.Data) // the next read notices the end
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	return done
}

// rotate replaces the CA; finish drops the old one. It waits until all replicas say that
// they have done that.
func (c *yearCluster) rotate(finish bool) {
	c.t.Helper()
	c.administer("the level allows it", func(ctx context.Context, admin *client.Client) error {
		_, err := admin.RotateCA(ctx, finish, false)
		return err
	})
	c.administer("all replicas use the new CA", func(ctx context.Context, admin *client.Client) error {
		st, err := admin.TLSStatus(ctx)
		if err == nil && !allCurrent(st) {
			err = fmt.Errorf("finish = %t: %v", finish, st.GetReplicas())
		}
		return err
	})
}

// until tries something every 10 ms, for two minutes at most.
func until(t *testing.T, what string, try func() error) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(2 * time.Minute); ; <-tick.C {
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
	c.start(t.Context())
	peering := tlsconf.Peering{Source: func() *tlsconf.Replica { return old }}
	var ended []<-chan struct{}
	var stay []<-chan struct{}
	for _, i := range []int{0, 2} {
		ended = append(ended, hold(t, c.peers[i].Address, peering.GRPCClient()))
		stay = append(stay, hold(t, c.peers[i].Address, c.trust.Config(&worker, nil)), hold(t, c.peers[i].Address, c.trust.Config(nil, nil)))
	}
	c.rotate(false)
	stay = append(stay, ended...)
	wantOpen(t, "while both CAs are trusted", stay)
	stay = stay[:len(stay)-len(ended)]
	c.rotate(true)
	for _, broken := range ended {
		select {
		case <-broken:
		case <-time.After(time.Minute):
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

// dialed keeps the connections that a client opens.
type dialed struct {
	mu   sync.Mutex // guards open
	open map[net.Conn]struct{}
}

func (d *dialed) dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[conn] = struct{}{}
	return notedConn{conn, d}, nil
}

// all returns the open connections.
func (d *dialed) all() []net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.open))
}

// notedConn is a connection of dialed.
type notedConn struct {
	net.Conn
	of *dialed
}

func (c notedConn) Close() error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	delete(c.of.open, c.Conn)
	return c.Conn.Close()
}

// follower returns a client of all replicas, with a connection to each: a slow one does not answer
// each time.
func (c *yearCluster) follower() (*client.Client, *dialed) {
	c.t.Helper()
	creds, err := client.Trust{CA: tlsconf.EncodeRoots(c.trust.Roots)}.Credentials()
	if err != nil {
		c.t.Fatal(err)
	}
	conns := &dialed{open: make(map[net.Conn]struct{})}
	cfg := client.Config{Token: c.createToken("ci", time.Hour), Credentials: creds, Dial: conns.dial}
	for _, p := range c.peers {
		cfg.Addrs = append(cfg.Addrs, p.Address)
	}
	user, err := client.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = user.Close() })
	until(c.t, "each replica answers the client", func() error {
		answers, err := user.Stats(c.t.Context())
		if open := len(conns.all()); err == nil && min(len(answers), open) < len(c.peers) {
			err = fmt.Errorf("%d replicas over %d connections", len(answers), open)
		}
		return err
	})
	return user, conns
}

// A client that trusts the old CA only learns the new one from the coordinators, and doesn't
// stay connected to those, real or not, that have no certificate of it.
func TestAClientLeavesConnectionsOfADroppedCA(t *testing.T) {
	t.Parallel()
	c := newYearCluster(t, time.Now())
	c.start(t.Context())
	user, conns := c.follower()
	before := conns.all()
	c.rotate(false)
	if _, err := user.WhoAmI(t.Context()); err != nil {
		t.Errorf("while both CAs are trusted: %v", err)
	}
	c.rotate(true)
	until(t, "the old connections end", func() error {
		if _, err := user.WhoAmI(t.Context()); err != nil {
			t.Fatalf("the client was not able to follow: %v", err)
		}
		for _, open := range conns.all() {
			if slices.Contains(before, open) {
				return fmt.Errorf("one to %v is open", open.RemoteAddr())
			}
		}
		return nil
	})
}

// Nobody who trusts a CA whose key is known to others can tell coordinators from impostors.
func TestAClientThatCannotVerifyTheNewCALeaves(t *testing.T) {
	t.Parallel()
	c := newYearCluster(t, time.Now())
	c.start(t.Context())
	user, _ := c.follower()
	c.administer("the level allows it", func(ctx context.Context, admin *client.Client) error {
		_, err := admin.RotateCA(ctx, false, true)
		return err
	})
	until(t, "the client is refused", func() error {
		_, err := user.WhoAmI(t.Context())
		if !errors.Is(err, client.ErrUntrusted) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}
