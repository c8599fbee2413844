package client

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// tlsServer is a coordinator with TLS that only identifies itself.
type tlsServer struct {
	dtaskv1.UnimplementedClusterServiceServer

	address, caFile, keyHash string
}

func (*tlsServer) Identify(context.Context, *dtaskv1.IdentifyRequest) (*dtaskv1.IdentifyResponse, error) {
	return &dtaskv1.IdentifyResponse{ServerId: "n1", ClusterId: strings.Repeat("ab", 16), Version: "v1"}, nil
}

// serveTLS serves with a certificate that was issued at a time and is valid for a day.
func serveTLS(t *testing.T, at time.Time) *tlsServer {
	t.Helper()
	ca, err := tlsconf.NewCA(tlsconf.NewClusterID(), at)
	if err != nil {
		t.Fatal(err)
	}
	key, err := tlsconf.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: "n1", Key: key.Public(), Validity: 24 * time.Hour}, at)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := tlsconf.Save(dir, cert, key, ca.Roots...); err != nil {
		t.Fatal(err)
	}
	replica, err := tlsconf.LoadReplica(dir)
	if err != nil {
		t.Fatal(err)
	}
	peering := tlsconf.Peering{Source: func() *tlsconf.Replica { return replica }}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, GetConfigForClient: peering.GetConfigForClient})))
	s := &tlsServer{address: l.Addr().String(), caFile: filepath.Join(dir, tlsconf.CAFile)}
	hash := tlsconf.KeyHash(ca.Cert)
	s.keyHash = "sha256:" + hex.EncodeToString(hash[:])
	dtaskv1.RegisterClusterServiceServer(server, s)
	done := make(chan error, 1) // size 1: the result of Serve
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// identifyWith asks a coordinator. Errors that can't change must not be retried until the
// timeout, which is longer than the test may take.
func identifyWith(t *testing.T, creds credentials.TransportCredentials, addrs ...string) error {
	t.Helper()
	c, err := New(Config{Addrs: addrs, Credentials: creds, Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err = c.Identify(t.Context()); err != nil {
		_, err = c.Job(t.Context(), "1", ReadOptions{}) // which is retried
	}
	return err
}

func TestAClientTrustsTheCAOfItsCluster(t *testing.T) {
	t.Parallel()
	s := serveTLS(t, time.Now())
	byFile, err := TLS(s.caFile)
	if err != nil {
		t.Fatal(err)
	}
	byKey, err := TLSWithKey(s.keyHash)
	if err != nil {
		t.Fatal(err)
	}
	for name, creds := range map[string]credentials.TransportCredentials{"file": byFile, "key": byKey} {
		if err := identifyWith(t, creds, s.address); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := TLS(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file is accepted")
	}
	if _, err := TLSWithKey("abc"); err == nil {
		t.Error("an invalid hash is accepted")
	}
}

func TestACoordinatorThatIsNotTrustedIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s, other, old := serveTLS(t, time.Now()), serveTLS(t, time.Now()), serveTLS(t, time.Now().Add(-48*time.Hour))
	for want, c := range map[string]struct{ caFile, address string }{
		"the server belongs to another cluster, or someone intercepts the connection": {other.caFile, s.address},
		"expired 24h0m": {old.caFile, old.address},
	} {
		creds, err := TLS(c.caFile)
		if err != nil {
			t.Fatal(err)
		}
		if err := identifyWith(t, creds, c.address); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), c.address) || strings.Contains(err.Error(), "authentication handshake") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	// One that is not trusted does not matter beside one that is.
	creds, err := TLS(s.caFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := identifyWith(t, creds, other.address, s.address); err != nil {
		t.Error(err)
	}
}
