package access

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestRolesAndPurposesHaveTheSameNumbersEverywhere(t *testing.T) {
	t.Parallel()
	for r := auth.Admin; r <= auth.Replica; r++ {
		if fsm.Role(r).String() != r.String() {
			t.Errorf("role %d is %s in the state and %s in package auth", r, fsm.Role(r), r)
		}
	}
	for p := auth.JoinCoordinator; p <= auth.JoinUser; p++ {
		if fsm.JoinPurpose(p).String() != p.String() {
			t.Errorf("purpose %d is %s in the state and %s in package auth", p, fsm.JoinPurpose(p), p)
		}
	}
}

func TestAWorkerJoinsWithItsKeyAndGetsWhatTheStringGrants(t *testing.T) {
	t.Parallel()
	f := setup(t)
	join, secret := f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{
		Purpose: "worker", TtlMs: time.Hour.Milliseconds(), Key: "j", Namespaces: []string{"ml", "etl"}, Labels: map[string]string{"zone": "a", "gpu": "yes"}, NamePattern: "build-*",
	})
	cert := workerCert(t)
	key := tlsconf.KeyHash(cert)
	r := &dtaskv1.JoinRequest{JoinToken: join.GetId(), JoinSecret: secret, Purpose: "worker", Name: "build-1", Key: "k", PublicKeyHash: key[:]}
	first, err := f.Join(t.Context(), r)
	must(t, err)
	again, err := f.Join(t.Context(), r) // the answer was lost
	must(t, err)
	if !proto.Equal(first, again) || first.GetClusterId() != f.cluster || len(first.GetRoots()) != 1 || first.GetAddresses()[0] != "m1:7460" {
		t.Errorf("got %v, then %v", first, again)
	}
	_, p, err := f.registry.Authenticate(withCert(t.Context(), cert), "")
	must(t, err)
	if p.Name != "build-1" || p.Role != auth.Worker || p.Via != auth.ViaKey || p.Labels["gpu"] != "yes" || !p.Sees("etl") || p.Sees("default") {
		t.Errorf("got %+v", p)
	}
}

func TestAUserJoinsWithAToken(t *testing.T) {
	t.Parallel()
	f := setup(t)
	join, secret := f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{Purpose: "user", Uses: 1, TtlMs: time.Hour.Milliseconds(), Key: "j"})
	made := auth.NewToken()
	h := made.Hash()
	resp, err := f.Join(t.Context(), &dtaskv1.JoinRequest{JoinToken: join.GetId(), JoinSecret: secret, Purpose: "user", Name: "you", Key: "k", TokenHash: h[:]})
	must(t, err)
	if i := resp.GetIdentity(); i.GetRole() != "admin" || i.GetExpiresAt() != startMS+userTTL.Milliseconds() {
		t.Errorf("got %v", i)
	}
	if _, p, err := f.registry.Authenticate(withToken(t.Context(), made), ""); err != nil || p.Name != "you" {
		t.Errorf("got %+v, %v", p, err)
	}
	_, err = f.Join(t.Context(), &dtaskv1.JoinRequest{JoinToken: join.GetId(), JoinSecret: secret, Purpose: "user", Name: "me", Key: "k2", TokenHash: h[:]})
	if e, ok := errors.AsType[*JoinError](err); !ok || !strings.Contains(e.Reason, "was used as often as it may be") {
		t.Errorf("the second user: %v", err)
	}
}

func TestEachReasonForWhichAJoinStringDoesNotWorkIsNamed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	worker, secret := f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{Purpose: "worker", TtlMs: 60_000, Key: "w", NamePattern: "build-*"})
	gone, goneSecret := f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{Purpose: "worker", TtlMs: 600_000, Key: "g"})
	_, err := f.RevokeJoinToken(t.Context(), &dtaskv1.RevokeJoinTokenRequest{Id: gone.GetId()})
	must(t, err)
	hash := make([]byte, 32)
	hash[0] = 1
	join := func(id uint64, secret []byte, purpose, name string) error {
		_, err := f.Join(t.Context(), &dtaskv1.JoinRequest{JoinToken: id, JoinSecret: secret, Purpose: purpose, Name: name, Key: "k", PublicKeyHash: hash, TokenHash: hash})
		return err
	}
	want := func(err error, text string) {
		t.Helper()
		if e, ok := errors.AsType[*JoinError](err); !ok || !strings.Contains(e.Reason, text) || !strings.Contains(e.Reason, "dtaskctl join-token create") {
			t.Errorf("got %v, want %s", err, text)
		}
	}
	want(join(99, secret, "worker", "build-1"), "unknown to this cluster")
	want(join(worker.GetId(), goneSecret, "worker", "build-1"), "unknown to this cluster")
	want(join(gone.GetId(), goneSecret, "worker", "build-1"), "was revoked at 2027-01-15T08:00:00Z")
	want(join(worker.GetId(), secret, "user", "build-1"), "is for a worker")
	want(join(worker.GetId(), secret, "worker", "test-1"), "is for names like build-*, not for test-1")
	f.pass(time.Minute)
	want(join(worker.GetId(), secret, "worker", "build-1"), "expired at 2027-01-15T08:01:00Z, and the cluster's clock shows 2027-01-15T08:01:00Z")
}

