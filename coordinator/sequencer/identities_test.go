package sequencer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// hashed returns a hash that differs for each number.
func hashed(n byte) [32]byte { return [32]byte{n, 31: 0xff} }

// raise raises the cluster to the level that has identities.
func raise(tb testing.TB, s *sequencer.Sequencer) {
	tb.Helper()
	err := s.ChangeLevel(tb.Context(), func(fsm.Level, bool) *fsm.SetLevel { return &fsm.SetLevel{Level: 2} })
	if err != nil {
		tb.Fatal(err)
	}
}

func wantRejected(tb testing.TB, what string, err error, want fsm.Reason) {
	tb.Helper()
	if r, ok := errors.AsType[*sequencer.RejectedError](err); !ok || r.Reason != want {
		tb.Errorf("%s: got %v, want the rejection %v", what, err, want)
	}
}

// joined returns a join token for workers, and the identity of a worker that joined with it.
func joined(tb testing.TB, s *sequencer.Sequencer, name string, hash byte) (fsm.JoinTokenID, fsm.IdentityID) {
	tb.Helper()
	token, err := s.CreateJoinToken(tb.Context(), sequencer.NewJoinToken{
		Purpose: fsm.JoinWorker, Grant: fsm.Grant{Role: fsm.RoleWorker}, Hash: hashed(100), Lifetime: time.Hour, CreatedBy: "alice", Key: "j",
	})
	if err != nil {
		tb.Fatal(err)
	}
	id, err := s.RedeemJoinToken(tb.Context(), join(token, name, hash))
	if err != nil {
		tb.Fatal(err)
	}
	return token, id
}

func join(token fsm.JoinTokenID, name string, hash byte) sequencer.Join {
	return sequencer.Join{
		Token: token, SecretHash: hashed(100), Purpose: fsm.JoinWorker, Name: name,
		Credential: sequencer.NewCredential{Kind: fsm.KeyCredential, Hash: hashed(hash)}, Key: name + string(rune(hash)),
	}
}

func token(hash byte, lifetime time.Duration) sequencer.NewCredential {
	return sequencer.NewCredential{Kind: fsm.TokenCredential, Hash: hashed(hash), Lifetime: lifetime}
}

func TestAnIdentityIsCreatedRotatedAndRevoked(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	ci := sequencer.NewIdentity{Name: "ci", Grant: fsm.Grant{Role: fsm.RoleSubmitter, Namespaces: []string{"etl"}}, Credential: token(1, time.Hour), CreatedBy: "alice", Key: "k"}
	_, err := s.CreateIdentity(t.Context(), ci)
	wantRejected(t, "below the level", err, fsm.AboveLevel)
	raise(t, s)

	id, err := s.CreateIdentity(t.Context(), ci)
	again, errAgain := s.CreateIdentity(t.Context(), ci)
	if err != nil || errAgain != nil || id == 0 || again != id {
		t.Fatalf("got %d, %v, and again %d, %v", id, err, again, errAgain)
	}
	ci.Credential.Lifetime = 2 * time.Hour
	_, err = s.CreateIdentity(t.Context(), ci)
	wantRejected(t, "another request", err, fsm.KeyConflict)
	ci.Key = ""
	_, err = s.CreateIdentity(t.Context(), ci)
	wantRejected(t, "a live name", err, fsm.NameTaken)

	if err := s.AddCredential(t.Context(), id, token(2, 0), time.Minute); err != nil {
		t.Fatal(err)
	}
	if i := c.identity(id); len(i.Credentials) != 2 || i.Credentials[0].ExpiresMS > time.Now().Add(2*time.Minute).UnixMilli() || i.Credentials[1].ExpiresMS != 0 {
		t.Errorf("after the rotation: %+v", i)
	}
	if already, err := s.DropCredential(t.Context(), id, hashed(1)); already || err != nil {
		t.Errorf("dropping: already %v, %v", already, err)
	}
	if already, err := s.DropCredential(t.Context(), id, hashed(1)); !already || err != nil {
		t.Errorf("dropping again: already %v, %v", already, err)
	}
	for range 2 {
		if err := s.RevokeIdentity(t.Context(), "bob", id); err != nil {
			t.Fatal(err)
		}
	}
	if i := c.identity(id); !i.IsRevoked() || i.RevokedBy != "bob" {
		t.Errorf("after the revocation: %+v", i)
	}
	wantRejected(t, "revoking an unknown one", s.RevokeIdentity(t.Context(), "bob", 99), fsm.IdentityNotFound)
	wantRejected(t, "rotating a revoked one", s.AddCredential(t.Context(), id, token(3, 0), 0), fsm.IdentityRevoked)
}

