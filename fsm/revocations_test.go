package fsm

import "testing"

// restoredWith restores the machine of backedUp with revocations, and keeps the tokens.
func restoredWith(t *testing.T, m *Machine, revocations ...Revocation) (Restored, *Machine) {
	t.Helper()
	done := m.RestoreBackup(Restoration{
		Recovery: Recovery{ClusterID: "c2", Server: "n1", Instance: "new"}, KeepTokens: true, Revocations: revocations,
	})
	return done, reread(t, m)
}

func TestARevocationAfterABackupIsRepeated(t *testing.T) {
	t.Parallel()
	done, m := restoredWith(t, backedUp(t), Revocation{Identity: 2, AtMS: 7, By: "root"}, Revocation{JoinToken: 1, AtMS: 8, By: "root"})
	if done.Applied != 2 || done.Before != 0 || len(done.Unknown) != 0 {
		t.Errorf("got %+v", done.Revocations)
	}
	m.Read(func(s *State, _ uint64) {
		if i := s.Identity(2); i == nil || i.RevokedMS != 7 || i.RevokedBy != "root" || s.IdentityByHash(hashed(2)) != nil {
			t.Errorf("the reader is %+v", i)
		}
		if x := s.JoinToken(1); x == nil || x.RevokedMS != 8 || x.RevokedBy != "root" {
			t.Errorf("the join token is %+v", x)
		}
		if i := s.Identity(1); i == nil || i.IsRevoked() {
			t.Errorf("the admin is %+v", i)
		}
	})
}

// The worker that takes part again under its old name is another one.
func TestAWorkerThatWasReplacedAfterABackupIsRevoked(t *testing.T) {
	t.Parallel()
	m := backedUp(t)
	done, restored := restoredWith(t, m, Revocation{Worker: "worker", Successor: 100, AtMS: 7, By: "root"}, Revocation{Worker: "w9", Successor: 101, AtMS: 7})
	if done.Applied != 1 || len(done.Unknown) != 1 || done.Unknown[0].Worker != "w9" {
		t.Errorf("got %+v", done.Revocations)
	}
	restored.Read(func(s *State, _ uint64) {
		if s.IdentityByName("worker", true) != nil || s.IdentityByHash(hashed(3)) != nil {
			t.Error("the worker has its identity")
		}
	})
}

// A coordinator records a join after it, so that a backup may have the machine that joined.
func TestTheMachineThatReplacedAWorkerIsNotRevoked(t *testing.T) {
	t.Parallel()
	m := backedUp(t)
	var worker IdentityID
	m.Read(func(s *State, _ uint64) { worker = s.IdentityByName("worker", true).ID })
	done, restored := restoredWith(t, m,
		Revocation{Worker: "worker", Successor: worker - 1, AtMS: 7}, Revocation{Worker: "worker", Successor: worker, AtMS: 7})
	if done.Applied != 0 || done.Before != 2 {
		t.Errorf("got %+v", done.Revocations)
	}
	restored.Read(func(s *State, _ uint64) {
		if i := s.IdentityByName("worker", true); i == nil || i.ID != worker {
			t.Errorf("the worker is %+v", i)
		}
	})
}

// A revocation that the backup has, or of what was forgotten before it, changes nothing. One of
// what was created after it is unknown: its number is given again.
func TestRevocationsThatTheBackupHasAndUnknownOnesChangeNothing(t *testing.T) {
	t.Parallel()
	m := backedUp(t)
	index := m.Index()
	for _, op := range []Op{&RevokeIdentity{IDs: []IdentityID{2}, AtMS: 5, By: "x"}, &RevokeJoinToken{ID: 1, AtMS: 5, By: "x"}} {
		index++
		if a, ok := m.Apply(index, Encode(nil, Entry{NowMS: 5, Ops: []Op{op}})).(Applied); !ok || a.Rejected != Accepted {
			t.Fatalf("%T: %+v", op, a)
		}
	}
	done, restored := restoredWith(t, m,
		Revocation{Identity: 2, AtMS: 9, By: "root"}, Revocation{JoinToken: 1, AtMS: 9, By: "root"}, Revocation{Identity: 5, AtMS: 9}, Revocation{JoinToken: 2, AtMS: 9})
	if done.Applied != 0 || done.Before != 2 || len(done.Unknown) != 2 || done.Unknown[0].Identity != 5 || done.Unknown[1].JoinToken != 2 {
		t.Errorf("got %+v", done.Revocations)
	}
	restored.Read(func(s *State, _ uint64) {
		if i, x := s.Identity(2), s.JoinToken(1); i.RevokedMS != 5 || x.RevokedBy != "x" {
			t.Errorf("got %+v, %+v", i, x)
		}
	})
}

// Without the tokens, a revocation is one of what is dropped.
func TestARevocationOfWhatIsDroppedIsKnown(t *testing.T) {
	t.Parallel()
	m := backedUp(t)
	done := m.RestoreBackup(Restoration{
		Recovery:    Recovery{ClusterID: "c2", Server: "n1", Instance: "new"},
		Revocations: []Revocation{{Identity: 1, AtMS: 7, By: "root"}, {JoinToken: 1, AtMS: 7, By: "root"}},
	})
	if done.Applied != 2 || done.Identities != 3 || done.JoinTokens != 1 {
		t.Errorf("got %+v", done)
	}
	reread(t, m)
}
