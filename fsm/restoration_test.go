package fsm

import (
	"bytes"
	"testing"
)

// backedUp is a machine with two workers and a job of two tasks that may be repeated, and
// one that runs at most once. All of them run on the first worker, the last one with a
// logged start. Of the identities, the last two are no users.
func backedUp(t *testing.T) *Machine {
	t.Helper()
	m := NewMachine()
	plan := jobPlan{onFailure: continueOnFailure, tasks: []taskPlan{{name: "a"}, {name: "b"}, {name: "once", policy: 1}, {name: "after", deps: []uint32{0}}}}
	ops := []Op{
		&SetLevel{Level: 2}, &SetClusterID{ID: "00112233445566778899aabbccddeeff"},
		&Replica{ServerID: "n1", Instance: "a"}, &Replica{ServerID: "n2", Instance: "b"},
		&PinReplica{ServerID: "n1", KeyHashes: [][32]byte{hashed(9)}}, &SetTrust{Roots: [][]byte{{1}}, AtMS: 1},
		&RecordAuditHead{AuditHead{ServerID: "n1", Seq: 3, Hash: hashed(8), AtMS: 1}},
		&RegisterWorker{ID: 1, Name: "w1", Incarnation: "i", Slots: 9}, &RegisterWorker{ID: 2, Name: "w2", Incarnation: "i", Slots: 9},
	}
	for i, role := range []Role{RoleAdmin, RoleReader, RoleWorker, RoleReplica} {
		ops = append(ops, &CreateIdentity{
			Name: role.String(), Grant: Grant{Role: role}, CreatedBy: "x", CreatedMS: 1, Key: role.String(),
			Credential: Credential{Kind: CredentialKind(1 + i/2), Hash: hashed(byte(i + 1))},
		})
	}
	ops = append(ops, &CreateJoinToken{Purpose: JoinWorker, Grant: Grant{Role: RoleWorker}, Hash: hashed(7), CreatedBy: "x", CreatedMS: 1, Key: "k"})
	ops = append(ops, plan.submit(1, "key", 1<<50)...)
	for i := range uint32(3) {
		ops = append(ops, &Assign{Items: []AssignItem{AssignItem(hold(1, i, 1, 1))}})
	}
	ops = append(ops, &RecordStart{Items: []HeldAttempt{hold(1, 2, 1, 1)}})
	for i, op := range ops {
		if a, ok := m.Apply(uint64(i)+1, Encode(nil, Entry{NowMS: 5, Ops: []Op{op}})).(Applied); !ok || a.Rejected != Accepted {
			t.Fatalf("%T: %+v", op, a)
		}
	}
	return m
}

// reread returns the machine that reads what another one has written. All invariants are
// checked.
func reread(t *testing.T, m *Machine) *Machine {
	t.Helper()
	var written bytes.Buffer
	if err := m.Snapshot().Persist(&written); err != nil {
		t.Fatal(err)
	}
	read := NewMachine()
	if err := read.Restore(&written); err != nil {
		t.Fatal(err)
	}
	return read
}

func TestARestoredBackupIsANewClusterInWhichWhatRanIsReady(t *testing.T) {
	t.Parallel()
	m := backedUp(t)
	at := m.Index()
	got := m.RestoreBackup(Restoration{Recovery: Recovery{ClusterID: "c2", Server: "n7", Instance: "new"}})
	if got.Index != at+1<<20 || m.Index() != got.Index || len(got.Lost) != 1 || len(got.Requeued) != 2 {
		t.Errorf("got %+v, index %d after %d", got, m.Index(), at)
	}
	reread(t, m).Read(func(s *State, _ uint64) {
		instance, _ := s.Instance("n7")
		_, other := s.Instance("n1")
		if s.ClusterID() != "c2" || s.Epoch() != 1+1<<20 || instance != "new" || other || s.NextJob() != 2+1<<20 {
			t.Errorf("cluster %s, epoch %d, n7 %s, n1 known: %t, next job %d", s.ClusterID(), s.Epoch(), instance, other, s.NextJob())
		}
		for i, want := range []TaskState{Pending, Pending, Lost, Blocked} {
			task, _ := s.Task(ref(1, uint32(i)))
			if task.State != want || i < 3 && task.Attempt != 1 {
				t.Errorf("task %d is %s with attempt %d, want %s", i, task.State, task.Attempt, want)
			}
		}
		for _, name := range []string{"w1", "w2"} {
			if w := s.WorkerByName(name); w == nil || w.State != WorkerDown || s.LiveAttempts(w.ID) != 0 {
				t.Errorf("worker %s: %+v", name, w)
			}
		}
		if s.ReplicaKeys("n1") != nil || s.Trust() != nil || len(s.AuditHeads()) != 0 || s.Level() != 2 {
			t.Errorf("keys %v, trust %v, heads %v, level %d", s.ReplicaKeys("n1"), s.Trust(), s.AuditHeads(), s.Level())
		}
	})
}