func (c *cluster) identity(id fsm.IdentityID) (i fsm.Identity) {
	c.machine.Read(func(s *fsm.State, _ uint64) { i = *s.Identity(id) })
	return i
}

func TestAJoinTokenIsRedeemedOnceForEachRequest(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	raise(t, s)
	token, id := joined(t, s, "w1", 1)
	again, err := s.RedeemJoinToken(t.Context(), join(token, "w1", 1))
	if err != nil || again != id {
		t.Errorf("a repeated request: got %d, %v, want %d", again, err, id)
	}
	rejoin := join(token, "w1", 1)
	rejoin.Key = "lost"
	if again, err := s.RedeemJoinToken(t.Context(), rejoin); err != nil || again != id {
		t.Errorf("joining again with the same key: got %d, %v, want %d", again, err, id)
	}
	c.machine.Read(func(s *fsm.State, _ uint64) {
		if x := s.JoinToken(token); x.Used != 1 {
			t.Errorf("got %d uses, want 1", x.Used)
		}
	})
	_, err = s.RedeemJoinToken(t.Context(), join(token, "w1", 2))
	wantRejected(t, "another key", err, fsm.NameTaken)
	if err := s.RevokeJoinToken(t.Context(), "alice", token); err != nil {
		t.Fatal(err)
	}
	_, err = s.RedeemJoinToken(t.Context(), join(token, "w2", 2))
	wantRejected(t, "a revoked token", err, fsm.JoinTokenRevoked)
	if same, err := s.CreateJoinToken(t.Context(), sequencer.NewJoinToken{Purpose: fsm.JoinUser, Grant: fsm.Grant{Role: fsm.RoleReader}, Hash: hashed(5)}); err != nil || same != token+1 {
		t.Errorf("a token without a key: got %d, %v", same, err)
	}
}

func TestTrustAndPinsAreReplicated(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	raise(t, s)
	add := func(root byte) error {
		return s.SetTrust(t.Context(), func(roots [][]byte) [][]byte { return append(slices.Clip(roots), []byte{root}) })
	}
	none := s.SetTrust(t.Context(), func([][]byte) [][]byte { return nil })
	if err := errors.Join(add(1), none, add(2), s.PinReplica(t.Context(), "n1", hashed(1), hashed(2))); err != nil {
		t.Fatal(err)
	}
	wantRejected(t, "a root twice", add(2), fsm.Malformed)
	c.machine.Read(func(s *fsm.State, _ uint64) {
		if len(s.Trust()) != 2 || s.TrustMS() == 0 || len(s.ReplicaKeys("n1")) != 2 {
			t.Errorf("got roots %x since %d, keys %x", s.Trust(), s.TrustMS(), s.ReplicaKeys("n1"))
		}
	})
}

