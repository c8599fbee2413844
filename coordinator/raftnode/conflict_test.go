package raftnode

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/transport"
)

// splitHistory is a cluster of three in which two replicas acknowledged values that the
// third one, behind, has not seen. All are stopped, and the data directory of old, one
// of the two, is as it was before.
type splitHistory struct {
	cluster

	old, behind, ahead *testNode
}

// newSplitHistory makes such a cluster: 50 values are on all three, and 40 more on two.
// last is done with ahead, which has all of them, before it is stopped.
func newSplitHistory(t *testing.T, tune func(*Config), last ...func(ahead *testNode)) splitHistory {
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
	for _, do := range last {
		do(h.ahead)
	}
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
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			h := newSplitHistory(t, func(cfg *Config) { cfg.LogStore = kind })
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

// The leader's log is compacted, so it sends a snapshot of the other history.
func TestAReplicaRefusesASnapshotOfAnotherHistory(t *testing.T) {
	t.Parallel()
	h := newSplitHistory(t, func(cfg *Config) { cfg.TrailingLogs = 1 })
	leader := h.diverge(t)
	if err := leader.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.ahead.restart(t)
	h.ahead.refused(t, leader)
	h.ahead.leave(t)
}

// A later leader has never had the entries at which the histories part: it sends a
// snapshot that ends after everything that is committed here, in a later term.
func TestAReplicaRefusesALaterSnapshotOfAnotherHistory(t *testing.T) {
	t.Parallel()
	h := newSplitHistory(t, func(cfg *Config) { cfg.TrailingLogs = 1 })
	h.diverge(t).propose(t, 1005, 100)
	for _, n := range []*testNode{h.old, h.behind} {
		eventually(t, n.id+" has the other history", func() bool { return len(n.fsm.all()) == 155 })
		if err := n.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.old.stop(t)
	h.behind.stop(t)
	h.old.restart(t)
	h.behind.restart(t)
	leader := h.leader(t, h.ahead)
	h.ahead.restart(t)
	conflict := h.ahead.refused(t, leader)
	if conflict.Truncated < 50 || conflict.Truncated > conflict.Committed-39 {
		t.Errorf("entries from %d to %d would be lost, want the last 40", conflict.Truncated, conflict.Committed)
	}
	h.ahead.leave(t)
}

// The other history has fewer commands and more reads, which are entries, too: its
// snapshot ends after everything that is committed here, but its last command is before
// the last one that the own snapshot has.
func TestAReplicaRefusesASnapshotWithFewerCommands(t *testing.T) {
	t.Parallel()
	h := newSplitHistory(t, func(cfg *Config) { cfg.TrailingLogs = 1 }, func(ahead *testNode) { ahead.snapshotAll(t) })
	h.old.restart(t)
	h.behind.restart(t)
	leader := h.leader(t, h.ahead)
	leader.propose(t, 1000, 2)
	leader.read(t, 120)
	for _, n := range []*testNode{h.old, h.behind} {
		eventually(t, n.id+" has the other history", func() bool { return len(n.fsm.all()) == 52 && n.CommitIndex() == leader.CommitIndex() })
		n.snapshotAll(t)
	}
	leader.read(t, 3) // the log continues after the snapshot
	h.old.stop(t)
	h.behind.stop(t)
	h.old.restart(t)
	h.behind.restart(t)
	leader = h.leader(t, h.ahead)
	h.ahead.restart(t)
	conflict := h.ahead.refused(t, leader)
	if conflict.Truncated < 50 || conflict.Truncated > conflict.Committed-39 {
		t.Errorf("entries from %d to %d would be lost, want the last 40", conflict.Truncated, conflict.Committed)
	}
	h.ahead.leave(t)
}

// read does linearizable reads, each of which appends an entry other than commands.
func (n *testNode) read(t *testing.T, count int) {
	t.Helper()
	for range count {
		if _, err := n.ReadIndex(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// snapshotAll takes a snapshot of everything that is committed, and waits until the
// commit index is stored.
func (n *testNode) snapshotAll(t *testing.T) {
	t.Helper()
	eventually(t, n.id+" has a snapshot of all", func() bool {
		err := n.Snapshot(t.Context())
		at, _ := n.snapshotFiles.newest()
		return err == nil && at == n.CommitIndex() && n.store.PersistedCommitted() == at
	})
}

// What is between the last command in the own snapshot and the snapshot's end is deleted.
func TestASnapshotIsInstalledAfterOneThatEndsWithReads(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *Config) {
		slow(cfg)
		cfg.TrailingLogs = 1
	})
	leader := c.leader(t)
	leader.propose(t, 1, 20)
	for _, n := range c {
		n.holds(t, 20)
	}
	leader.read(t, 8)
	behind := c.others(leader)[0]
	eventually(t, "all is committed", func() bool { return behind.CommitIndex() == leader.LastIndex() })
	behind.snapshotAll(t)
	behind.stop(t)
	leader.propose(t, 21, 100)
	for _, n := range c {
		if n != behind {
			n.holds(t, 120)
			n.snapshotAll(t)
		}
	}
	behind.restart(t)
	behind.holds(t, 120)
	c.wantNoFatals(t)
}

// Nothing is sent after the snapshot but requests without entries.
func TestAReplicaKnowsWhatIsCommittedAfterItGotASnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *Config) {
		slow(cfg)
		cfg.TrailingLogs = 1
	})
	leader := c.leader(t)
	leader.propose(t, 1, 20)
	behind := c.others(leader)[0]
	behind.holds(t, 20)
	behind.stop(t)
	leader.propose(t, 21, 20)
	for _, n := range c {
		if n != behind {
			n.holds(t, 40)
			n.snapshotAll(t)
		}
	}
	behind.restart(t)
	behind.holds(t, 40)
	eventually(t, "all is committed", func() bool { return behind.CommitIndex() == leader.LastIndex() })
	c.wantNoFatals(t)
}

