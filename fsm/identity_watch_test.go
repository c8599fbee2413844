package fsm

import (
	"bytes"
	"testing"
)

func (m subscribed) wantIdentities(what string, w *IdentityWatch, want bool) {
	m.Helper()
	got := false
	select {
	case <-w.Changed:
		got = true
	default:
	}
	if got != want {
		m.Errorf("%s: signaled %v, want %v", what, got, want)
	}
}

func TestAWatchSignalsChangesOfIdentities(t *testing.T) {
	t.Parallel()
	m := newSubscribed(t)
	w, other := m.WatchIdentities(), m.WatchIdentities()
	m.ops(worker(2))
	m.wantIdentities("a worker was registered", w, false)
	alice := &CreateIdentity{Name: "alice", Grant: Grant{Role: RoleAdmin}, Credential: Credential{Kind: TokenCredential, Hash: hashed(1)}, CreatedMS: 1000, Key: "a"}
	m.ops(workerToken(), redeem("w1", 2))
	m.wantIdentities("a worker joined", w, true)
	m.ops(alice)
	m.ops(&AddCredential{ID: 2, Credential: Credential{Kind: TokenCredential, Hash: hashed(9)}, CreatedMS: 1000})
	m.wantIdentities("two changes", w, true)
	m.wantIdentities("two changes, again", w, false)
	m.wantIdentities("the other watch", other, true)
	other.Close()
	other.Close()
	for _, op := range []Op{
		&DropCredential{ID: 2, Hash: hashed(9)}, &RevokeIdentity{IDs: []IdentityID{1}, AtMS: 1500}, &RevokeJoinToken{ID: 1, AtMS: 1500},
		&SetTrust{Roots: [][]byte{{1}}, AtMS: 1}, &PinReplica{"n1", [][32]byte{hashed(5)}},
	} {
		m.ops(op)
		m.wantIdentities(operations[op.kind()].name, w, true)
		m.Apply(m.Index()+1, Encode(nil, Entry{Ops: []Op{op, alice}})) // may be rejected
		m.wantIdentities(operations[op.kind()].name+" again", w, false)
	}
	m.ops(&ForgetIdentities{BeforeMS: 1501, Max: 10})
	m.wantIdentities("forgetting", w, true)
	m.wantIdentities("a closed watch", other, false)

	var b bytes.Buffer
	if err := m.Snapshot().Persist(&b); err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(&b); err != nil {
		t.Fatal(err)
	}
	m.wantIdentities("a restore", w, true)
	m.ops(&SetTrust{Roots: [][]byte{{2}}, AtMS: 2})
	m.wantIdentities("a change after the restore", w, true)
	w.Close()
}
