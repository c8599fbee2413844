package worker

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/test/bufconn"

	"github.com/dtask/dtask/client"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// joinable is a replica with TLS whose answers to Join the test gives.
type joinable struct {
	dtaskv1.UnimplementedAuthServiceServer

	*node
	ca    *tlsconf.CA
	cert  atomic.Pointer[tlsconf.Replica]
	join  func(*dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error)
	joins chan *dtaskv1.JoinRequest // that were received
	keys  chan [32]byte             // of the workers that opened a stream
}

// listenTLS starts a replica of a cluster with its own CA.
func (n *network) listenTLS(t *testing.T, addr string) *joinable {
	t.Helper()
	ca, err := tlsconf.NewCA(cluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	j := &joinable{ca: ca, joins: make(chan *dtaskv1.JoinRequest, 64), keys: make(chan [32]byte, 64)}
	j.join = func(r *dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error) {
		return &dtaskv1.JoinResponse{
			Identity: &dtaskv1.Identity{Id: 9, Name: r.GetName()}, ClusterId: cluster, Addresses: []string{addr}, Roots: [][]byte{ca.Cert.Raw},
		}, nil
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(j.tlsConfig(t))), grpc.StreamInterceptor(j.noteKey))
	j.node = &node{listener: bufconn.Listen(1 << 20), server: server, sessions: make(chan *leaderEnd, 64), patience: n.patience}
	dtaskv1.RegisterWorkerServiceServer(server, j.node)
	dtaskv1.RegisterClusterServiceServer(server, j.node)
	dtaskv1.RegisterAuthServiceServer(server, j)
	n.mu.Lock()
	n.nodes[addr] = j.node
	n.mu.Unlock()
	go func() { _ = server.Serve(j.listener) }() // stop ends it
	return j
}

// tlsConfig returns the configuration of the replica, with a certificate of its CA.
func (j *joinable) tlsConfig(t *testing.T) *tls.Config {
	t.Helper()
	j.certify(t, j.ca, time.Now())
	peering := tlsconf.Peering{Source: j.cert.Load}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: peering.GetConfigForClient}
}

// certify gives the replica a certificate that a CA issues at a time, for further
// connections.
func (j *joinable) certify(t *testing.T, ca *tlsconf.CA, at time.Time) {
	t.Helper()
	key, err := tlsconf.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: "n1", Key: key.Public()}, at)
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
	j.cert.Store(replica)
}

// noteKey notes the key of a worker.
func (j *joinable) noteKey(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	p, _ := peer.FromContext(s.Context())
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
		j.keys <- tlsconf.KeyHash(info.State.PeerCertificates[0])
	}
	return handle(srv, s)
}

func (j *joinable) Join(_ context.Context, r *dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error) {
	j.joins <- r
	return j.join(r)
}