// A leader was killed before it stored an entry that it had sent to a replica with
// nothing but a snapshot. The next leader has another entry in its place, and only a
// shorter snapshot.
func TestAnEntryDirectlyAfterASnapshotIsReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *Config) {
		slow(cfg)
		cfg.TrailingLogs = 1
	})
	leader := c.leader(t)
	leader.propose(t, 1, 20)
	for _, n := range c {
		n.holds(t, 20)
		n.snapshotAll(t)
	}
	leader.propose(t, 21, 20)
	for _, n := range c {
		n.holds(t, 40)
	}
	behind := c.others(leader)[0]
	eventually(t, "all is committed", func() bool { return behind.CommitIndex() == leader.LastIndex() })
	behind.snapshotAll(t)
	at, term := behind.snapshotFiles.newest()
	c.stopTogether(t) // an election meanwhile would append an entry
	store := openStore(t, behind.dir, behind.logStore())
	first, err := store.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	unsent := &raft.Log{Index: at + 1, Term: term, Type: raft.LogCommand, Data: valueEntry(777)}
	if err := errors.Join(store.DeleteRange(first, at), store.StoreLogs([]*raft.Log{unsent}), store.Close()); err != nil {
		t.Fatal(err)
	}
	for _, n := range c {
		if n != behind {
			n.restart(t)
		}
	}
	c.leader(t, behind).propose(t, 41, 10)
	behind.restart(t)
	behind.holds(t, 50)
	c.wantNoFatals(t)
}

// A request may be checked while raft processes the one before, which commits entries.
func TestASnapshotThatWasOvertakenIsRefusedWithoutAConflict(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, slow)[0]
	n.propose(t, 1, 20)
	terms, _ := n.Node.fsm.history()
	earlier := snapshotHeader{index: 10, term: n.Term(), terms: terms.clone()}
	earlier.terms.list[0].last = 10
	if err := n.checkHistory(earlier, 12); !errors.Is(err, errOldSnapshot) {
		t.Errorf("a snapshot that ends at entry 12 of %d: %v", n.LastIndex(), err)
	}
	cluster{n}.wantNoFatals(t)
}