// A job that is submitted again with its key is not stored twice.
func TestARestoredBackupKnowsItsIdempotencyKeys(t *testing.T) {
	t.Parallel()
	m := backedUp(t)
	m.RestoreBackup(Restoration{Recovery: Recovery{ClusterID: "c2", Server: "n1", Instance: "new"}})
	reread(t, m).Read(func(s *State, _ uint64) {
		if k, ok := s.keys.get("key"); !ok || k.job != 1 {
			t.Errorf("got %+v, %t", k, ok)
		}
	})
}

func TestAnAtMostOnceTaskThatMayRunAgainIsReady(t *testing.T) {
	t.Parallel()
	m := backedUp(t)
	got := m.RestoreBackup(Restoration{Recovery: Recovery{ClusterID: "c2", Server: "n1", Instance: "new", KeepAtMostOnce: true}})
	if len(got.Lost) != 0 || len(got.Requeued) != 3 {
		t.Errorf("got %+v", got)
	}
	reread(t, m).Read(func(s *State, _ uint64) {
		if task, _ := s.Task(ref(1, 2)); task.State != Pending || task.StartLogged || task.Attempt != 1 {
			t.Errorf("got %+v", task)
		}
	})
}

func TestARestoredBackupDropsTokensAndKeepsWorkersUnlessAsked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		keepTokens, dropWorkers bool
		want                    []Role
		joinTokens, workers     int
	}{
		"by default":   {false, false, []Role{RoleWorker}, 0, 2},
		"keep tokens":  {true, false, []Role{RoleAdmin, RoleReader, RoleWorker}, 1, 2},
		"drop workers": {false, true, nil, 0, 0},
		"both":         {true, true, []Role{RoleAdmin, RoleReader}, 1, 0},
	} {
		m := backedUp(t)
		got := m.RestoreBackup(Restoration{
			Recovery:   Recovery{ClusterID: "c2", Server: "n1", Instance: "new"},
			KeepTokens: test.keepTokens, DropWorkers: test.dropWorkers,
		})
		if got.Identities != 4-len(test.want) || got.JoinTokens != 1-test.joinTokens || got.Workers != 2-test.workers {
			t.Errorf("%s: got %+v", name, got)
		}
		reread(t, m).Read(func(s *State, _ uint64) {
			if s.IdentityCount() != len(test.want) || s.JoinTokenCount() != test.joinTokens || s.WorkerCount() != test.workers {
				t.Errorf("%s: %d identities, %d join tokens, %d workers", name, s.IdentityCount(), s.JoinTokenCount(), s.WorkerCount())
			}
			for i, role := range []Role{RoleAdmin, RoleReader, RoleWorker, RoleReplica} {
				found := s.IdentityByHash(hashed(byte(i+1))) != nil
				want := false
				for _, kept := range test.want {
					want = want || kept == role
				}
				if found != want || (s.IdentityByKey(0, role.String()) != nil) != want {
					t.Errorf("%s: %s is found: %t, want %t", name, role, found, want)
				}
			}
			if s.NextJoinToken() != 2 || s.NextWorker() != 3 {
				t.Errorf("%s: the next join token is %d, the next worker %d", name, s.NextJoinToken(), s.NextWorker())
			}
		})
	}
}

// Whatever a cluster was doing, its backup becomes a state without live attempts that all
// invariants hold for.
func TestAnyStateIsRestored(t *testing.T) {
	t.Parallel()
	lost, requeued := 0, 0
	for seed := range uint64(40) {
		m := anyMachine(seed)
		done := m.RestoreBackup(Restoration{
			Recovery:   Recovery{ClusterID: "c2", Server: "n1", Instance: "new", KeepAtMostOnce: seed%2 == 0},
			KeepTokens: seed%3 == 0, DropWorkers: seed%5 == 0,
		})
		lost, requeued = lost+len(done.Lost), requeued+len(done.Requeued)
		reread(t, m).Read(func(s *State, _ uint64) {
			for j := range s.Jobs(0) {
				if j.Counts[Assigned] > 0 || j.Running > 0 {
					t.Errorf("seed %d: job %d has %d live attempts, %d running", seed, j.ID, j.Counts[Assigned], j.Running)
				}
			}
		})
	}
	if lost == 0 || requeued == 0 {
		t.Errorf("%d tasks were lost and %d requeued: the states have too few attempts", lost, requeued)
	}
}

// anyMachine has applied entries with random operations.
func anyMachine(seed uint64) *Machine {
	g, m := newGenerator(seeded(seed)), NewMachine()
	for n := range 200 {
		var ops []Op
		m.Read(func(s *State, _ uint64) { ops = g.ops(s) })
		m.Apply(uint64(n)+1, Encode(nil, Entry{NowMS: int64(n + 1), Ops: ops}))
	}
	return m
}

// The same holds for what one replica has left.
func TestAnyStateIsRecovered(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		m := anyMachine(seed)
		m.Recover(Recovery{ClusterID: "c2", Server: "n1", Instance: "new", KeepAtMostOnce: seed%2 == 0})
		reread(t, m)
	}
}