// joinString returns a join string for workers of a CA, which leads to n1:1.
func joinString(t *testing.T, ca *tlsconf.CA, clusterID string) client.Secret {
	t.Helper()
	j := &auth.JoinString{ClusterID: clusterID, CAKey: tlsconf.KeyHash(ca.Cert), ID: 5, Secret: auth.NewJoinSecret(), Purpose: auth.JoinWorker, Addresses: []string{"n1:1"}}
	text, err := j.Text()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// member starts a worker as cfg says, and ends it with the test.
func member(t *testing.T, n *network, cfg Config, prepare ...func(*Worker)) *harness {
	t.Helper()
	cfg.DrainTimeout = -1
	b := &harness{network: n, logs: &logBuffer{}, done: make(chan error, 1)}
	w, err := New(cfg, WithDialer(n.dial), WithLogger(slog.New(slog.NewTextHandler(b.logs, nil))))
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("echo", returns)
	for _, f := range prepare {
		f(w)
	}
	b.run(t, w)
	return b
}

// runs waits for a session, checks the worker's key and name, and ends the worker.
func (b *harness) runs(t *testing.T, j *joinable, key [32]byte) {
	t.Helper()
	l := <-j.sessions
	if got := l.hello.GetHello().GetName(); got != "w1" {
		t.Errorf("the worker has the name %s, want w1", got)
	}
	if got := <-j.keys; got != key {
		t.Error("the worker connects with another key than it joined with")
	}
	l.welcome(t, 1)
	b.drain()
	if err := <-b.done; err != nil {
		t.Error(err)
	}
}

func TestAWorkerJoinsOnceAndConnectsWithItsKeyFromThenOn(t *testing.T) {
	t.Parallel()
	n, dir := newRealNetwork(t), t.TempDir()
	defer n.stopAll()
	j := n.listenTLS(t, "n1:1")
	text := joinString(t, j.ca, cluster)
	first := member(t, n, Config{JoinString: text, Name: "w1", WorkDir: dir})
	joined := <-j.joins
	key := [32]byte(joined.GetPublicKeyHash())
	if joined.GetPurpose() != "worker" || joined.GetName() != "w1" || joined.GetReplace() {
		t.Errorf("got %v", joined)
	}
	first.runs(t, j, key)

	// The string is used up now, and is no longer needed.
	j.join = func(*dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error) {
		return nil, refused(codes.PermissionDenied, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_REFUSED})
	}
	for _, cfg := range []Config{{WorkDir: dir}, {WorkDir: dir, JoinString: text, Name: "w1"}, {WorkDir: dir, Join: []string{"n9:1"}}} {
		member(t, n, cfg).runs(t, j, key)
	}
	if len(j.joins) > 0 {
		t.Error("the worker joined again")
	}
	for _, name := range []string{membershipFile, tlsconf.WorkerKeyFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	kept, err := os.ReadFile(filepath.Join(dir, membershipFile)) //nolint:gosec // a file of this test
	if err != nil || strings.Contains(string(kept), text.Reveal()[90:120]) || first.logs.has(text.Reveal()[90:120]) {
		t.Errorf("the secret of the join string was kept or logged: %v", err)
	}
}

func TestAJoinStringOfAnotherClusterIsRefusedByAMember(t *testing.T) {
	t.Parallel()
	n, dir := newRealNetwork(t), t.TempDir()
	defer n.stopAll()
	j := n.listenTLS(t, "n1:1")
	b := member(t, n, Config{JoinString: joinString(t, j.ca, cluster), Name: "w1", WorkDir: dir})
	b.runs(t, j, [32]byte((<-j.joins).GetPublicKeyHash()))

	const elsewhere = "ffffffffffffffffffffffffffffffff"
	other := member(t, n, Config{JoinString: joinString(t, j.ca, elsewhere), WorkDir: dir})
	if err := <-other.done; !isJoinError(err) || !strings.Contains(err.Error(), elsewhere) || !strings.Contains(err.Error(), "is a member of cluster "+cluster) {
		t.Errorf("got %v", err)
	}
	renamed := member(t, n, Config{Name: "w2", WorkDir: dir})
	if err := <-renamed.done; err == nil || !strings.Contains(err.Error(), `invalid --name "w2"`) || !strings.Contains(err.Error(), "as w1") {
		t.Errorf("got %v", err)
	}
}

func isJoinError(err error) bool {
	_, ok := errors.AsType[*JoinError](err)
	return ok
}

func TestARefusedJoinEndsTheWorkerAndKeepsNoMembership(t *testing.T) {
	t.Parallel()
	n := newRealNetwork(t)
	defer n.stopAll()
	j, other := n.listenTLS(t, "n1:1"), n.listenTLS(t, "n2:1")
	j.join = func(*dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error) {
		return nil, refused(codes.PermissionDenied, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_REFUSED})
	}
	for name, test := range map[string]struct {
		text  client.Secret
		kind  error
		joins int
	}{
		"refused":    {joinString(t, j.ca, cluster), client.ErrRefused, 1},
		"another CA": {joinString(t, other.ca, cluster), client.ErrUntrusted, 0},
	} {
		dir := t.TempDir()
		b := member(t, n, Config{JoinString: test.text, Name: "w1", WorkDir: dir})
		if err := <-b.done; !isJoinError(err) || !errors.Is(err, test.kind) || strings.Contains(err.Error(), test.text.Reveal()[90:120]) {
			t.Errorf("%s: got %v", name, err)
		}
		if got := len(j.joins); got != test.joins {
			t.Errorf("%s: %d secrets were sent, want %d", name, got, test.joins)
		}
		for range len(j.joins) {
			<-j.joins
		}
		if _, err := os.Stat(filepath.Join(dir, membershipFile)); err == nil {
			t.Errorf("%s: a membership was kept", name)
		}
	}
}