// A replica does not mistake a directory that it cannot read for one without snapshots.
func TestTheNewestSnapshotIsKnownWithoutReadingTheDisk(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, func(cfg *Config) {
		slow(cfg)
		cfg.TrailingLogs = 1
	})[0]
	n.propose(t, 1, 20)
	n.snapshotAll(t)
	want, _ := n.snapshotFiles.newest()
	hidden := filepath.Join(n.dir, "hidden")
	if err := os.Rename(filepath.Join(n.dir, snapshotsDir), hidden); err != nil {
		t.Fatal(err)
	}
	if got, term := n.snapshotFiles.newest(); got != want || term != n.Term() {
		t.Errorf("the newest snapshot ends at entry %d of term %d, want %d", got, term, want)
	}
	if err := n.mayDelete(1, want); err != nil {
		t.Errorf("entries that the snapshot has: %v", err)
	}
	if err := os.Rename(hidden, filepath.Join(n.dir, snapshotsDir)); err != nil {
		t.Fatal(err)
	}
	n.stop(t)
	n.restart(t)
	if got, _ := n.snapshotFiles.newest(); got != want {
		t.Errorf("after a restart the newest snapshot ends at entry %d, want %d", got, want)
	}
	cluster{n}.wantNoFatals(t)
}

// A replica with an older directory may have forgotten a term, too, and lead in it
// again: then only the checksums of the entries differ.
func TestALogThatContradictsACommittedEntryIsRecognized(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, slow)[0]
	n.propose(t, 1, 20)
	last, term := n.LastIndex(), n.Term()
	var entry raft.Log
	if err := n.logs.GetLog(last, &entry); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		index, term uint64
		sum         []byte
		contradicts bool
	}{
		"the same entry": {last, term, entry.Extensions, false},
		"the same entry, of which it has the term only":   {last, term, nil, false},
		"an entry of the same term, with another content": {last, term, []byte("another"), true},
		"an entry of another term":                        {last, term + 1, nil, true},
		"an earlier entry of another term":                {last - 1, term + 1, nil, true},
		"a later entry of a later term":                   {last + 1, term + 1, nil, false},
		"a later entry of an earlier term":                {last + 1, term - 1, nil, true},
	} {
		if got := n.contradicts(x.index, x.term, x.sum); got != x.contradicts {
			t.Errorf("%s contradicts: %v", name, got)
		}
	}
	stale := &raft.AppendEntriesRequest{Term: term - 1, Entries: []*raft.Log{{Index: last, Term: term - 1}}}
	if err := n.checkRequest(stale); err != nil {
		t.Errorf("a deposed leader's request, which raft ignores: %v", err)
	}
	old := &raft.InstallSnapshotRequest{Term: term, LastLogIndex: last - 1, LastLogTerm: term}
	if err := n.checkRequest(old); !errors.Is(err, transport.ErrSnapshotStored) || len(n.fatals.all()) > 0 {
		t.Errorf("a snapshot of entries that are stored: %v, fatal errors %v", err, n.fatals.all())
	}
	old.LastLogTerm++
	if err := n.checkRequest(old); err == nil || len(n.fatals.all()) != 1 {
		t.Errorf("a snapshot of another history: %v, fatal errors %v", err, n.fatals.all())
	}
	if err := n.checkRequest(&raft.RequestVoteRequest{Term: term + 1}); err == nil {
		t.Error("a replica that refused a leader votes")
	}
	n.leave(t)
}

// A leader that received no answer to its snapshot sends it again, though the replica has
// continued after it.
func TestALeaderThatSendsASnapshotAgainContinuesAfterIt(t *testing.T) {
	t.Parallel()
	f := newFollower(t)
	f.accepts(t, 1, 1, logsOf(2, 3, 1, 2, 3)...)
	if err := f.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.accepts(t, 4, 3, logsOf(5, 3, 4, 5)...)
	again := &raft.InstallSnapshotRequest{Term: 3, LastLogIndex: 4, LastLogTerm: 3}
	if err := f.checkRequest(again); !errors.Is(err, transport.ErrSnapshotStored) {
		t.Fatalf("the snapshot that is stored: %v", err)
	}
	f.accepts(t, 4, 3, logsOf(5, 3, 4, 5, 6)...)
	f.holds(t, 6)
	cluster{f.testNode}.wantNoFatals(t)
}

