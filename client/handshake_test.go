package client

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
)

// soon is far below the hour for which calls are retried.
const soon = 5 * time.Minute

// wantUntrusted makes the calls that retry and those that ask all coordinators, and checks
// that they end early with a message.
func wantUntrusted(t *testing.T, cfg Config, parts ...string) {
	t.Helper()
	cfg.Timeout = time.Hour
	c := newClient(t, cfg)
	began := time.Now()
	_, call := c.WhoAmI(t.Context())
	_, status := c.ClusterStatus(t.Context())
	for _, err := range []error{call, status} {
		if !errors.Is(err, ErrUntrusted) || !errors.Is(err, ErrRefused) {
			t.Errorf("got %v, want ErrUntrusted", err)
			continue
		}
		for _, part := range parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("got %v, want %q in it", err, part)
			}
		}
	}
	if took := time.Since(began); took > soon {
		t.Errorf("it took %s", took)
	}
}

func TestACallToATrustedReplicaSucceeds(t *testing.T) {
	t.Parallel()
	ca, rec, token := newCA(t, testCluster, time.Now()), new(recorder), auth.NewToken()
	addr := serveRecorder(t, credentials.NewTLS(replicaTLS(t, ca, time.Now())), rec)
	c := newClient(t, Config{Addrs: []string{addr}, Credentials: trusting(t, ca), Token: token.Text()})
	if _, err := c.WhoAmI(t.Context()); err != nil {
		t.Fatal(err)
	}
	if headers, _ := rec.all(); len(headers) == 0 || headers[0] != token.Header() {
		t.Errorf("the token was not sent: %d headers", len(headers))
	}
}

func TestAnotherCAIsRefusedAtOnceWithBothKeys(t *testing.T) {
	t.Parallel()
	ca, other := newCA(t, testCluster, time.Now()), newCA(t, testCluster, time.Now())
	x := intercept(t, replicaTLS(t, other, time.Now()))
	wantUntrusted(t, Config{Addrs: []string{x.addr}, Credentials: trusting(t, ca), Token: auth.NewToken().Text()},
		x.addr+": ", keyText(tlsconf.KeyHash(ca.Cert)), keyText(tlsconf.KeyHash(other.Cert)))
	if got := x.received(); len(got) > 0 {
		t.Errorf("%d bytes were sent", len(got))
	}
}

func TestAWrongClockIsReportedAtOnceWithTheDifference(t *testing.T) {
	t.Parallel()
	// A certificate is valid for 90 days, from an hour before it is issued.
	const day = 24 * time.Hour
	for off, issued := range map[string]time.Time{
		"1824 days behind": time.Now().Add(1825 * day), "1735 days ahead": time.Now().Add(-1825*day - time.Hour),
	} {
		t.Run(off, func(t *testing.T) {
			t.Parallel()
			ca := newCA(t, testCluster, issued)
			addr := serveTCP(t, credentials.NewTLS(replicaTLS(t, ca, issued)), &fake{})
			cfg := Config{Addrs: []string{addr}, Credentials: trusting(t, ca)}
			wantUntrusted(t, cfg, "this machine's clock shows", "check this machine's clock, which is at least "+off)
			if _, err := newClient(t, cfg).WhoAmI(t.Context()); !errors.Is(err, ErrClock) {
				t.Errorf("got %v, want ErrClock", err)
			}
		})
	}
}

func TestTLSOnOneSideOnlyIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	ca := newCA(t, testCluster, time.Now())
	secured := serveTCP(t, credentials.NewTLS(replicaTLS(t, ca, time.Now())), &fake{})
	plain := serveTCP(t, nil, &fake{})
	t.Run("coordinator", func(t *testing.T) {
		t.Parallel()
		wantUntrusted(t, Config{Addrs: []string{secured}}, secured+": the coordinator uses TLS", "--ca-file")
	})
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		wantUntrusted(t, Config{Addrs: []string{plain}, Credentials: trusting(t, ca)}, plain+": the coordinator does not use TLS")
	})
}

// brokenConn is a connection whose other end was killed.
type brokenConn struct{ net.Conn }

// Read implements net.Conn.
func (brokenConn) Read([]byte) (int, error) { return 0, io.EOF }

// A coordinator that is killed during a handshake and restarted at once must not be taken
// for one without TLS, although its port answers clients without TLS.
func TestABrokenHandshakeIsRepeated(t *testing.T) {
	t.Parallel()
	ca := newCA(t, testCluster, time.Now())
	replica := savedReplica(t, ca, time.Now())
	mux := transport.NewMux(listen(t, "tcp", "127.0.0.1:0"), slog.New(slog.DiscardHandler))
	mux.Secure(tlsconf.Peering{Source: func() *tlsconf.Replica { return replica }})
	serveMux(t, mux)
	var dials atomic.Int64
	breakFirst := func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil || dials.Add(1) > 1 {
			return conn, err
		}
		return brokenConn{conn}, nil
	}
	c := newClient(t, Config{Addrs: []string{mux.Addr().String()}, Credentials: trusting(t, ca), Dial: breakFirst})
	if _, err := c.WhoAmI(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAnUntrustedAddressDoesNotHideATrustedOne(t *testing.T) {
	t.Parallel()
	ca, other := newCA(t, testCluster, time.Now()), newCA(t, testCluster, time.Now())
	bad := serveTCP(t, credentials.NewTLS(replicaTLS(t, other, time.Now())), &fake{})
	old := serveTCP(t, credentials.NewTLS(replicaTLS(t, ca, time.Now().Add(-200*24*time.Hour))), &fake{})
	for _, addrs := range [][]string{{bad, old}, {old, bad}} {
		_, err := newClient(t, Config{Addrs: addrs, Credentials: trusting(t, ca)}).WhoAmI(t.Context())
		if !errors.Is(err, ErrUntrusted) || errors.Is(err, ErrClock) {
			t.Errorf("got %v, want ErrUntrusted: another clock does not help with both", err)
		}
	}
	good := serveRecorder(t, credentials.NewTLS(replicaTLS(t, ca, time.Now())), new(recorder))
	c := newClient(t, Config{Addrs: []string{bad, good}, Credentials: trusting(t, ca)})
	if _, err := c.WhoAmI(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAnUnreachableAddressBesideAnUntrustedOneDelaysTheErrorForSecondsOnly(t *testing.T) {
	t.Parallel()
	ca, other := newCA(t, testCluster, time.Now()), newCA(t, testCluster, time.Now())
	bad := serveTCP(t, credentials.NewTLS(replicaTLS(t, other, time.Now())), &fake{})
	l := listen(t, "tcp", "127.0.0.1:0")
	gone := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, Config{Addrs: []string{gone, bad}, Credentials: trusting(t, ca), Timeout: time.Hour})
	began := time.Now()
	if _, err := c.WhoAmI(t.Context()); !errors.Is(err, ErrUntrusted) || time.Since(began) > soon {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

func TestTrustNeedsACA(t *testing.T) {
	t.Parallel()
	for name, trust := range map[string]Trust{
		"nothing": {}, "a missing file": {CAFile: t.TempDir() + "/ca.crt"}, "a short key": {CAKeys: []string{"sha256:00"}},
		"no certificate": {CA: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
	} {
		if _, err := trust.Credentials(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
