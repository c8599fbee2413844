package access

import (
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// joiner is a coordinator that joins.
func (f *fixture) joiner(join *dtaskv1.JoinToken, secret []byte, key string) (*x509.Certificate, *dtaskv1.JoinRequest) {
	f.t.Helper()
	cert := workerCert(f.t)
	return cert, &dtaskv1.JoinRequest{
		JoinToken: join.GetId(), JoinSecret: secret, Purpose: "coordinator", Key: key,
		PublicKey: cert.RawSubjectPublicKeyInfo, Hosts: []string{"m2", "10.0.0.2"},
	}
}

func TestACoordinatorJoinsUnderTheNextServerIDWithACertificateForItsKey(t *testing.T) {
	t.Parallel()
	f := setup(t)
	join, secret := f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{Purpose: "coordinator", Uses: 2, TtlMs: time.Hour.Milliseconds(), Key: "j"})
	var names []string
	for _, key := range []string{"a", "b", "b"} { // the answer to b was lost
		cert, r := f.joiner(join, secret, key)
		if key == "b" && len(names) == 2 {
			continue
		}
		resp, err := f.Join(withCert(t.Context(), cert), r)
		must(t, err)
		again, err := f.Join(withCert(t.Context(), cert), r)
		must(t, err)
		issued, err := x509.ParseCertificate(resp.GetCertificate())
		must(t, err)
		cluster, id, err := tlsconf.PeerID(issued)
		must(t, err)
		if cluster != f.cluster || id != resp.GetIdentity().GetName() || id != again.GetIdentity().GetName() ||
			tlsconf.KeyHash(issued) != tlsconf.KeyHash(cert) || !slices.Equal(issued.DNSNames, []string{"m2"}) || string(resp.GetCaKey()) != "key" {
			t.Errorf("got %v and %v, certificate of %s", resp, again, id)
		}
		names = append(names, id)
		if _, p, err := f.registry.Authenticate(withCert(t.Context(), issued), ""); err != nil || p.Name != id {
			t.Errorf("as a replica: %+v, %v", p, err)
		}
		_, _, err = f.registry.Authenticate(withCert(t.Context(), cert), "")
		wantUnauthenticated(t, err, "must use the certificate") // its own signature says nothing
	}
	if !slices.Equal(names, []string{"n2", "n3"}) {
		t.Errorf("got %v", names)
	}
}

// A machine that was taken over must not get another certificate by repeating its request.
func TestNobodyJoinsAgainByARepeatedRequestAfterARevocation(t *testing.T) {
	t.Parallel()
	f := setup(t)
	join, secret := f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{Purpose: "coordinator", Uses: 2, TtlMs: time.Hour.Milliseconds(), Key: "j"})
	cert, r := f.joiner(join, secret, "a")
	resp, err := f.Join(withCert(t.Context(), cert), r)
	must(t, err)
	_, err = f.RevokeToken(t.Context(), &dtaskv1.RevokeTokenRequest{Id: resp.GetIdentity().GetId()})
	must(t, err)
	resp, err = f.Join(withCert(t.Context(), cert), r)
	if refused, ok := errors.AsType[*JoinError](err); !ok || !strings.Contains(refused.Reason, "was used for n2 before, whose access was revoked") {
		t.Errorf("got %v, %v", resp, err)
	}
}

// Its certificate counts as long as it is a member, so that a revocation would only seem to
// take its access away.
func TestAMemberIsRemovedAndNotRevoked(t *testing.T) {
	t.Parallel()
	f := setup(t)
	join, secret := f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{Purpose: "coordinator", Uses: 2, TtlMs: time.Hour.Milliseconds(), Key: "j"})
	cert, r := f.joiner(join, secret, "a")
	resp, err := f.Join(withCert(t.Context(), cert), r)
	must(t, err)
	f.members = []Member{{"n1", "m1:7460"}, {"n2", "m2:7460"}}
	_, err = f.RevokeToken(t.Context(), &dtaskv1.RevokeTokenRequest{Id: resp.GetIdentity().GetId()})
	if refused, ok := errors.AsType[*RefusedError](err); !ok || !strings.Contains(refused.Reason, "dtaskctl cluster remove n2") {
		t.Errorf("got %v", err)
	}
	f.members = f.members[:1] // removed
	if got, err := f.RevokeToken(t.Context(), &dtaskv1.RevokeTokenRequest{Id: resp.GetIdentity().GetId()}); err != nil || got.GetIdentity().GetState() != stateRevoked {
		t.Errorf("after its removal: %v, %v", got, err)
	}
}

func TestACoordinatorMustProveThatItHasTheKey(t *testing.T) {
	t.Parallel()
	f := setup(t)
	join, secret := f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{Purpose: "coordinator", TtlMs: time.Hour.Milliseconds(), Key: "j"})
	_, r := f.joiner(join, secret, "a")
	if _, err := f.Join(withCert(t.Context(), workerCert(t)), r); !isInvalid(err) {
		t.Errorf("got %v", err)
	}
	if _, err := f.Join(t.Context(), r); !isInvalid(err) {
		t.Errorf("without a certificate: got %v", err)
	}
	f.machine.Read(func(st *fsm.State, _ uint64) {
		if st.JoinToken(fsm.JoinTokenID(join.GetId())).Used != 0 {
			t.Error("the use was counted")
		}
	})
}

func isInvalid(err error) bool {
	_, ok := errors.AsType[*InvalidError](err)
	return ok
}
