package access

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fakeReplicas are the replicas and workers of a cluster whose CA is replaced. Replicas
// adopt a CA at once.
type fakeReplicas struct {
	f    *fixture
	ca   *tlsconf.CA // nil: its key is elsewhere
	next *tlsconf.CA // kept by SaveNext

	silent  string          // a replica that does not answer
	keyless string          // a replica without the key of the CA
	workers map[string]bool // whether they have stored the CAs
}

// withReplicas gives a fixture three replicas, of which n1 answers the calls.
func (f *fixture) withReplicas() *fakeReplicas {
	r := &fakeReplicas{f: f, ca: f.ca, workers: make(map[string]bool)}
	f.cfg.Rotation = r
	return r
}

func (r *fakeReplicas) CA() (*tlsconf.CA, error) {
	if r.ca == nil {
		return nil, &RefusedError{Reason: "the key of the cluster's CA is not on coordinator n1"}
	}
	if r.next != nil && r.f.trusted()[0].Equal(r.next.Cert) {
		return r.next, nil
	}
	return r.ca, nil
}

func (r *fakeReplicas) SaveNext(ca *tlsconf.CA) error {
	r.next = ca
	return nil
}

func (r *fakeReplicas) CAKey(hash [32]byte) ([]byte, error) {
	for _, ca := range []*tlsconf.CA{r.ca, r.next} {
		if ca != nil && tlsconf.KeyHash(ca.Cert) == hash {
			return ca.KeyDER()
		}
	}
	return nil, fs.ErrNotExist
}

func (r *fakeReplicas) Replicas(context.Context) (list []ReplicaCertificate) {
	bundle := r.f.trusted()
	trust, ca := tlsconf.BundleHash(bundle), tlsconf.KeyHash(bundle[0])
	for _, id := range []string{"n1", "n2", "n3"} {
		c := ReplicaCertificate{ServerID: id, Address: id + ":7460"}
		if id != r.silent {
			c.Own = &dtaskv1.OwnCertificate{Trust: trust[:], CaKeyHash: ca[:], ExpiresAt: startMS, HasCaKey: id != r.keyless}
		}
		list = append(list, c)
	}
	return list
}

func (r *fakeReplicas) Workers(trust [32]byte) (connected int, lacking []string) {
	for name, stored := range r.workers {
		if !stored || trust == [32]byte{} {
			lacking = append(lacking, name)
		}
	}
	return len(r.workers), lacking
}

// trusted returns the CAs that the cluster trusts.
func (f *fixture) trusted() []*x509.Certificate {
	f.t.Helper()
	bundle, _, err := f.bundle()
	must(f.t, err)
	return bundle
}

func (f *fixture) rotate(r *dtaskv1.RotateCARequest) *dtaskv1.RotateCAResponse {
	f.t.Helper()
	resp, err := f.RotateCA(f.t.Context(), r)
	must(f.t, err)
	return resp
}

func TestACAIsAddedOnceAndSignedByTheOldOne(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.withReplicas()
	if f.rotate(&dtaskv1.RotateCARequest{}).GetAlready() {
		t.Error("it says that nothing has changed")
	}
	bundle := f.trusted()
	if len(bundle) != 3 || !bundle[2].Equal(f.ca.Cert) || bundle[1].CheckSignatureFrom(f.ca.Cert) != nil || tlsconf.KeyHash(bundle[0]) != tlsconf.KeyHash(bundle[1]) {
		t.Fatalf("got %d certificates", len(bundle))
	}
	again := f.rotate(&dtaskv1.RotateCARequest{})
	if !again.GetAlready() || len(f.trusted()) != 3 || len(again.GetStatus().GetCas()) != 2 || again.GetStatus().GetRotatingSince() != startMS {
		t.Errorf("a repetition: %+v", again)
	}
	if !f.trusted()[0].Equal(bundle[0]) {
		t.Error("a repetition made another CA")
	}
}

