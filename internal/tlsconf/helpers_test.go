package tlsconf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dtask/dtask/test/leak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(leak.Patient{M: m}) }

// testTimeout bounds every wait; it guards against hanging and measures nothing.
const testTimeout = 2 * time.Minute

const testCluster = "0123456789abcdef0123456789abcdef"

var testNow = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func newTestCA(t *testing.T) *CA {
	t.Helper()
	ca, err := NewCA(testCluster, testNow)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// issue writes the certificate of a replica to a directory.
func issue(t *testing.T, ca *CA, dir string, r ReplicaRequest) {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	r.Key = key.Public()
	cert, err := ca.IssueReplica(r, testNow)
	if err != nil {
		t.Fatal(err)
	}
	if err := Save(dir, cert, key, ca.Cert); err != nil {
		t.Fatal(err)
	}
}

// replica issues a certificate and loads it.
func replica(t *testing.T, ca *CA, r ReplicaRequest) *Replica {
	t.Helper()
	dir := t.TempDir()
	issue(t, ca, dir, r)
	loaded, err := LoadReplica(dir)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// peering is a replica's at testNow.
func peering(r *Replica) Peering {
	return Peering{Source: func() *Replica { return r }, Now: func() time.Time { return testNow }}
}

// handshake connects a client to a server and returns both errors and the server's view.
func handshake(t *testing.T, server, client *tls.Config) (state tls.ConnectionState, serverErr, clientErr error) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	type result struct {
		state tls.ConnectionState
		err   error
	}
	done := make(chan result, 1) // size 1: the server's result
	go func() {
		raw, err := l.Accept()
		if err != nil {
			done <- result{err: err}
			return
		}
		conn := tls.Server(raw, server)
		defer func() { _ = raw.Close() }()
		if err = conn.HandshakeContext(ctx); err == nil {
			_, err = conn.Write([]byte{1})
		}
		done <- result{conn.ConnectionState(), err}
	}()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, client)
	if clientErr = conn.HandshakeContext(ctx); clientErr == nil {
		// A server verifies its client after the client's handshake.
		if err := conn.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
			t.Fatal(err)
		}
		_, clientErr = conn.Read(make([]byte, 1))
	}
	_ = raw.Close()
	served := <-done
	return served.state, served.err, clientErr
}

// connect is handshake where both sides must accept.
func connect(t *testing.T, server, client *tls.Config) tls.ConnectionState {
	t.Helper()
	state, serverErr, clientErr := handshake(t, server, client)
	if err := errors.Join(serverErr, clientErr); err != nil {
		t.Fatal(err)
	}
	return state
}

// serverTLS is the configuration of a replica's port.
func serverTLS(p Peering) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: p.GetConfigForClient}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want an error with %q", err, part)
		}
	}
}

func writeFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func readTestFile(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // a file of this test
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func parsed(t *testing.T, pair tls.Certificate) *x509.Certificate {
	t.Helper()
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// roots are what trusts the CA.
func (ca *CA) roots() []*x509.Certificate { return []*x509.Certificate{ca.Cert} }