// The attempts of a revoked worker run elsewhere without the liveness timeout, and
// nothing that it reports counts, however many they are.
func TestARevokedWorkerIsFencedAtOnce(t *testing.T) {
	t.Parallel()
	fences := map[string]func(ctx context.Context, s *sequencer.Sequencer, token fsm.JoinTokenID, id fsm.IdentityID) error{
		"revoked": func(ctx context.Context, s *sequencer.Sequencer, _ fsm.JoinTokenID, id fsm.IdentityID) error {
			return s.RevokeIdentity(ctx, "alice", id)
		},
		"replaced": func(ctx context.Context, s *sequencer.Sequencer, token fsm.JoinTokenID, _ fsm.IdentityID) error {
			other := join(token, "w1", 2)
			other.Replace = true
			_, err := s.RedeemJoinToken(ctx, other)
			return err
		},
		"ended": func(ctx context.Context, s *sequencer.Sequencer, _ fsm.JoinTokenID, _ fsm.IdentityID) error {
			_, err := s.EndSession(ctx, "w1", errors.New("credential expired"))
			return err
		},
	}
	for name, fence := range fences {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 40
			c := newCluster(t)
			c.config = func(cfg *sequencer.Config) { cfg.EntryOps, cfg.LivenessTimeout, cfg.Lease = 7, time.Hour, time.Hour }
			s, _ := c.lead()
			raise(t, s)
			token, id := joined(t, s, "w1", 1)
			w1 := attachWorker(t, s, "w1", "i1", n, hold)
			job := mustSubmit(t, s, spec{key: "k", n: n})
			w1.await("the assignments", func() bool { return len(w1.held) == n })
			if err := fence(t.Context(), s, token, id); err != nil {
				t.Fatal(err)
			}
			w1.await("the end of its session", func() bool { return w1.closed != nil })
			w1.report(dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, w1.held[0])
			w2 := attachWorker(t, s, "w2", "i1", n, succeed)
			if j := c.awaitEnd(job); j.State != fsm.JobCompleted || j.Requeues+j.Retries < n {
				t.Errorf("the job is %v after %d requeues", j.State, j.Requeues)
			}
			for i := range uint32(n) {
				if v := c.task(job, i); v.Worker != w2.id || v.Failures != 0 {
					t.Errorf("task %d ended as %+v", i, v)
				}
			}
			shown := fmt.Sprintf("w1#%d", w1.id)
			if name == "ended" { // its identity is the same
				shown = "w1"
			}
			if w := c.worker(shown); w.State != fsm.WorkerDown {
				t.Errorf("the worker is %+v, want down", w)
			}
		})
	}
}

// A worker that takes over a name holds none of the old one's attempts, whatever it says: not
// even an at-most-once attempt that waits for the end of its lease.
func TestAWorkerThatReplacesAnotherHoldsNoneOfItsAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *sequencer.Config) { cfg.LivenessTimeout, cfg.Lease = time.Hour, time.Hour }
		s, _ := c.lead()
		raise(t, s)
		token, _ := joined(t, s, "w1", 1)
		old := attachWorker(t, s, "w1", "i1", 1, hold)
		job := mustSubmit(t, s, spec{key: "k", n: 1, policy: atMostOnce})
		old.await("its assignment", func() bool { return len(old.held) == 1 })
		old.tell(&dtaskv1.Reports{StartRequests: []*dtaskv1.AttemptRef{refTo(old.held[0])}})
		old.await("its start grant", func() bool { return len(old.begins) == 1 })
		replacing := join(token, "w1", 2)
		replacing.Replace = true
		if _, err := s.RedeemJoinToken(t.Context(), replacing); err != nil {
			t.Fatal(err)
		}
		a := old.held[0]
		thief := attachWorker(t, s, "w1", "i2", 1, succeed, a)
		if thief.id == old.id || len(thief.stops) != 1 || thief.stops[0].Attempt != a {
			t.Fatalf("worker %d took over from %d, and must stop %v", thief.id, old.id, thief.stops)
		}
		thief.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, a)
		thief.await("the answer", func() bool { return thief.through > 0 })
		if v := c.task(job, 0); v.State != fsm.Assigned || v.Worker != old.id {
			t.Errorf("the attempt of the old worker ended as %+v", v)
		}
	})
}

func TestNoSessionOfAnUnknownWorkerIsEnded(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	if ok, err := s.EndSession(t.Context(), "nobody", errors.New("no")); ok || err != nil {
		t.Errorf("got %v, %v", ok, err)
	}
}