// A replica that made a CA is lost before it could give the key to another one.
func TestACAWhoseKeyIsLostIsReplacedByAnother(t *testing.T) {
	t.Parallel()
	f := setup(t)
	r := f.withReplicas()
	f.rotate(&dtaskv1.RotateCARequest{})
	lost := f.trusted()[0]
	r.next, r.silent = nil, "n2"
	f.cfg.Rotation = staleReplicas{r, tlsconf.KeyHash(f.ca.Cert)}
	if _, err := f.beginRotation(t.Context(), &memRecorder{f}, false); err != nil || f.trusted()[0].Equal(lost) || len(f.trusted()) != 3 {
		t.Errorf("got %d CAs, %v", len(f.trusted()), err)
	}
}

// staleReplicas have certificates of another CA than the first one.
type staleReplicas struct {
	*fakeReplicas

	ca [32]byte
}

func (s staleReplicas) Replicas(ctx context.Context) []ReplicaCertificate {
	list := s.fakeReplicas.Replicas(ctx)
	for i := range list {
		if list[i].Own != nil {
			list[i].Own.CaKeyHash = s.ca[:]
		}
	}
	return list
}

func TestTheOldCAIsDroppedOnlyWhenNobodyNeedsIt(t *testing.T) {
	t.Parallel()
	f := setup(t)
	r := f.withReplicas()
	if resp := f.rotate(&dtaskv1.RotateCARequest{Finish: true}); !resp.GetAlready() {
		t.Error("there was something to finish")
	}
	f.rotate(&dtaskv1.RotateCARequest{})
	finish := &dtaskv1.RotateCARequest{Finish: true}
	refused := func(want string) {
		t.Helper()
		if _, err := f.RotateCA(t.Context(), finish); err == nil || !strings.Contains(err.Error(), want) || len(f.trusted()) != 3 {
			t.Errorf("got %v with %d certificates, want an error with %q", err, len(f.trusted()), want)
		}
	}
	r.workers["w1"], r.workers["w2"] = true, false
	refused("worker w2")
	r.workers["w2"], r.silent = true, "n3"
	refused("replica n3 (does not answer)")
	r.silent = ""
	f.rotate(finish)
	if after := f.trusted(); len(after) != 2 || len(tlsconf.Anchors(after)) != 1 || !after[0].Equal(r.next.Cert) {
		t.Errorf("got %d certificates", len(after))
	}
}

func TestTheOldCAIsDroppedByItselfAfter30DaysUnlessSomeoneLacksTheNewOne(t *testing.T) {
	t.Parallel()
	f := setup(t)
	r := f.withReplicas()
	f.rotate(&dtaskv1.RotateCARequest{})
	for _, c := range []struct {
		pass   time.Duration
		stored bool
		want   int // trusted CAs
	}{{29 * 24 * time.Hour, true, 2}, {24 * time.Hour, false, 2}, {0, true, 1}} {
		f.pass(c.pass)
		r.workers["w1"] = c.stored
		if err := f.FinishOverdue(t.Context()); (err == nil) != c.stored || len(tlsconf.Anchors(f.trusted())) != c.want {
			t.Errorf("%+v: got %d CAs, %v", c, len(tlsconf.Anchors(f.trusted())), err)
		}
	}
}

func TestACompromisedCAIsDroppedAtOnceAndThoseWhoLackTheNewOneAreNamed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	r := f.withReplicas()
	f.token("ana", "admin", 0)
	r.silent, r.workers["w1"] = "n3", true
	resp := f.rotate(&dtaskv1.RotateCARequest{Compromised: true})
	if got := strings.Join(resp.GetMustJoin(), ", "); got != "admin ana, replica n3 (does not answer)" {
		t.Errorf("must join: %s", got)
	}
	if after := f.trusted(); len(after) != 1 || !after[0].Equal(r.next.Cert) {
		t.Errorf("got %d certificates", len(after))
	}
}

