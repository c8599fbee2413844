package fsm

import (
	"bytes"
	"strings"
	"testing"
)

func TestANameOfTheClusterIsSetChangedAndRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	refused(t, w, "removed without one", AlreadyEnded, &SetClusterName{})
	w.do(&SetClusterName{Name: "eu-prod"})
	if w.s.ClusterName() != "eu-prod" {
		t.Errorf("got %q", w.s.ClusterName())
	}
	sameState(t, "after a restore", restored(t, snapshotOf(t, w.s)), w.s)
	fork := w.s.Fork()
	refused(t, w, "the same", AlreadyEnded, &SetClusterName{Name: "eu-prod"})
	w.do(&SetClusterName{Name: "us-prod"})
	if fork.ClusterName() != "eu-prod" || w.s.ClusterName() != "us-prod" {
		t.Errorf("the fork has %q, the state %q", fork.ClusterName(), w.s.ClusterName())
	}
	w.do(&SetClusterName{})
	if got := snapshotOf(t, w.s); bytes.Contains(got, []byte("us-prod")) {
		t.Error("the snapshot has the name that was removed")
	}
}

func TestANameOfTheClusterIsChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"-a", "a-", "a.b", "a_b", "a:b", "a/b", "a b", "ä", strings.Repeat("x", 64)} {
		refused(t, w, name, Malformed, &SetClusterName{Name: name})
	}
	w.do(&SetClusterName{Name: strings.Repeat("x", 63)})
}

// A restored or recovered cluster is another one, and still the same to people.
func TestARestoredClusterKeepsItsName(t *testing.T) {
	t.Parallel()
	m := backedUp(t)
	for i, op := range []Op{&SetLevel{Level: 3}, &SetClusterName{Name: "prod"}} {
		if a, ok := m.Apply(m.Index()+1, Encode(nil, Entry{NowMS: 5, Ops: []Op{op}})).(Applied); !ok || a.Rejected != Accepted {
			t.Fatalf("%d: %+v", i, a)
		}
	}
	m.RestoreBackup(Restoration{Recovery: Recovery{ClusterID: "c2", Server: "n7", Instance: "new"}})
	reread(t, m).Read(func(s *State, _ uint64) {
		if s.ClusterName() != "prod" {
			t.Errorf("got %q", s.ClusterName())
		}
	})
}

func TestADamagedNameOfTheClusterIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.s.clusterName.name = "a:b"
	if err := w.s.Check(); err == nil || !strings.Contains(err.Error(), `malformed name "a:b" of the cluster`) {
		t.Errorf("got %v", err)
	}
}