// The log has nothing but an uncommitted entry of an earlier leader, directly after the
// snapshot. The first request of the next leader has no entries.
func TestARequestWithoutEntriesContinuesAfterTheSnapshot(t *testing.T) {
	t.Parallel()
	f := newFollower(t)
	f.accepts(t, 1, 1, logsOf(2, 2, 1, 2, 3)...)
	f.snapshotAll(t)
	f.stop(t)
	s := openStore(t, f.dir, f.logStore())
	if err := errors.Join(s.DeleteRange(1, 4), s.StoreLogs(logsOf(5, 2, 777)), s.Close()); err != nil {
		t.Fatal(err)
	}
	f.restart(t)
	f.accepts(t, 4, 2)
	f.accepts(t, 4, 2, logsOf(5, 3, 4, 5)...)
	f.holds(t, 5)
	cluster{f.testNode}.wantNoFatals(t)
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
	c := newCluster(t, 3, endless)
	deposed := c.leader(t)
	deposed.propose(t, 1, 20)
	for _, n := range c {
		n.holds(t, 20)
	}
	c[0].net.isolate(deposed.address)
	for v := range uint64(10) {
		deposed.Propose(valueEntry(1000 + v)) // on one disk only
	}
	c.others(deposed)[0].stands(t)
	c.leader(t, deposed).propose(t, 21, 20)
	c[0].net.heal(deposed.address)
	deposed.holds(t, 40)
	c.wantNoFatals(t)
}

func TestADirectoryThatLacksItsCommittedEntriesIsDamaged(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, slow)[0]
	n.propose(t, 1, 20)
	// Entries have the index that was committed when they were stored: the last one is
	// persisted while nothing arrives.
	eventually(t, "the committed index is persisted", func() bool { return n.store.PersistedCommitted() >= n.LastIndex() })
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

// The assumption that remains (docs/guarantees.md): the leader that knows that an entry
// is committed loses it, and the follower that has it was killed before it learned
// that. To Raft and to the follower, the entry is like one that was never committed.
func TestAnEntryIsLostIfNoRemainingReplicaKnowsThatItIsCommitted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *Config) {
		slow(cfg)
		cfg.TimeScale = 100 // a follower learns of a commit after 2 s, or with the next entry
	})
	leader := c.leader(t)
	others := c.others(leader)
	ahead, behind := others[0], others[1]
	leader.propose(t, 1, 20)
	eventually(t, "all have stored the entries", func() bool {
		return ahead.LastIndex() == leader.LastIndex() && behind.LastIndex() == leader.LastIndex()
	})
	behind.stop(t)
	lost, copied := uint64(20), ""
	for copied == "" {
		lost++
		copied = filepath.Join(t.TempDir(), "copied")
		if err := os.CopyFS(copied, os.DirFS(leader.dir)); err != nil { // nothing is written meanwhile
			t.Fatal(err)
		}
		leader.propose(t, lost, 1)
		ahead.net.isolate(ahead.address)
		last := leader.LastIndex()
		if leader.CommitIndex() != last || ahead.LastIndex() != last {
			t.Fatalf("the leader knows that %d of %d entries are committed, the follower has %d", leader.CommitIndex(), last, ahead.LastIndex())
		}
		if ahead.CommitIndex() == last { // the machine was too slow
			ahead.net.heal(ahead.address)
			copied = ""
		}
	}
	ahead.stop(t)
	leader.stop(t)
	if err := errors.Join(os.RemoveAll(leader.dir), os.Rename(copied, leader.dir)); err != nil {
		t.Fatal(err)
	}
	leader.restart(t)
	behind.restart(t)
	c.leader(t, ahead).propose(t, 1000, 2)
	ahead.net.heal(ahead.address)
	ahead.restart(t)
	eventually(t, ahead.id+" has the value that replaced the lost one", func() bool { return slices.Contains(ahead.fsm.all(), 1000) })
	if slices.Contains(ahead.fsm.all(), lost) {
		t.Error("the value is not lost; correct docs/guarantees.md")
	}
	c.wantNoFatals(t)
}
