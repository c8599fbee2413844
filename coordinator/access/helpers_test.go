package access

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// startMS is the time at which every fixture starts.
const startMS = 1_800_000_000_000

// fixture is a service and its registry on a state without a log.
type fixture struct {
	*Service

	t        *testing.T
	registry *Registry
	machine  *fsm.Machine
	ca       *tlsconf.CA
	cluster  string

	mu       sync.Mutex
	nowMS    int64
	leads    bool
	isolated bool
	noCAKey  bool
	members  []Member
	noTime   bool   // the clocks are not compared yet
	removed  string // server id
}

// The real one satisfies the interface, too.
var (
	_ Recorder = (*memRecorder)(nil)
	_ Recorder = (*sequencer.Sequencer)(nil)
)

func setup(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, machine: fsm.NewMachine(), nowMS: startMS, leads: true, cluster: tlsconf.NewClusterID(), members: []Member{{"n1", "m1:7460"}}}
	ca, err := tlsconf.NewCA(f.cluster, time.UnixMilli(startMS))
	must(t, err)
	f.ca = ca
	own := f.replica("n1")
	f.registry = New(Config{
		Machine: f.machine, Replica: func() *tlsconf.Replica { return own }, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.UnixMilli(f.clock()) }, TimeKnown: func() bool { return !f.noTime },
		Leads: func() bool { return f.leads }, Isolated: func() bool { return f.isolated },
		Removed: func(id string) bool { return id == f.removed },
	})
	f.Service = NewService(ServiceConfig{
		Registry: f.registry, Logger: slog.New(slog.DiscardHandler), Recorder: func() Recorder {
			if !f.leads {
				return nil
			}
			return &memRecorder{f}
		},
		Confirm: func(context.Context) error { return nil }, ClusterID: func() string { return f.cluster },
		Members: func() []Member { return f.members },
		CheckIssue: func() error {
			if f.noCAKey {
				return &RefusedError{Reason: "the key of the CA is elsewhere"}
			}
			return nil
		},
		Issue: func(id string, hosts []string, key crypto.PublicKey) (Issued, error) {
			cert, err := f.ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: id, Hosts: hosts, Key: key}, time.UnixMilli(f.clock()))
			if err != nil {
				return Issued{}, err
			}
			return Issued{Certificate: cert.Raw, CAKey: []byte("key")}, nil
		},
	})
	r := &memRecorder{f}
	must(t, r.do(&fsm.SetClusterID{ID: f.cluster}))
	must(t, r.do(&fsm.SetLevel{Level: fsm.MaxLevel}))
	return f
}

// run runs the registry until the test ends.
func (f *fixture) run() {
	f.t.Helper()
	ctx, stop := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.registry.Run(ctx)
	}()
	f.t.Cleanup(func() {
		stop()
		<-done
	})
}

func (f *fixture) clock() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nowMS
}

func (f *fixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nowMS += d.Milliseconds()
}

// replica returns a replica with a certificate of the cluster's CA.
func (f *fixture) replica(id string) *tlsconf.Replica {
	f.t.Helper()
	return issued(f.t, f.ca, id)
}

func issued(t *testing.T, ca *tlsconf.CA, id string) *tlsconf.Replica {
	t.Helper()
	dir := t.TempDir()
	key, err := tlsconf.NewKey()
	must(t, err)
	cert, err := ca.IssueReplica(tlsconf.ReplicaRequest{ServerID: id, Key: key.Public(), Validity: 24 * time.Hour}, time.UnixMilli(startMS))
	must(t, err)
	must(t, tlsconf.Save(dir, cert, key, ca.Cert))
	r, err := tlsconf.LoadReplica(dir)
	must(t, err)
	return r
}

// memRecorder applies operations without a log.
type memRecorder struct{ f *fixture }

func (r *memRecorder) do(op fsm.Op) error {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	fork, index := r.f.machine.Fork()
	b := fsm.NewEntryBuilder(fork, r.f.nowMS, &fsm.Effects{})
	reason := b.Do(op)
	if entry, _, ok := b.Finish(); ok {
		r.f.machine.Apply(index+1, fsm.Encode(nil, entry))
	}
	if reason != fsm.Accepted {
		return &sequencer.RejectedError{Reason: reason}
	}
	return nil
}

func (r *memRecorder) credential(c sequencer.NewCredential) fsm.Credential {
	made := fsm.Credential{Kind: c.Kind, Hash: c.Hash}
	if c.Lifetime != 0 {
		made.ExpiresMS = r.f.clock() + c.Lifetime.Milliseconds()
	}
	return made
}

func (r *memRecorder) CreateIdentity(_ context.Context, n sequencer.NewIdentity) (id fsm.IdentityID, err error) {
	err = r.do(&fsm.CreateIdentity{Name: n.Name, Grant: n.Grant, Credential: r.credential(n.Credential), CreatedBy: n.CreatedBy, CreatedMS: r.f.clock(), Key: n.Key})
	return r.made(0, n.Key), err
}