func TestACAWhoseKeyIsNotOnTheCoordinatorsIsNotReplaced(t *testing.T) {
	t.Parallel()
	f := setup(t)
	r := f.withReplicas()
	r.keyless = "n2"
	if _, err := f.RotateCA(t.Context(), &dtaskv1.RotateCARequest{}); err == nil || !strings.Contains(err.Error(), "coordinator n2 does not have the key of the CA") {
		t.Errorf("a replica without the key: %v", err)
	}
	r.ca = nil
	if _, err := f.RotateCA(t.Context(), &dtaskv1.RotateCARequest{}); err == nil || !strings.Contains(err.Error(), "not on coordinator n1") {
		t.Errorf("no key at all: %v", err)
	}
	if len(f.trusted()) != 1 {
		t.Errorf("got %d CAs", len(f.trusted()))
	}
}

func TestAReplicaGetsTheKeyOfACAByItsHash(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.withReplicas()
	hash := tlsconf.KeyHash(f.ca.Cert)
	got, err := f.GetCAKey(t.Context(), &dtaskv1.GetCAKeyRequest{KeyHash: hash[:]})
	must(t, err)
	if ca, err := tlsconf.ParseCA([]*x509.Certificate{f.ca.Cert}, got.GetKey()); err != nil || !ca.Cert.Equal(f.ca.Cert) {
		t.Errorf("got another key: %v", err)
	}
	if _, err := f.GetCAKey(t.Context(), &dtaskv1.GetCAKeyRequest{KeyHash: make([]byte, 32)}); err == nil {
		t.Error("got a key that nobody has")
	}
	for _, role := range []auth.Role{auth.Anonymous, auth.Admin, auth.Operator, auth.Worker} {
		if auth.Rights(role, dtaskv1.AuthService_GetCAKey_FullMethodName) != auth.None {
			t.Errorf("%s gets the key of the CA", role)
		}
	}
}

// Both keys of a worker count until it uses the new one.
func TestTheOldKeyOfAWorkerEndsWithTheFirstUseOfTheNewOne(t *testing.T) {
	t.Parallel()
	f := setup(t)
	old, next := workerCert(t), workerCert(t)
	token, secret := f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{Purpose: "worker", Key: "k", TtlMs: 1000})
	oldHash, nextHash := tlsconf.KeyHash(old), tlsconf.KeyHash(next)
	_, err := f.Join(t.Context(), &dtaskv1.JoinRequest{JoinToken: token.GetId(), JoinSecret: secret, Purpose: "worker", Name: "w1", Key: "j", PublicKeyHash: oldHash[:]})
	must(t, err)
	call := func(with *x509.Certificate) error {
		ctx, p, err := f.registry.Authenticate(withCert(t.Context(), with), dtaskv1.AuthService_RotateKey_FullMethodName)
		if err != nil {
			return err
		}
		_, err = f.RotateKey(auth.NewContext(ctx, p), &dtaskv1.RotateKeyRequest{PublicKeyHash: nextHash[:]})
		return err
	}
	credentials := func() (n int) {
		f.read(func(st *fsm.State) { n = len(st.IdentityByName("w1", true).Credentials) })
		return n
	}
	for range 2 { // a repetition changes nothing
		must(t, call(old))
		if credentials() != 2 {
			t.Errorf("the worker has %d keys", credentials())
		}
	}
	for range 2 {
		must(t, call(next))
		if credentials() != 1 {
			t.Errorf("the worker has %d keys", credentials())
		}
	}
	if err := call(old); err == nil {
		t.Error("the old key still counts")
	}
	// A key that was never used makes room for another one.
	must(t, call(next))
	other := sha256.Sum256([]byte("lost"))
	must(t, (&memRecorder{f}).AddCredential(t.Context(), fsm.IdentityID(1), sequencer.NewCredential{Kind: fsm.KeyCredential, Hash: other}, keyOverlap))
	third := workerCert(t)
	nextHash = tlsconf.KeyHash(third)
	must(t, call(next))
	must(t, call(third))
}
