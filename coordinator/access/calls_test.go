package access

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// guard bounds what must happen soon.
const guard = 2 * time.Minute

// call opens a call with a token.
func (f *fixture) call(made auth.Token) context.Context {
	f.t.Helper()
	ctx, _, err := f.registry.Authenticate(withToken(f.t.Context(), made), "")
	must(f.t, err)
	return ctx
}

func wantEnded(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	access := auth.Access(ctx)
	select {
	case <-access.Done():
		wantUnauthenticated(t, context.Cause(access), text)
	case <-time.After(guard):
		t.Error("the call continues")
	}
}

func TestARevocationEndsTheOpenCallsOfItsIdentityAndNoOthers(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.run()
	gone, identity := f.token("gone", "admin", 0)
	stays, _ := f.token("stays", "admin", 0)
	ended, open := f.call(gone), f.call(stays)
	_, err := f.RevokeToken(t.Context(), &dtaskv1.RevokeTokenRequest{Id: identity.GetId()})
	must(t, err)
	wantEnded(ended, t, "the access of gone was revoked")
	if access := auth.Access(open); access.Err() != nil {
		t.Errorf("another call ended: %v", context.Cause(access))
	}
	_, _, err = f.registry.Authenticate(withToken(t.Context(), gone), "")
	wantUnauthenticated(t, err, "revoked")
}

// An administrator may rely on the answer of a revocation or a rotation: a call that is sent
// afterwards to the same replica doesn't find the credential in its memory. No Run notices
// the change here.
func TestACredentialThatHasEndedIsRefusedAfterTheAnswer(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(f *fixture, id uint64) error{
		"revoked": func(f *fixture, id uint64) error {
			_, err := f.RevokeToken(f.t.Context(), &dtaskv1.RevokeTokenRequest{Id: id})
			return err
		},
		"expired": func(f *fixture, id uint64) error {
			h := auth.NewToken().Hash()
			_, err := f.RotateToken(f.t.Context(), &dtaskv1.RotateTokenRequest{Id: id, TokenHash: h[:]})
			f.pass(time.Second)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			token, identity := f.token("gone", "admin", 0)
			f.call(token) // it is remembered
			must(t, end(f, identity.GetId()))
			_, _, err := f.registry.Authenticate(withToken(t.Context(), token), "")
			wantUnauthenticated(t, err, name)
		})
	}
}

// A caller that ends its own access must get the answer: it reports what still gives access,
// and only that caller has the new token.
func TestACallThatEndsItsOwnAccessIsAnswered(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(f *fixture, ctx context.Context, id uint64) error{
		"revocation": func(f *fixture, ctx context.Context, id uint64) error {
			_, err := f.RevokeToken(ctx, &dtaskv1.RevokeTokenRequest{Id: id})
			return err
		},
		"rotation without an overlap": func(f *fixture, ctx context.Context, id uint64) error {
			h := auth.NewToken().Hash()
			_, err := f.RotateToken(ctx, &dtaskv1.RotateTokenRequest{Id: id, TokenHash: h[:]})
			f.pass(time.Second)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			f.run()
			own, identity := f.token("own", "admin", 0)
			other := f.call(own) // which the end of the access ends
			ctx, p, err := f.registry.Authenticate(withToken(t.Context(), own), "")
			must(t, err)
			must(t, end(f, auth.NewContext(ctx, p), identity.GetId()))
			wantEnded(other, t, "the ")
			if ctx.Err() != nil {
				t.Errorf("the call ended before its answer: %v", context.Cause(ctx))
			}
			if _, _, err := f.registry.Authenticate(withToken(t.Context(), own), ""); err == nil {
				t.Error("the token still counts")
			}
		})
	}
}

