package access

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func wantConflict(t *testing.T, err error, texts ...string) {
	t.Helper()
	e, ok := errors.AsType[*ConflictError](err)
	for _, text := range texts {
		ok = ok && strings.Contains(e.Reason, text)
	}
	if !ok {
		t.Errorf("got %v, want a *ConflictError with %q", err, texts)
	}
}

func TestATakenNameIsNamedWithTheIdentityThatHasIt(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.token("ci", "submitter", 0)
	hash := [32]byte{1}
	_, err := f.CreateToken(t.Context(), &dtaskv1.CreateTokenRequest{Name: "ci", Role: "reader", Key: "k", TokenHash: hash[:]})
	wantConflict(t, err, "the name ci is taken by identity 1, a submitter", "dtaskctl token revoke 1")

	join, secret := f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{Purpose: "worker", TtlMs: time.Hour.Milliseconds(), Key: "j"})
	request := func(key byte) *dtaskv1.JoinRequest {
		hash := [32]byte{key}
		return &dtaskv1.JoinRequest{JoinToken: join.GetId(), JoinSecret: secret, Purpose: "worker", Name: "w1", PublicKeyHash: hash[:], Key: string(rune(key))}
	}
	_, err = f.Join(t.Context(), request('a'))
	must(t, err)
	_, err = f.Join(t.Context(), request('b'))
	wantConflict(t, err, "the name w1 is taken by identity 2, a worker", "dtaskctl token revoke 2")
}

func TestAFullTableOfIdentitiesSaysWhatToDo(t *testing.T) {
	t.Parallel()
	f := setup(t)
	full := &sequencer.RejectedError{Reason: fsm.LimitExceeded}
	wantConflict(t, f.identityError("x", true, full), "the cluster has 100000 identities", "dtaskctl join-token list")
	wantConflict(t, f.joinError(sequencer.Join{Name: "x", Purpose: fsm.JoinWorker}, full), "the cluster has 100000 identities")
}

func TestAThirdTokenOfAnIdentityIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	f := setup(t)
	_, identity := f.token("ci", "submitter", 0)
	rotate := func(n byte) error {
		hash := [32]byte{n}
		_, err := f.RotateToken(t.Context(), &dtaskv1.RotateTokenRequest{Id: identity.GetId(), TokenHash: hash[:], OverlapMs: time.Hour.Milliseconds()})
		return err
	}
	must(t, rotate(1))
	wantConflict(t, rotate(2), "has two tokens that work", "until the old one expires")
}

// A join string by which nobody can join is not made.
func TestNoJoinStringForCoordinatorsIsMadeWithoutTheKeyOfTheCA(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.noCAKey = true
	hash := [32]byte{1}
	_, err := f.CreateJoinToken(t.Context(), &dtaskv1.CreateJoinTokenRequest{Purpose: "coordinator", Uses: 2, Key: "j", SecretHash: hash[:]})
	if e, ok := errors.AsType[*RefusedError](err); !ok || !strings.Contains(e.Reason, "the key of the CA is elsewhere") {
		t.Errorf("got %v", err)
	}
	f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{Purpose: "worker", TtlMs: time.Hour.Milliseconds(), Key: "w"})
}

// Coordinators that dtaskd init or dtaskctl tls issue has made have access, too.
func TestCoordinatorsWithACertificateOnlyAreListed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.token("ci", "submitter", 0)
	page, err := f.ListTokens(t.Context(), &dtaskv1.ListTokensRequest{})
	must(t, err)
	list := page.GetIdentities()
	if len(list) != 2 || list[1].GetName() != "n1" || list[1].GetRole() != "replica" || list[1].GetId() != 0 || list[1].GetState() != "active" {
		t.Errorf("got %v", list)
	}
}
