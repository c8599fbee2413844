package sequencer

import (
	"testing"
	"time"

	"github.com/dtask/dtask/fsm"
)

func TestEndedIdentitiesAreForgottenAfterThirtyDays(t *testing.T) {
	t.Parallel()
	s := testSequencer(t)
	now := time.Now()
	s.cfg.WallClock = func() time.Time { return now }
	agrees := true
	s.cfg.ClockAgrees = func() bool { return agrees }
	do := func(op fsm.Op) {
		t.Helper()
		b := s.batches.next(s.view)
		if r := b.entry.Do(op); r != fsm.Accepted {
			t.Fatalf("%T: %v", op, r)
		}
		b.entry.Finish()
	}
	sweep := func() {
		b := s.batches.next(s.view)
		s.retention.shard = 0
		s.retention.sweep(b)
		b.entry.Finish()
	}
	do(&fsm.SetLevel{Level: 2})
	do(&fsm.CreateIdentity{
		Name: "ci", Grant: fsm.Grant{Role: fsm.RoleReader}, CreatedMS: now.UnixMilli(),
		Credential: fsm.Credential{Kind: fsm.TokenCredential, Hash: [32]byte{1}, ExpiresMS: now.Add(time.Hour).UnixMilli()},
	})
	now = now.Add(30*24*time.Hour + 59*time.Minute)
	if sweep(); s.view.IdentityCount() != 1 {
		t.Fatal("forgotten before 30 days")
	}
	now = now.Add(2 * time.Minute)
	agrees = false
	if sweep(); s.view.IdentityCount() != 1 {
		t.Fatal("forgotten although the clock is in doubt")
	}
	agrees = true
	if sweep(); s.view.IdentityCount() != 0 {
		t.Error("remembered after 30 days")
	}
}