func TestWrongRequestsAreRefusedBeforeTheyReachTheLog(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ctx, hash := t.Context(), make([]byte, 32)
	hash[0] = 1
	index := f.machine.Index()
	for name, call := range map[string]func() error{
		"name": func() error {
			_, err := f.CreateToken(ctx, &dtaskv1.CreateTokenRequest{Name: "a b", Role: "admin", Key: "k", TokenHash: hash})
			return err
		},
		"role": func() error {
			_, err := f.CreateToken(ctx, &dtaskv1.CreateTokenRequest{Name: "a", Role: "worker", Key: "k", TokenHash: hash})
			return err
		},
		"namespace of an admin": func() error {
			_, err := f.CreateToken(ctx, &dtaskv1.CreateTokenRequest{Name: "a", Role: "admin", Namespaces: []string{"etl"}, Key: "k", TokenHash: hash})
			return err
		},
		"namespace": func() error {
			_, err := f.CreateToken(ctx, &dtaskv1.CreateTokenRequest{Name: "a", Role: "reader", Namespaces: []string{"ETL"}, Key: "k", TokenHash: hash})
			return err
		},
		"no key": func() error {
			_, err := f.CreateToken(ctx, &dtaskv1.CreateTokenRequest{Name: "a", Role: "admin", TokenHash: hash})
			return err
		},
		"no hash": func() error {
			_, err := f.CreateToken(ctx, &dtaskv1.CreateTokenRequest{Name: "a", Role: "admin", Key: "k"})
			return err
		},
		"endless join string": func() error {
			_, err := f.CreateJoinToken(ctx, &dtaskv1.CreateJoinTokenRequest{Purpose: "worker", Key: "k", SecretHash: hash})
			return err
		},
		"labels of a user": func() error {
			_, err := f.CreateJoinToken(ctx, &dtaskv1.CreateJoinTokenRequest{Purpose: "user", TtlMs: 1, Key: "k", SecretHash: hash, Labels: map[string]string{"a": "b"}})
			return err
		},
		"label that no worker gets": func() error {
			_, err := f.CreateJoinToken(ctx, &dtaskv1.CreateJoinTokenRequest{Purpose: "worker", TtlMs: 60_000, Key: "k", SecretHash: hash, Labels: map[string]string{fsm.TypeLabel: "x"}})
			return err
		},
		"page": func() error {
			_, err := f.ListTokens(ctx, &dtaskv1.ListTokensRequest{PageToken: "x"})
			return err
		},
	} {
		if _, ok := errors.AsType[*InvalidError](call()); !ok {
			t.Errorf("%s: %v", name, call())
		}
	}
	if f.machine.Index() != index {
		t.Error("the log has grown")
	}
}

func TestListsShowWhatCountsAndAllOfIt(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.token(name, "reader", 0)
	}
	_, err := f.RevokeToken(t.Context(), &dtaskv1.RevokeTokenRequest{Id: 2})
	must(t, err)
	names := func(all bool) (list string) {
		token := ""
		for {
			page, err := f.ListTokens(t.Context(), &dtaskv1.ListTokensRequest{Limit: 2, All: all, PageToken: token})
			must(t, err)
			for _, i := range page.GetIdentities() {
				list += i.GetName() + ":" + i.GetState() + " "
			}
			if token = page.GetNextPageToken(); token == "" {
				return list
			}
		}
	}
	if got := names(false); got != "a:active c:active d:active e:active n1:active " {
		t.Errorf("got %s", got)
	}
	if got := names(true); got != "a:active b:revoked c:active d:active e:active n1:active " {
		t.Errorf("got %s", got)
	}
}

func TestRevokingTheLastAdminSaysSo(t *testing.T) {
	t.Parallel()
	f := setup(t)
	_, first := f.token("a", "admin", 0)
	_, second := f.token("b", "admin", 0)
	for id, last := range map[uint64]bool{first.GetId(): false} {
		resp, err := f.RevokeToken(t.Context(), &dtaskv1.RevokeTokenRequest{Id: id})
		if err != nil || resp.GetLastAdmin() != last || resp.GetAlready() {
			t.Errorf("got %v, %v", resp, err)
		}
	}
	resp, err := f.RevokeToken(t.Context(), &dtaskv1.RevokeTokenRequest{Id: second.GetId()})
	if err != nil || !resp.GetLastAdmin() {
		t.Errorf("the last one: %v, %v", resp, err)
	}
	resp, err = f.RevokeToken(t.Context(), &dtaskv1.RevokeTokenRequest{Id: second.GetId()})
	if err != nil || !resp.GetAlready() {
		t.Errorf("again: %v, %v", resp, err)
	}
}

func TestAnOpenClusterHasNoIdentities(t *testing.T) {
	t.Parallel()
	s := NewService(ServiceConfig{Registry: New(Config{})})
	_, err := s.CreateToken(t.Context(), &dtaskv1.CreateTokenRequest{})
	if !errors.Is(err, errOpen) {
		t.Errorf("got %v", err)
	}
}
