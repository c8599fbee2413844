package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/dtask/dtask/coordinator/transport"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
)

// newCA returns the CA of a cluster that is as old as now says.
func newCA(t *testing.T, cluster string, now time.Time) *tlsconf.CA {
	t.Helper()
	ca, err := tlsconf.NewCA(cluster, now)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// replicaTLS returns the configuration of a replica's port, with a certificate that the CA
// issues at a time.
func replicaTLS(t *testing.T, ca *tlsconf.CA, now time.Time) *tls.Config {
	t.Helper()
	replica := savedReplica(t, ca, now)
	peering := tlsconf.Peering{Source: func() *tlsconf.Replica { return replica }}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: peering.GetConfigForClient}
}

// savedReplica returns the certificates of a replica, which the CA issues at a time.
func savedReplica(t *testing.T, ca *tlsconf.CA, now time.Time) *tlsconf.Replica {
	t.Helper()
	key, err := tlsconf.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: "n1", Key: key.Public()}, now)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := tlsconf.Save(dir, cert, key, ca.Cert); err != nil {
		t.Fatal(err)
	}
	replica, err := tlsconf.LoadReplica(dir)
	if err != nil {
		t.Fatal(err)
	}
	return replica
}

// serveMux serves a fake behind the port of a coordinator until the test ends.
func serveMux(t *testing.T, mux *transport.Mux) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // ended below
	ran := make(chan error, 1)                              // size 1: its result
	go func() { ran <- mux.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ran })
	serveListener(t, mux.GRPC(), transport.ServerCredentials(), new(fake), nil)
}

// trusting returns the credentials of a client that trusts a CA by its key.
func trusting(t *testing.T, ca *tlsconf.CA) credentials.TransportCredentials {
	t.Helper()
	creds, err := Trust{CAKeys: []string{keyText(tlsconf.KeyHash(ca.Cert))}}.Credentials()
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

// joinStringFor returns a join string of testCluster for a CA and an address.
func joinStringFor(t *testing.T, ca *tlsconf.CA, purpose auth.Purpose, addr string) (*auth.JoinString, Secret) {
	t.Helper()
	j := &auth.JoinString{ClusterID: testCluster, CAKey: tlsconf.KeyHash(ca.Cert), ID: 5, Secret: auth.NewJoinSecret(), Purpose: purpose, Addresses: []string{addr}}
	text, err := j.Text()
	if err != nil {
		t.Fatal(err)
	}
	return j, text
}

// An interceptor is a server with a certificate of its own, which keeps everything that
// clients send to it over TLS.
type interceptor struct {
	addr string

	mu  sync.Mutex // guards got
	got bytes.Buffer
}

// intercept serves an interceptor until the test ends.
func intercept(t *testing.T, cfg *tls.Config) *interceptor {
	t.Helper()
	l := listen(t, "tcp", "127.0.0.1:0")
	x := &interceptor{addr: l.Addr().String()}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { x.serve(raw, cfg) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return x
}

func (x *interceptor) serve(raw net.Conn, cfg *tls.Config) {
	defer func() { _ = raw.Close() }()
	data, _ := io.ReadAll(tls.Server(raw, cfg))
	x.mu.Lock()
	defer x.mu.Unlock()
	x.got.Write(data)
}

// received returns what was sent after the handshakes.
func (x *interceptor) received() []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	return bytes.Clone(x.got.Bytes())
}
