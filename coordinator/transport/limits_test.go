package transport

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/connlimit"
	"github.com/dtask/dtask/internal/tlsconf"
)

// elsewhere is a listener whose connections come from the addresses that a test chooses,
// which stand for other machines.
type elsewhere struct {
	net.Listener
	from chan string // of the next connection
}

type remoteConn struct {
	net.Conn
	from string
}

func (c remoteConn) RemoteAddr() net.Addr { return advertisedAddr(c.from) }

// Accept implements net.Listener.
func (e elsewhere) Accept() (net.Conn, error) {
	conn, err := e.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return remoteConn{conn, <-e.from}, nil
}

// crowded is a port with limits, with health checks behind it.
type crowded struct {
	*testing.T
	mux  *Mux
	ca   authority
	from chan string
}

func newCrowded(t *testing.T, limits Limits, secure bool) *crowded {
	t.Helper()
	base, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &crowded{T: t, ca: newAuthority(t), from: make(chan string, 1)} // size 1: one connection at a time
	c.mux = NewMux(elsewhere{base, c.from}, slog.New(slog.DiscardHandler))
	c.mux.firstBytes, c.mux.rejecting = testTimeout, testTimeout
	c.mux.Limit(limits)
	creds := insecure.NewCredentials()
	if secure {
		c.mux.Secure(*c.ca.peering(t, "n1"))
		creds = ServerCredentials()
	}
	server := grpc.NewServer(grpc.Creds(creds))
	healthv1.RegisterHealthServer(server, health.NewServer())
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // ended below
	ran, served := make(chan error, 1), make(chan error, 1) // size 1: their results
	go func() { ran <- c.mux.Run(ctx) }()
	go func() { served <- server.Serve(c.mux.GRPC()) }()
	t.Cleanup(func() {
		cancel()
		<-ran
		server.Stop()
		<-served
	})
	return c
}

// connect checks the health over a connection from a machine, which stays open until close.
func (c *crowded) connect(from string, creds credentials.TransportCredentials) (closing func(), err error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), testTimeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+c.mux.Addr().String(), grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			select {
			case c.from <- from:
				return DialTCP(ctx, address)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}))
	if err != nil {
		c.Fatal(err)
	}
	closing = func() { _ = conn.Close() }
	c.Cleanup(closing)
	_, err = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		closing() // it must not try again
	}
	return closing, err
}

// anyone are the credentials of clients without a certificate.
func (c *crowded) anyone() credentials.TransportCredentials {
	return credentials.NewTLS(tlsconf.Trust{Roots: c.ca.Roots}.Config(nil, nil))
}

func TestConnectionsAboveALimitAreRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, Limits{PerAddress: 2, Total: func() int { return 4 }}, true)
	want := func(from, because string) (closing func()) {
		t.Helper()
		closing, err := c.connect(from, c.anyone())
		switch {
		case because == "" && err != nil:
			t.Fatalf("%s: %v", from, err)
		case because != "" && (status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), because)):
			t.Fatalf("%s: got %v, want %q", from, err, because)
		}
		return closing
	}
	first := want("10.0.0.1:1", "")
	want("10.0.0.1:2", "")
	want("10.0.0.1:3", "too many connections from your address: close some, or set dtaskd --max-connections-per-address")
	want("127.0.0.1:1", "") // this machine is not limited by its address
	want("127.0.0.1:2", "")
	want("10.0.0.2:1", "this coordinator has as many connections as it can serve: retry later")
	if n := c.mux.Served(); n != 4 {
		t.Errorf("%d connections are open", n)
	}
	first()
	await(t, func() bool { return c.mux.Served() == 3 })
	want("10.0.0.2:1", "")
	// A refused connection counts when it has ended.
	await(t, func() bool {
		got := c.mux.Refused()
		return got[string(connlimit.Address)] == 1 && got[string(connlimit.Total)] == 1 && got[refusedInvalid]+got[refusedHandshakes] == 0
	})
}

func TestReplicasAreServedOnAPortThatOthersFill(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, Limits{PerAddress: 1, Total: func() int { return 1 }}, true)
	if _, err := c.connect("10.0.0.1:1", c.anyone()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := c.connect("10.0.0.1:2", ClientCredentials(*c.ca.peering(t, "n2"))); err != nil {
			t.Errorf("a replica is refused: %v", err)
		}
	}
	peering := newAuthority(t).peering(t, "n2")
	foreign := peering.GRPCClient()
	foreign.VerifyConnection = nil // it doesn't care whom it reaches
	if _, err := c.connect("10.0.0.1:3", newPeerCredentials(foreign, peering.Source)); err == nil {
		t.Error("a replica of another cluster is served")
	}
	if n := c.mux.Served(); n != 1 {
		t.Errorf("%d connections count", n)
	}
}

func TestTheTotalOfConnectionsIsLimitedWithoutTLS(t *testing.T) {
	t.Parallel()
	c := newCrowded(t, Limits{PerAddress: 1, Total: func() int { return 2 }}, false)
	for range 2 {
		if _, err := c.connect("127.0.0.1:1", insecure.NewCredentials()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.connect("127.0.0.1:1", insecure.NewCredentials()); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "retry later") {
		t.Errorf("got %v", err)
	}
}

func TestRefusalsAreLoggedAtALimitedRate(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	m := &Mux{log: slog.New(slog.NewTextHandler(&lines, nil)), refused: newRefusals(portReasons)}
	for range 1000 {
		m.refuse(&addressedConn{from: "10.0.0.1:1"}, string(connlimit.Address))
		m.refuse(&addressedConn{from: "10.0.0.2:1"}, string(connlimit.Address))
	}
	if n := strings.Count(lines.String(), "connection refused because of a limit"); n != 1 || m.Refused()[string(connlimit.Address)] != 2000 {
		t.Errorf("%d lines about %v", n, m.Refused())
	}
}
