package access

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/tlsconf"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func wantUnauthenticated(t *testing.T, err error, text string) {
	t.Helper()
	if e, ok := errors.AsType[*UnauthenticatedError](err); !ok || !strings.Contains(e.Reason, text) {
		t.Errorf("got %v, want an *UnauthenticatedError with %q", err, text)
	}
}

func TestATokenIsItsIdentity(t *testing.T) {
	t.Parallel()
	f := setup(t)
	made, identity := f.token("ci", "submitter", time.Hour)
	_, p, err := f.registry.Authenticate(withToken(t.Context(), made), "")
	if err != nil || p.Name != "ci" || p.Role != auth.Submitter || p.ID != identity.GetId() || p.Via != auth.ViaToken || !p.Sees("default") || p.Sees("etl") {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestACallWithoutCredentialsHasNoCaller(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, ctx := range []context.Context{t.Context(), withCert(t.Context())} {
		if _, p, err := f.registry.Authenticate(ctx, ""); p != nil || err != nil {
			t.Errorf("got %+v, %v", p, err)
		}
	}
}

func TestAWrongCredentialIsRefusedAndNotTakenForNone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	expires, _ := f.token("short", "admin", time.Minute)
	revoked, identity := f.token("gone", "admin", 0)
	_, err := f.RevokeToken(t.Context(), &dtaskv1.RevokeTokenRequest{Id: identity.GetId()})
	must(t, err)
	f.pass(time.Minute)
	foreign, err := tlsconf.NewCA(f.cluster, time.UnixMilli(startMS))
	must(t, err)
	other, err := tlsconf.NewCA(tlsconf.NewClusterID(), time.UnixMilli(startMS))
	must(t, err)
	for name, test := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"unknown token":              {withToken(t.Context(), auth.NewToken()), "does not know this token"},
		"revoked token":              {withToken(t.Context(), revoked), "does not know this token, or has revoked it"},
		"expired token":              {withToken(t.Context(), expires), "expired at 2027-01-15T08:01:00Z, and the cluster's clock shows 2027-01-15T08:01:00Z"},
		"no token":                   {metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer x")), "not a dtask token"},
		"basic":                      {metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Basic eDp5")), "invalid authorization header"},
		"unknown worker":             {withCert(t.Context(), workerCert(t)), "does not know this worker's key"},
		"replica of a false CA":      {withCert(t.Context(), issued(t, foreign, "n2").Cert), "was not issued by a CA in ca.crt"},
		"replica of another cluster": {withCert(t.Context(), issued(t, other, "n2").Cert), "refused"},
		"token on a worker's link":   {withToken(withCert(t.Context(), workerCert(t)), revoked), "does not know this token"},
	} {
		_, p, err := f.registry.Authenticate(test.ctx, "")
		if p != nil {
			t.Errorf("%s: got %+v", name, p)
		}
		wantUnauthenticated(t, err, test.want)
	}
}

func TestAReplicaIsKnownByItsCertificateAndPinnedKey(t *testing.T) {
	t.Parallel()
	f := setup(t)
	n2, stolen := f.replica("n2"), f.replica("n2")
	f.pass(48 * time.Hour) // expired: between replicas that is an alarm, not an end
	must(t, (&memRecorder{f}).do(&fsm.PinReplica{ServerID: "n2", KeyHashes: [][32]byte{tlsconf.KeyHash(n2.Cert)}}))
	_, p, err := f.registry.Authenticate(withCert(t.Context(), n2.Cert), "")
	if err != nil || p.Name != "n2" || p.Role != auth.Replica || p.Via != auth.ViaPeer {
		t.Errorf("got %+v, %v", p, err)
	}
	_, _, err = f.registry.Authenticate(withCert(t.Context(), stolen.Cert), "")
	wantUnauthenticated(t, err, "replica n2 has another key than the cluster knows")
}

func TestAReplicaThatWasRemovedReadsNothing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ctx := withCert(t.Context(), f.replica("n2").Cert)
	f.removed = "n2"
	_, _, err := f.registry.Authenticate(ctx, dtaskv1.AdminService_History_FullMethodName)
	wantUnauthenticated(t, err, "replica n2 was removed from the cluster")
	if _, p, err := f.registry.Authenticate(ctx, dtaskv1.ClusterService_Admit_FullMethodName); err != nil || p.Name != "n2" {
		t.Errorf("asking for admission: %+v, %v", p, err)
	}
}

func TestAnUnknownKeyIsNoObstacleToAMethodForEveryone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ctx := withCert(t.Context(), workerCert(t))
	if _, p, err := f.registry.Authenticate(ctx, dtaskv1.AuthService_Join_FullMethodName); p != nil || err != nil {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestAFollowerRefersCallersThatItDoesNotKnowToTheLeader(t *testing.T) {
	t.Parallel()
	f := setup(t)
	known, _ := f.token("ci", "admin", 0)
	f.leads = false
	if _, p, err := f.registry.Authenticate(withToken(t.Context(), known), ""); err != nil || p.Name != "ci" {
		t.Errorf("got %+v, %v", p, err)
	}
	for _, ctx := range []context.Context{withToken(t.Context(), auth.NewToken()), withCert(t.Context(), workerCert(t))} {
		if _, _, err := f.registry.Authenticate(ctx, ""); !errors.Is(err, ErrAskLeader) {
			t.Errorf("got %v", err)
		}
	}
	f.isolated = true
	if _, _, err := f.registry.Authenticate(withToken(t.Context(), known), ""); !errors.Is(err, ErrAskLeader) {
		t.Errorf("an isolated replica: got %v", err)
	}
	if _, p, err := f.registry.Authenticate(withToken(t.Context(), known), dtaskv1.ClusterService_Status_FullMethodName); err != nil || p.Name != "ci" {
		t.Errorf("the status of an isolated replica: got %+v, %v", p, err)
	}
}

// The clock of one follower must not lock callers out. That of the leader decides.
func TestAFollowerRefersCallersWhoseCredentialHasExpiredToTheLeader(t *testing.T) {
	t.Parallel()
	f := setup(t)
	token, _ := f.token("ci", "admin", time.Hour)
	f.pass(14 * 365 * 24 * time.Hour) // a clock that shows 2041
	f.leads = false
	if _, _, err := f.registry.Authenticate(withToken(t.Context(), token), ""); !errors.Is(err, ErrAskLeader) {
		t.Errorf("a follower: got %v", err)
	}
	f.leads = true
	_, _, err := f.registry.Authenticate(withToken(t.Context(), token), "")
	wantUnauthenticated(t, err, "and the cluster's clock shows 2041")
}

// A new leader whose clock is wrong does not know that yet.
func TestALeaderRefusesNobodyAsExpiredBeforeTheClocksAreCompared(t *testing.T) {
	t.Parallel()
	f := setup(t)
	token, _ := f.token("ci", "admin", time.Hour)
	join, secret := f.newJoinToken(&dtaskv1.CreateJoinTokenRequest{Purpose: "worker", TtlMs: time.Hour.Milliseconds(), Key: "w"})
	f.pass(14 * 365 * 24 * time.Hour)
	f.noTime = true
	if _, _, err := f.registry.Authenticate(withToken(t.Context(), token), ""); !errors.Is(err, errTimeUnknown) {
		t.Errorf("a call: got %v", err)
	}
	if err := f.joinWorkerWith(join, secret); !errors.Is(err, errTimeUnknown) {
		t.Errorf("a join: got %v", err)
	}
	f.noTime = false
	if err, ok := errors.AsType[*JoinError](f.joinWorkerWith(join, secret)); !ok || !strings.Contains(err.Reason, "expired at") {
		t.Errorf("a join once they are compared: got %v", err)
	}
}

func TestWithoutTLSEveryoneMayDoEverything(t *testing.T) {
	t.Parallel()
	r := New(Config{})
	_, p, err := r.Authenticate(withToken(t.Context(), auth.NewToken()), "")
	if err != nil || p.Via != auth.ViaOpen || p.Role != auth.Admin {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestTheSocketIsForAdmins(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: SocketInfo{}})
	_, p, err := f.registry.Authenticate(ctx, "")
	if err != nil || p.Role != auth.Admin || p.Via != auth.ViaSocket {
		t.Errorf("got %+v, %v", p, err)
	}
	// A token is for trying out what it may do.
	reader, _ := f.token("r", "reader", 0)
	if _, p, err := f.registry.Authenticate(withToken(ctx, reader), ""); err != nil || p.Role != auth.Reader {
		t.Errorf("got %+v, %v", p, err)
	}
}