func (r *memRecorder) RedeemJoinToken(_ context.Context, j sequencer.Join) (id fsm.IdentityID, err error) {
	err = r.do(&fsm.RedeemJoinToken{
		Token: j.Token, SecretHash: j.SecretHash, Purpose: j.Purpose, Name: j.Name, Credential: r.credential(j.Credential),
		Replace: j.Replace, AtMS: r.f.clock(), Key: j.Key,
	})
	return r.made(j.Token, j.Key), err
}

// made returns the identity that a request made.
func (r *memRecorder) made(token fsm.JoinTokenID, key string) (id fsm.IdentityID) {
	r.f.machine.Read(func(st *fsm.State, _ uint64) {
		if i := st.IdentityByKey(token, key); i != nil {
			id = i.ID
		}
	})
	return id
}

func (r *memRecorder) CreateJoinToken(_ context.Context, n sequencer.NewJoinToken) (id fsm.JoinTokenID, err error) {
	op := &fsm.CreateJoinToken{
		Purpose: n.Purpose, Grant: n.Grant, NamePattern: n.NamePattern, Hash: n.Hash, Uses: n.Uses, CreatedBy: n.CreatedBy, CreatedMS: r.f.clock(), Key: n.Key,
	}
	if n.Lifetime != 0 {
		op.ExpiresMS = r.f.clock() + n.Lifetime.Milliseconds()
	}
	err = r.do(op)
	r.f.machine.Read(func(st *fsm.State, _ uint64) {
		if t := st.JoinTokenByKey(n.Key); t != nil {
			id = t.ID
		}
	})
	return id, err
}

func (r *memRecorder) AddCredential(_ context.Context, id fsm.IdentityID, c sequencer.NewCredential, overlap time.Duration) error {
	return r.do(&fsm.AddCredential{ID: id, Credential: r.credential(c), CreatedMS: r.f.clock(), OthersExpireMS: r.f.clock() + overlap.Milliseconds()})
}

func (r *memRecorder) RevokeIdentity(_ context.Context, by string, ids ...fsm.IdentityID) error {
	return r.do(&fsm.RevokeIdentity{IDs: ids, AtMS: r.f.clock(), By: by})
}

func (r *memRecorder) RevokeJoinToken(_ context.Context, by string, id fsm.JoinTokenID) error {
	return r.do(&fsm.RevokeJoinToken{ID: id, AtMS: r.f.clock(), By: by})
}

func (r *memRecorder) PinReplica(_ context.Context, serverID string, keys ...[32]byte) error {
	return r.do(&fsm.PinReplica{ServerID: serverID, KeyHashes: keys})
}

func (r *memRecorder) SetTrust(_ context.Context, decide func([][]byte) [][]byte) error {
	var roots [][]byte
	r.f.machine.Read(func(st *fsm.State, _ uint64) { roots = st.Trust() })
	if roots = decide(roots); roots == nil {
		return nil
	}
	return r.do(&fsm.SetTrust{Roots: roots, AtMS: r.f.clock()})
}

func (r *memRecorder) DropCredential(_ context.Context, id fsm.IdentityID, hash [32]byte) (bool, error) {
	return false, r.do(&fsm.DropCredential{ID: id, Hash: hash})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// token makes an identity with a token.
func (f *fixture) token(name, role string, ttl time.Duration) (auth.Token, *dtaskv1.Identity) {
	f.t.Helper()
	made := auth.NewToken()
	h := made.Hash()
	resp, err := f.CreateToken(f.t.Context(), &dtaskv1.CreateTokenRequest{
		Name: name, Role: role, TtlMs: ttl.Milliseconds(), Key: name, TokenHash: h[:],
	})
	must(f.t, err)
	return made, resp.GetIdentity()
}

// withToken is the context of a call with a token.
func withToken(ctx context.Context, t auth.Token) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", t.Header()))
}

// withCert is the context of a call over a connection with a certificate.
func withCert(ctx context.Context, chain ...*x509.Certificate) context.Context {
	return peer.NewContext(ctx, &peer.Peer{AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: chain}}})
}

// workerCert makes a worker's key.
func workerCert(t *testing.T) *x509.Certificate {
	t.Helper()
	pair, err := tlsconf.OpenWorkerKey(t.TempDir())
	must(t, err)
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	must(t, err)
	return cert
}

// joinToken makes a join token and its secret.
func (f *fixture) newJoinToken(r *dtaskv1.CreateJoinTokenRequest) (*dtaskv1.JoinToken, []byte) {
	f.t.Helper()
	secret := auth.NewJoinSecret()
	h := sha256.Sum256(secret[:])
	r.SecretHash = h[:]
	resp, err := f.CreateJoinToken(f.t.Context(), r)
	must(f.t, err)
	return resp.GetJoinToken(), secret[:]
}
