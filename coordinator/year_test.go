package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/tlsconf"
	"github.com/dtask/dtask/test/cluster"
)

// yearCluster are three replicas whose clocks show any time.
type yearCluster struct {
	t      *testing.T
	peers  []Peer
	dirs   []string
	trust  tlsconf.Trust
	admins map[string]*client.Client // on the machine of each replica that start runs
	// clocks are those of the replicas that start runs; nil: all are right.
	clocks map[string]*wrongClock
	log    slog.Handler // of the replicas that start runs; nil: none
}

// newYearCluster issues certificates of 90 days at a time.
func newYearCluster(t *testing.T, at time.Time) *yearCluster {
	t.Helper()
	ca, err := tlsconf.NewCA(tlsconf.NewClusterID(), at)
	if err != nil {
		t.Fatal(err)
	}
	c := &yearCluster{t: t, trust: tlsconf.Trust{Roots: ca.Roots}}
	for i := range 3 {
		addr, err := cluster.FreePort(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("n%d", i+1)
		c.peers = append(c.peers, Peer{ID: id, Address: addr})
		key, err := tlsconf.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		cert, err := ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: id, Key: key.Public()}, at)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(shortDir(t), id)
		for _, err := range []error{ca.Save(filepath.Join(dir, "tls")), tlsconf.Save(filepath.Join(dir, "tls"), cert, key, ca.Cert)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		c.dirs = append(c.dirs, dir)
	}
	return c
}

// run runs the cluster at a time until a client, whose clock shows the same, has read its
// status from a leader.
func (c *yearCluster) run(now time.Time) {
	c.t.Helper()
	clock := func() time.Time { return now }
	c.runUntil(clock, func(ctx context.Context, p Peer) error { return c.ask(ctx, p, clock) })
}

// runUntil runs the cluster with a clock until each replica has passed a check.
func (c *yearCluster) runUntil(clock func() time.Time, check func(ctx context.Context, p Peer) error) {
	c.t.Helper()
	ctx, stop := context.WithTimeout(c.t.Context(), 5*time.Minute)
	defer stop()
	done := make(chan error, len(c.peers)) // the results of Run
	for i, p := range c.peers {
		go func() {
			done <- Run(ctx, Config{
				ID: p.ID, DataDir: filepath.Join(c.dirs[i], "data"), Listen: p.Address, Peers: c.peers, TLSDir: filepath.Join(c.dirs[i], "tls"),
				MinFree: new(MinFree), Logger: slog.New(slog.DiscardHandler), Wall: clock,
			})
		}()
	}
	for _, p := range c.peers {
		c.passes(ctx, p, check)
	}
	stop()
	for range c.peers {
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	}
}

// passes waits until a replica passes a check.
func (c *yearCluster) passes(ctx context.Context, p Peer, check func(ctx context.Context, p Peer) error) {
	c.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx, p)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("%s: %v", p.ID, err)
		case <-tick.C:
		}
	}
}

// ask returns nil if a client trusts a replica and learns from it who leads.
func (c *yearCluster) ask(ctx context.Context, p Peer, clock func() time.Time) error {
	conn, err := grpc.NewClient("passthrough:///"+p.Address, grpc.WithTransportCredentials(credentials.NewTLS(c.trust.Config(nil, clock))))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := healthv1.NewHealthClient(conn).Check(ctx, new(healthv1.HealthCheckRequest)); err != nil {
		return err
	}
	return c.askLocally(ctx, p)
}

// askLocally returns nil if a replica knows a leader. Its socket needs no certificate.
func (c *yearCluster) askLocally(ctx context.Context, p Peer) error {
	cfg := Config{DataDir: filepath.Join(c.dirs[slices.Index(c.peers, p)], "data")}
	local, err := client.New(client.Config{Addrs: []string{"unix:" + cfg.Socket()}})
	if err != nil {
		return err
	}
	defer func() { _ = local.Close() }()
	status, err := local.ClusterStatus(ctx)
	if err == nil && status.GetLeader() == "" {
		err = errors.New("no leader")
	}
	return err
}

// Every certificate has expired: the replicas connect nevertheless, elect a leader, and
// renew theirs before a client needs them.
func TestAClusterThatWasOffForAYearStarts(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	c := newYearCluster(t, at)
	c.run(at)
	year := at.Add(365 * 24 * time.Hour)
	for _, dir := range c.dirs {
		if r, err := tlsconf.LoadReplica(filepath.Join(dir, "tls")); err != nil || r.OwnDates(year) == nil {
			t.Fatalf("a certificate is valid after a year: %v", err)
		}
	}
	c.run(year)
	for _, dir := range c.dirs {
		if r, err := tlsconf.LoadReplica(filepath.Join(dir, "tls")); err != nil || r.OwnDates(year) != nil {
			t.Errorf("not renewed: %v", err)
		}
	}
}

// No certificate is valid by any clock: the replicas elect a leader nevertheless. What they
// renew meanwhile is of no use once the clocks are right, and is renewed again.
func TestAClusterWhoseClocksAreAllWrongContinues(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, wrong := range map[string]time.Time{
		"1970": time.Unix(0, 0), "10 years ahead": at.Add(10 * 365 * 24 * time.Hour), "5 years ahead": at.Add(5 * 365 * 24 * time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newYearCluster(t, at)
			c.runUntil(func() time.Time { return wrong }, c.askLocally)
			c.run(at)
		})
	}
}