// The context of gRPC must outlast the access: gRPC ends a call whose context has ended
// without the reason.
func TestACallThatDoesNotEndWithItsAccessIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		made, identity := f.token("gone", "admin", 0)
		ctx := f.call(made)
		_, err := f.RevokeToken(t.Context(), &dtaskv1.RevokeTokenRequest{Id: identity.GetId()})
		must(t, err)
		f.registry.endRevoked()
		wantEnded(ctx, t, "the access of gone was revoked")
		if ctx.Err() != nil {
			t.Error("the call was cut off together with its access")
		}
		time.Sleep(cutDelay)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("the call continues")
		}
	})
}

// A call that is opened while the revocation is being handled must not survive it.
func TestNoCallSurvivesARevocationThatItRaces(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.run()
	for n := range 50 {
		made, identity := f.token(fmt.Sprint("t", n), "admin", 0)
		calls := make(chan context.Context, 1000)
		go func() {
			defer close(calls)
			for range cap(calls) {
				ctx, _, err := f.registry.Authenticate(withToken(f.t.Context(), made), "")
				if err != nil {
					return
				}
				calls <- ctx
			}
		}()
		_, err := f.RevokeToken(t.Context(), &dtaskv1.RevokeTokenRequest{Id: identity.GetId()})
		must(t, err)
		for ctx := range calls {
			wantEnded(ctx, t, "revoked")
		}
	}
}

func TestACallEndsWhenItsCredentialExpires(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.run()
	made, _ := f.token("short", "admin", 50*time.Millisecond)
	ctx := f.call(made)
	f.pass(50 * time.Millisecond)
	wantEnded(ctx, t, "has expired")
}

func TestARotatedTokenEndsWithItsOverlapAndTheNewOneStays(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.run()
	old, identity := f.token("ci", "admin", 0)
	ctx := f.call(old)
	next := auth.NewToken()
	h := next.Hash()
	_, err := f.RotateToken(t.Context(), &dtaskv1.RotateTokenRequest{Id: identity.GetId(), TokenHash: h[:], OverlapMs: 40})
	must(t, err)
	newer := f.call(next)
	if auth.Access(ctx).Err() != nil {
		t.Error("the old token ended before the overlap")
	}
	f.pass(40 * time.Millisecond)
	wantEnded(ctx, t, "has expired")
	if access := auth.Access(newer); access.Err() != nil {
		t.Errorf("the new token ended: %v", context.Cause(access))
	}
}

func TestNothingIsKeptOfCallsThatHaveEnded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	made, _ := f.token("ci", "admin", 0)
	var open []context.CancelFunc
	for range 100 {
		ctx, end := context.WithCancel(t.Context())
		_, _, err := f.registry.Authenticate(withToken(ctx, made), "")
		must(t, err)
		open = append(open, end)
	}
	for _, end := range open {
		end()
	}
	f.wantNoCalls()
}

func TestNothingIsKeptOfACallThatIsRefusedLater(t *testing.T) {
	t.Parallel()
	f := setup(t)
	made, _ := f.token("ci", "reader", 0)
	f.registry.Abandon(f.call(made))
	f.registry.Abandon(t.Context()) // of a caller without a credential
	f.wantNoCalls()
}

func (f *fixture) wantNoCalls() {
	f.t.Helper()
	for limit := time.Now().Add(guard); ; runtime.Gosched() {
		f.registry.mu.Lock()
		left := len(f.registry.calls)
		f.registry.mu.Unlock()
		if left == 0 {
			return
		}
		if time.Now().After(limit) {
			f.t.Fatalf("%d calls are kept", left)
		}
	}
}

func TestARestoredStateEndsTheCallsThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.run()
	before := f.machine.Snapshot()
	made, _ := f.token("late", "admin", 0)
	ctx := f.call(made)
	restore(t, f.machine, before)
	wantEnded(ctx, t, "revoked")
}

func restore(t *testing.T, m *fsm.Machine, s *fsm.Snapshot) {
	t.Helper()
	var buffer bytes.Buffer
	must(t, s.Persist(&buffer))
	must(t, m.Restore(&buffer))
}
