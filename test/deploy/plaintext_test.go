//go:build linux

package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// wantRefused checks that a command was refused with a text.
func wantRefused(t *testing.T, a cluster.Answer, code int, text string) {
	t.Helper()
	if a.Code != code || !strings.Contains(a.Stderr, text) {
		t.Errorf("got %s, want exit code %d and %q", a, code, text)
	}
}

// On a machine whose address others reach, each program refuses to use it without TLS.
// Nothing listens there, and nothing is left behind.
func TestPlaintextOffLoopbackIsRefused(t *testing.T) {
	s := newSite(t, "m1", "m2")
	m1, m2 := s.machines["m1"], s.machines["m2"]
	const certificates = "because other machines require TLS: create certificates with dtaskctl tls init and dtaskctl tls issue, and use --tls-dir"
	for _, flags := range []string{
		"--listen " + m1.address("7460"), "--listen m1:7460", "--listen :7460", "--listen 0.0.0.0:7460",
		"--listen 127.0.0.1:7460 --http " + m1.address("7461"), "--listen 127.0.0.1:7460 --advertise " + m1.address("7460"),
		"--listen 127.0.0.1:7460 --peers n1=127.0.0.1:7460,n2=" + m2.address("7460"),
	} {
		wantRefused(t, m1.run("", "dtaskd --id n1 --data-dir data "+flags), 2, certificates)
	}
	const ca = "because other machines require TLS: use the cluster's ca.crt (--ca-file, Config.TLS)"
	for _, address := range []string{m1.address("7460"), "m1:7460", "127.0.0.1:7460,m1:7460"} {
		wantRefused(t, m2.run("", "dtask-worker --work-dir work --join "+address), 2, ca)
		wantRefused(t, m2.run("", "dtaskctl list --addr "+address), 2, "this client has no CA of a cluster to secure the connection: log in with dtaskctl login, or set --ca-file")
	}
	wantRefused(t, m2.run("", "dtask-worker --join 127.0.0.1:7460 --http "+m2.address("7463")), 2, "because workers serve metrics without TLS")
	if a := m1.run("", "ls data"); a.Code == 0 {
		t.Errorf("a refused dtaskd left its data directory: %s", a)
	}
	if conn, err := m2.dial(t.Context(), m1.address("7460")); err == nil {
		t.Errorf("something listens: %v", conn.Close())
	}
}

// A client that uses TLS and a coordinator that does not, or the other way round: each
// program reports that as the reason, after one try.
func TestOneSideWithoutTLSGetsAClearError(t *testing.T) {
	s := newSite(t, "m1", "m2", "m3")
	secured, plain := s.machines["m1"], s.machines["m2"]
	s.await(secured.start("m1", "dtaskd init --advertise m1:7460 --http m1:7461 --now"), "dtaskctl login")
	authority := filepath.Join(secured.data(), "tls", "ca.crt")
	plain.start("m2", "dtaskd --id n1 --data-dir data --listen 127.0.0.1:7460 --http 127.0.0.1:7461 --peers n1=127.0.0.1:7460")
	s.until("the coordinator without TLS answers", func() error {
		return plain.run("", "dtaskctl list --addr 127.0.0.1:7460").Err()
	})

	const needTLS = "the coordinator uses TLS, and this client has no CA: log in with dtaskctl login, or set --ca-file"
	const noTLS = "the coordinator does not use TLS, and this client has a CA: check the address"
	began := time.Now()
	a := secured.run("", "dtaskctl list --addr 127.0.0.1:7460")
	if a.Code != 6 || !strings.Contains(a.Stderr, needTLS) && !strings.Contains(a.Stderr, "this port requires TLS: use --ca-file") {
		t.Errorf("plaintext to a port with TLS: %s", a)
	}
	wantRefused(t, plain.run("", "dtaskctl list --addr 127.0.0.1:7460 --ca-file "+authority), 6, noTLS)
	if took := time.Since(began); took > guard/2 {
		t.Errorf("the refusals took %v: they were repeated", took)
	}
	s.plaintextFromElsewhere()
	for name, line := range map[string]string{
		"to-secured": "dtask-worker --work-dir work --join 127.0.0.1:7460",
		"to-plain":   "dtask-worker --work-dir work --join 127.0.0.1:7460 --ca-file " + authority,
	} {
		at := map[string]*machine{"to-secured": secured, "to-plain": plain}[name]
		s.await(at.start(name, line), "TLS")
	}
	s.plaintextToHTTP()
}

// plaintextFromElsewhere calls the secured coordinator from another machine with a client
// of the Go library that has a dialer of its own, and so is not refused at once.
func (s *site) plaintextFromElsewhere() {
	s.t.Helper()
	c, err := client.New(client.Config{Addrs: []string{"m1:7460"}, Dial: s.machines["m3"].dial})
	clustertest.Must(s.t, err)
	_, err = c.ClusterStatus(s.t.Context())
	if !errors.Is(err, client.ErrUntrusted) && !errors.Is(err, client.ErrRefused) || !strings.Contains(fmt.Sprint(err), "TLS") {
		s.t.Errorf("plaintext from another machine: %v", err)
	}
	clustertest.Must(s.t, c.Close())
}

// plaintextToHTTP asks the port for metrics.
func (s *site) plaintextToHTTP() {
	s.t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return s.machines["m3"].dial(ctx, address)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://m1:7461/metrics", nil)
	clustertest.Must(s.t, err)
	answer, err := transport.RoundTrip(request)
	clustertest.Must(s.t, err)
	text, err := io.ReadAll(answer.Body)
	clustertest.Must(s.t, errors.Join(err, answer.Body.Close()))
	if answer.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "HTTP request to an HTTPS server") {
		s.t.Errorf("plaintext to --http: %s: %s", answer.Status, text)
	}
}
