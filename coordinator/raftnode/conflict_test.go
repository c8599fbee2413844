package raftnode

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
)

// splitHistory is a cluster of three in which two replicas acknowledged values that the
// third one, behind, has not seen. All are stopped, and the data directory of old, one
// of the two, is as it was before.
type splitHistory struct {
	cluster

	old, behind, ahead *testNode
}

// newSplitHistory makes such a cluster: 50 values are on all three, and 40 more on two.
// If oldLed, old was the leader of an earlier term, so that it forgets the later term
// as well, and can lead in it.
func newSplitHistory(t *testing.T, oldLed bool, tune func(*Config)) splitHistory {
	t.Helper()
	c := newCluster(t, 3, func(cfg *Config) {
		slow(cfg)
		tune(cfg)
	})
	leader := c.leader(t)
	leader.propose(t, 1, 50)
	for _, n := range c {
		n.holds(t, 50)
	}
	others := c.others(leader)
	h := splitHistory{cluster: c, old: others[0], behind: others[1], ahead: leader}
	if oldLed {
		h.old, h.ahead = leader, others[0]
	}
	h.old.stop(t)
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(h.old.dir)); err != nil {
		t.Fatal(err)
	}
	h.old.restart(t)
	c.leader(t)
	h.behind.stop(t)
	c.leader(t, h.behind).propose(t, 51, 40)
	h.ahead.holds(t, 90)
	h.old.stop(t)
	h.ahead.stop(t)
	if err := errors.Join(os.RemoveAll(h.old.dir), os.Rename(copied, h.old.dir)); err != nil {
		t.Fatal(err)
	}
	return h
}

// diverge lets the other two elect a leader, which stores values in place of the lost
// ones.
func (h splitHistory) diverge(t *testing.T) (leader *testNode) {
	t.Helper()
	h.old.restart(t)
	h.behind.restart(t)
	leader = h.leader(t, h.ahead)
	leader.propose(t, 1000, 5)
	return leader
}

// refused waits until a replica has refused to lose entries, and checks what is left of
// it.
func (n *testNode) refused(t *testing.T, leader *testNode) *ConflictError {
	t.Helper()
	eventually(t, n.id+" stops", func() bool { return len(n.fatals.all()) > 0 })
	conflict, ok := errors.AsType[*ConflictError](n.fatals.all()[0])
	if !ok {
		t.Fatalf("%s stopped with %v, want a ConflictError", n.id, n.fatals.all())
	}
	if term := leader.Term(); conflict.Leader != leader.id || conflict.LeaderTerm != term {
		t.Errorf("the conflict is with leader %q of term %d, want %s of term %d", conflict.Leader, conflict.LeaderTerm, leader.id, term)
	}
	if conflict.Truncated == 0 || conflict.Truncated > conflict.Committed || conflict.CommittedTerm == 0 {
		t.Errorf("conflict: %+v", conflict.Conflict)
	}
	for _, want := range []string{conflict.Leader, "docs/operations.md", "Do not delete"} {
		if !strings.Contains(conflict.Error(), want) {
			t.Errorf("the message lacks %q: %s", want, conflict.Error())
		}
	}
	stored, err := datadir.ReadConflict(n.dir)
	if err != nil || stored == nil || *stored != withoutClock(conflict.Conflict, *stored) {
		t.Errorf("stored is %+v, %v; want %+v", stored, err, conflict.Conflict)
	}
	return conflict
}

// withoutClock is a conflict with the time of another one, which was rounded.
func withoutClock(c, other datadir.Conflict) datadir.Conflict {
	c.Found = other.Found
	return c
}

func TestAReplicaRefusesToLoseCommittedEntries(t *testing.T) {
	t.Parallel()
	for _, kind := range []logstore.Kind{logstore.Bolt, logstore.WAL} {
		for name, oldLed := range map[string]bool{"": false, "with the same term": true} {
			t.Run(string(kind)+name, func(t *testing.T) {
				t.Parallel()
				h := newSplitHistory(t, oldLed, func(cfg *Config) { cfg.LogStore = kind })
				leader := h.diverge(t)
				before, err := Inspect(h.ahead.dir, kind)
				if err != nil {
					t.Fatal(err)
				}
				h.ahead.restart(t)
				conflict := h.ahead.refused(t, leader)
				h.ahead.leave(t)

				after, err := Inspect(h.ahead.dir, kind)
				if err != nil || after.Last != before.Last || after.Last != conflict.Committed {
					t.Errorf("the log ended at entry %d and ends at %d, %v; %d are committed", before.Last, after.Last, err, conflict.Committed)
				}
				h.ahead.listen(t)
				if _, err := Open(h.ahead.config(t)); err == nil {
					t.Error("Raft runs again on a directory with a conflict")
				} else if _, ok := errors.AsType[*ConflictError](err); !ok {
					t.Errorf("opening a directory with a conflict: %v", err)
				}
				leader.propose(t, 1005, 5) // the others continue
			})
		}
	}
}

// The leader's log is compacted, so it sends a snapshot of the other history.
func TestAReplicaRefusesASnapshotOfAnotherHistory(t *testing.T) {
	t.Parallel()
	for name, oldLed := range map[string]bool{"of another term": false, "of the same term": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newSplitHistory(t, oldLed, func(cfg *Config) { cfg.TrailingLogs = 1 })
			leader := h.diverge(t)
			if err := leader.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			h.ahead.restart(t)
			h.ahead.refused(t, leader)
			h.ahead.leave(t)
		})
	}
}

// Without the check of requests, raft would delete the entries; the log refuses.
func TestCommittedEntriesAreNotDeleted(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, slow)[0]
	n.propose(t, 1, 20)
	last := n.LastIndex()
	if err := n.logs.DeleteRange(last-3, last); err == nil {
		t.Error("committed entries were deleted")
	}
	if errs := n.fatals.all(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "refuses to lose") {
		t.Errorf("fatal errors: %v", errs)
	}
	if c, err := datadir.ReadConflict(n.dir); err != nil || c == nil || c.Truncated != last-3 {
		t.Errorf("stored is %+v, %v", c, err)
	}
	n.leave(t)
}

// Raft itself replaces entries that were never committed, and that stays so.
func TestUncommittedEntriesAreReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	deposed := c.leader(t)
	deposed.propose(t, 1, 20)
	for _, n := range c {
		n.holds(t, 20)
	}
	c[0].net.isolate(deposed.address)
	for v := range uint64(10) {
		deposed.Propose(valueEntry(1000 + v)) // on one disk only
	}
	c.leader(t, deposed).propose(t, 21, 20)
	c[0].net.heal(deposed.address)
	deposed.holds(t, 40)
	c.wantNoFatals(t)
}

func TestADirectoryThatLacksItsCommittedEntriesIsDamaged(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, slow)[0]
	n.propose(t, 1, 20)
	eventually(t, "the committed index is persisted", func() bool { return n.store.PersistedCommitted() >= 20 })
	n.stop(t)
	store := openStore(t, n.dir, n.logStore())
	last, err := store.LastIndex()
	if err := errors.Join(err, store.DeleteRange(last-5, last), store.Close()); err != nil {
		t.Fatal(err)
	}
	n.listen(t)
	_, err = Open(n.config(t))
	if damage, ok := errors.AsType[*logstore.DamageError](err); !ok || !strings.Contains(damage.Detail, "was committed") {
		t.Errorf("opening returned %v, want a DamageError", err)
	}
}