func TestAWorkerWithoutAGivenNameJoinsUnderAnotherOne(t *testing.T) {
	t.Parallel()
	n := newRealNetwork(t)
	defer n.stopAll()
	j := n.listenTLS(t, "n1:1")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	accept, taken := j.join, []string{nameFrom(host), "w1"}
	j.join = func(r *dtaskv1.JoinRequest) (*dtaskv1.JoinResponse, error) {
		if r.GetReplace() || !slices.Contains(taken, r.GetName()) {
			return accept(r)
		}
		return nil, refused(codes.AlreadyExists, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_CONFLICT})
	}
	b := member(t, n, Config{JoinString: joinString(t, j.ca, cluster), WorkDir: t.TempDir()})
	first, second := <-j.joins, (*dtaskv1.JoinRequest)(nil)
	select {
	case second = <-j.joins:
	case err := <-b.done:
		t.Fatal(err)
	}
	if !strings.HasPrefix(second.GetName(), first.GetName()+"-") || !bytes.Equal(second.GetPublicKeyHash(), first.GetPublicKeyHash()) {
		t.Errorf("joined as %s, then as %s", first.GetName(), second.GetName())
	}
	l := <-j.sessions // else it may connect before it is drained, or not
	<-j.keys
	l.welcome(t, 1)
	b.drain()
	<-b.done

	given := member(t, n, Config{JoinString: joinString(t, j.ca, cluster), Name: "w1", WorkDir: t.TempDir()})
	if err := <-given.done; !isJoinError(err) || !strings.Contains(err.Error(), "--replace") {
		t.Errorf("got %v", err)
	}
	for len(j.joins) > 0 {
		<-j.joins
	}
	replacing := member(t, n, Config{JoinString: joinString(t, j.ca, cluster), Name: "w1", Replace: true, WorkDir: t.TempDir()})
	replaced := <-j.joins
	replacing.runs(t, j, [32]byte(replaced.GetPublicKeyHash()))
}

func TestAWorkerKeepsTryingToJoinWhileNoCoordinatorIsInReach(t *testing.T) {
	t.Parallel()
	n := newRealNetwork(t)
	b := member(t, n, Config{JoinString: joinString(t, newTestCA(t), cluster), Name: "w1", WorkDir: t.TempDir()})
	b.drain()
	if err := <-b.done; err != nil {
		t.Errorf("got %v after a signal, want nil: nothing was begun", err)
	}
}

// A machine without a battery for its clock starts in 1970, or years ahead, and corrects its
// clock once it is on the network. By its clock, the certificate is one of another time.
func TestAWorkerWithAWrongClockJoinsAndConnectsOnceItsClockIsRight(t *testing.T) {
	t.Parallel()
	const years = 5 * 365 * 24 * time.Hour
	for off, wrong := range map[string]time.Time{"behind": time.Now().Add(years), "ahead": time.Now().Add(-years)} {
		t.Run(off, func(t *testing.T) {
			t.Parallel()
			n, dir := newRealNetwork(t), t.TempDir()
			defer n.stopAll()
			j := n.listenTLS(t, "n1:1")
			j.certify(t, j.ca, wrong)
			b := member(t, n, Config{JoinString: joinString(t, j.ca, cluster), Name: "w1", WorkDir: dir})
			b.complains(t, "cluster not joined yet", off)
			if len(j.joins) > 0 {
				t.Error("a secret was sent")
			}
			j.certify(t, j.ca, time.Now())
			key := [32]byte((<-j.joins).GetPublicKeyHash())
			b.runs(t, j, key)

			j.certify(t, j.ca, wrong)
			b = member(t, n, Config{WorkDir: dir})
			b.complains(t, "no session", off)
			j.certify(t, j.ca, time.Now())
			b.runs(t, j, key)
		})
	}
}

// complains waits until the worker has logged that its clock is off.
func (b *harness) complains(t *testing.T, message, off string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(2 * time.Minute); !b.logs.has(message) || !b.logs.has(" days "+off); {
		select {
		case err := <-b.done:
			t.Fatalf("the worker ended with %v", err)
		case <-limit:
			t.Fatalf("the worker did not log %q", message)
		case <-tick.C:
		}
	}
}

func newTestCA(t *testing.T) *tlsconf.CA {
	t.Helper()
	ca, err := tlsconf.NewCA(cluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestFaultsOfAJoinStringAreFoundBeforeTheWorkerStarts(t *testing.T) {
	t.Parallel()
	text := joinString(t, newTestCA(t), cluster)
	user := &auth.JoinString{ClusterID: cluster, ID: 1, Purpose: auth.JoinUser, Addresses: []string{"n1:1"}}
	userText, err := user.Text()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		cfg  Config
		want string
		join bool // a *JoinError
	}{
		"nothing":     {Config{}, "missing --join: a join string or at least one HOST:PORT is required", false},
		"cut":         {Config{JoinString: text[:len(text)-4]}, "invalid --join: damaged join string", false},
		"for a user":  {Config{JoinString: userText}, "is for a user (dtaskctl login STRING), not for a worker", true},
		"with a CA":   {Config{JoinString: text, TLS: &tls.Config{MinVersion: tls.VersionTLS13}}, "mutually exclusive", false},
		"as address":  {Config{Join: []string{text.Reveal()[3:]}}, `invalid --join "…": must be HOST:PORT`, false},
		"off machine": {Config{Join: []string{"10.0.0.1:1"}}, "must be a loopback address", false},
	} {
		test.cfg.WorkDir = t.TempDir()
		_, err := New(test.cfg)
		if err == nil || !strings.Contains(err.Error(), test.want) || isJoinError(err) != test.join || strings.Contains(err.Error(), text.Reveal()[90:120]) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
}
