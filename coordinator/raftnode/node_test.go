package raftnode

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/transport"
)

func TestTheClusterContinuesWithoutItsLeaderWhichThenCatchesUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	first := c.leader(t)
	first.propose(t, 1, 500)
	c.watched(t, first) // so that its end is noticed at once
	first.stop(t)

	second := c.leader(t)
	second.propose(t, 501, 500)
	first.restart(t)
	for _, n := range c {
		n.holds(t, 1000)
	}
	if s := second.Stats(); s.Proposals != 500 || s.Syncs == 0 || s.Pending != 0 {
		t.Errorf("stats: %+v", s)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(second.Collector())
	if families, err := registry.Gather(); err != nil || len(families) < 10 {
		t.Errorf("%d metric families, %v", len(families), err)
	}
	c.wantNoFatals(t)
}

func TestAllRestartedTogetherKeepEverything(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	c.leader(t).propose(t, 1, 100)
	for _, n := range c {
		n.stop(t)
		if f, err := Inspect(n.dir, n.logStore()); err != nil || !f.HasState {
			t.Errorf("%s has state: %+v, %v", n.id, f, err)
		}
	}
	for _, n := range c {
		n.restart(t)
	}
	c.leader(t).propose(t, 101, 100)
	for _, n := range c {
		n.holds(t, 200)
	}
	c.wantNoFatals(t)
}

func TestANewReplicaIsRestoredFromASnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(cfg *Config) {
		endless(cfg) // of two voters one is restarted below, however long that takes
		cfg.SnapshotBytes, cfg.SnapshotInterval, cfg.TrailingLogs = 1000, 1, 10
	})
	leader := c.leader(t)
	leader.propose(t, 1, 500)
	eventually(t, "a snapshot", func() bool { return hasSnapshot(t, leader.dir) && leader.Stats().Snapshots > 0 })
	leader.propose(t, 501, 100)

	joiner := newTestNode(t, "n2", leader.net)
	joiner.tune = endless
	joiner.peers = []Server{{ID: "n1", Address: leader.address}}
	for _, n := range []*testNode{leader, joiner} {
		if err := n.identity.SetClusterID("c1"); err != nil {
			t.Fatal(err)
		}
	}
	joiner.start(t, nil)
	if err := leader.AddNonvoter(t.Context(), joiner.id, joiner.address); err != nil {
		t.Fatal(err)
	}
	joiner.holds(t, 600)
	if index, err := leader.ReadIndex(t.Context()); err != nil || index < leader.AppliedIndex() {
		t.Errorf("read index %d, %v; applied %d", index, err, leader.AppliedIndex())
	}
	if err := leader.AddVoter(t.Context(), joiner.id, joiner.address); err != nil {
		t.Fatal(err)
	}
	leader.propose(t, 601, 10)
	joiner.holds(t, 610)
	if !hasSnapshot(t, joiner.dir) {
		t.Error("the joining replica received no snapshot")
	}
	joiner.stop(t)
	joiner.restart(t)
	if got := joiner.AppliedIndex(); got == 0 {
		t.Error("the applied index is not restored with the snapshot")
	}
	joiner.holds(t, 610)
	if err := leader.Remove(t.Context(), joiner.id); err != nil {
		t.Fatal(err)
	}
	leader.propose(t, 611, 1)
	leader.holds(t, 611)
	append(c, joiner).wantNoFatals(t)
}

func TestADeposedLeaderAnswersNoRead(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	old := c.leader(t)
	old.propose(t, 1, 1)
	index, err := old.ReadIndex(t.Context())
	if err != nil || index == 0 {
		t.Fatalf("read index %d, %v", index, err)
	}
	if applied := old.AppliedIndex(); applied < index {
		t.Fatalf("ReadIndex returned %d before it is applied: %d", index, applied)
	}
	old.net.isolate(old.address)
	// From here on it is isolated, whether or not it has noticed.
	if _, err := old.ReadIndex(t.Context()); !errors.Is(err, ErrNoLeader) {
		t.Errorf("an isolated leader answers a read: %v", err)
	}
	_, _, err = old.Propose(make([]byte, 8)).Wait()
	var notLeader *NotLeaderError
	if !errors.Is(err, ErrOutcomeUnknown) && !errors.As(err, &notLeader) {
		t.Errorf("an isolated leader answers a proposal: %v", err)
	}
	next := c.leader(t, old)
	next.propose(t, 2, 1)
	if _, err := old.ReadIndex(t.Context()); !errors.Is(err, ErrNoLeader) {
		t.Errorf("a deposed leader answers a read: %v", err)
	}
	old.net.heal(old.address)
	old.holds(t, 2)
	eventually(t, "a follower that names the leader", func() bool {
		_, err = old.ReadIndex(t.Context())
		return errors.As(err, &notLeader) && notLeader.LeaderID == next.id && notLeader.LeaderAddr == next.address
	})
	c.wantNoFatals(t)
}

func TestAnIsolatedLeaderReportsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	old := c.leader(t)
	old.net.isolate(old.address)
	p := old.Propose(make([]byte, 8)) // it still leads, for a heartbeat timeout
	if _, _, err := p.Wait(); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("got %v, want ErrOutcomeUnknown", err)
	}
}

func TestManyReadsShareARound(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, endless)
	leader := c.leader(t)
	leader.propose(t, 1, 1)
	before := leader.Stats()
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			for range 50 {
				if _, err := leader.ReadIndex(t.Context()); err != nil {
					t.Errorf("reading: %v", err)
				}
			}
		})
	}
	group.Wait()
	after := leader.Stats()
	reads, rounds := after.Reads-before.Reads, after.ReadRounds-before.ReadRounds
	if reads != 3200 || rounds > reads/4 {
		t.Errorf("%d reads took %d rounds", reads, rounds)
	}
}

func TestTransferMovesLeadership(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, endless)
	old := c.leader(t)
	term, err := old.Barrier(t.Context())
	if err != nil || term != old.Term() {
		t.Fatalf("barrier: term %d, %v", term, err)
	}
	if err := old.Transfer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next := c.leader(t); next == old || next.Term() <= term {
		t.Errorf("%s leads in term %d after %s in term %d", next.id, next.Term(), old.id, term)
	}
	if _, err := old.Barrier(t.Context()); err == nil {
		t.Error("a follower passed a barrier")
	}
}

func TestAClosedNodeRefuses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	leader := c.leader(t)
	node := leader.Node
	leader.stop(t)
	if _, _, err := node.Propose(make([]byte, 8)).Wait(); !errors.Is(err, ErrClosed) {
		t.Errorf("propose: %v", err)
	}
	if _, err := node.ReadIndex(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("read: %v", err)
	}
	if _, err := node.Barrier(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("barrier: %v", err)
	}
	if err := node.Close(t.Context()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

func TestAnInterruptedBootstrapIsRepeated(t *testing.T) {
	t.Parallel()
	n := newTestNode(t, "n1", nil)
	s := openStore(t, n.dir, n.logStore())
	if err := errors.Join(s.SetUint64([]byte("CurrentTerm"), 1), s.Close()); err != nil { // the crash came here
		t.Fatal(err)
	}
	if f, err := Inspect(n.dir, n.logStore()); err != nil || f.HasState {
		t.Fatalf("has state: %+v, %v", f, err)
	}
	n.start(t, []Server{{ID: n.id, Address: n.address}})
	cluster{n}.leader(t).propose(t, 1, 1)
	n.stop(t)
	n.listen(t)
	cfg := n.config(t)
	cfg.BootstrapServers = []Server{{ID: n.id, Address: n.address}}
	if _, err := Open(cfg); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a second bootstrap: %v, want ErrNotEmpty", err)
	}
}

func TestAMissingStoreIsDamage(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	n := c[0]
	c.leader(t).propose(t, 1, 1)
	n.stop(t)
	if err := os.Remove(filepath.Join(n.dir, logstore.FileName)); err != nil {
		t.Fatal(err)
	}
	n.listen(t)
	var damage *logstore.DamageError
	if _, err := Open(n.config(t)); !errors.As(err, &damage) {
		t.Errorf("got %v, want a DamageError", err)
	}
}

func TestUnfinishedSnapshotsAreRemovedAndADamagedOneIsKept(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(cfg *Config) { cfg.TrailingLogs = 1 })
	n := c[0]
	c.leader(t).propose(t, 1, 50)
	if err := n.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.stop(t)
	unfinished := filepath.Join(n.dir, snapshotsDir, "1-2-3"+tmpSuffix)
	if err := os.MkdirAll(unfinished, 0o700); err != nil {
		t.Fatal(err)
	}
	n.restart(t)
	if _, err := os.Stat(unfinished); !os.IsNotExist(err) {
		t.Errorf("the unfinished snapshot still exists: %v", err)
	}
	n.holds(t, 50)
	n.stop(t)

	names, err := snapshotNames(n.dir)
	if err != nil || len(names) != 1 {
		t.Fatalf("snapshots: %v, %v", names, err)
	}
	rewrite(t, filepath.Join(n.dir, snapshotsDir, names[0], "state.bin"), func(data []byte) { data[len(data)-1] ^= 1 })
	n.listen(t)
	var damage *logstore.DamageError
	if _, err := Open(n.config(t)); !errors.As(err, &damage) {
		t.Errorf("got %v, want a DamageError", err)
	}
	if !hasSnapshot(t, n.dir) {
		t.Error("the damaged snapshot was deleted")
	}
}

// haltingFSM cannot apply any entry.
type haltingFSM struct{ counter }

func (*haltingFSM) Apply(uint64, uint64, []byte) any { panic("unknown operation") }

func TestAnEntryThatCannotBeAppliedHaltsTheReplica(t *testing.T) {
	t.Parallel()
	n := newTestNode(t, "n1", nil)
	n.tune = func(cfg *Config) { cfg.FSM = &haltingFSM{} }
	n.start(t, []Server{{ID: n.id, Address: n.address}})
	leader := cluster{n}.leader(t)
	if _, _, err := leader.Propose(make([]byte, 8)).Wait(); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("got %v, want ErrOutcomeUnknown", err)
	}
	var halt *HaltError
	eventually(t, "the failure is reported", func() bool { return len(n.fatals.all()) > 0 })
	if errs := n.fatals.all(); len(errs) != 1 || !errors.As(errs[0], &halt) {
		t.Errorf("fatal got %v, want a HaltError", errs)
	}
	if n.AppliedIndex() != 0 {
		t.Error("the entry counts as applied")
	}
	if _, _, err := leader.Propose(make([]byte, 8)).Wait(); !errors.Is(err, ErrNoLeader) {
		t.Errorf("a halted replica accepts a proposal: %v", err)
	}
}

func TestApplyVerifiesTheEntry(t *testing.T) {
	t.Parallel()
	f := &fatals{}
	fsm := &counter{}
	a := newFSMAdapter(fsm, f.record, nil)
	log := &raft.Log{Index: 1, Term: 2, Data: make([]byte, 8)}
	s := openStore(t, t.TempDir(), logstore.Bolt)
	if err := errors.Join(s.StoreLog(log), s.Close()); err != nil { // which adds the checksum
		t.Fatal(err)
	}
	log.Term++
	a.Apply(log)
	var damage *logstore.DamageError
	if errs := f.all(); len(errs) != 1 || !errors.As(errs[0], &damage) {
		t.Errorf("fatal got %v, want a DamageError", errs)
	}
	if len(fsm.all()) != 0 {
		t.Error("a damaged entry was applied")
	}
	if err := a.Restore(io.NopCloser(nil)); err == nil {
		t.Error("a halted state machine is restored")
	}
}

func TestADamagedEntryStopsOnlyItsReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, endless)
	leader := c.leader(t)
	leader.propose(t, 1, 20)
	victim := c[0]
	if victim == leader {
		victim = c[1]
	}
	victim.holds(t, 20)
	victim.stop(t)
	victim.damageEntry(t, 10)
	victim.listen(t)
	node, err := Open(victim.config(t))
	if err == nil {
		victim.Node = node
	}
	if _, ok := errors.AsType[*logstore.DamageError](err); !ok {
		t.Errorf("got %v, want a DamageError", err)
	}
	leader.propose(t, 21, 1)
	leader.holds(t, 21)
}

func TestConfigReportsEveryMissingField(t *testing.T) {
	t.Parallel()
	if _, err := Open(Config{}); err == nil {
		t.Error("an empty config is valid")
	}
}

// Right after an election raft assumes the same of all logs, including that of a dead
// replica.
func TestANewLeaderTransfersToAReachableVoter(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	old := c.leader(t)
	c.watched(t, old) // so that its end is noticed at once
	old.stop(t)
	for range 6 { // raft would choose the dead one half of the time
		leader := c.leader(t)
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		err := leader.Transfer(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	c.wantNoFatals(t)
}

// The instance rule also applies to the side that dials.
func TestASecondInstanceIsRefusedBothWays(t *testing.T) {
	t.Parallel()
	w := newNetwork()
	old, wiped := newTestNode(t, "n1", w), newTestNode(t, "n2", w)
	peers := []Server{{ID: "n1", Address: old.address, Voter: true}, {ID: "n2", Address: wiped.address, Voter: true}}
	old.peers, wiped.peers = peers, peers
	old.known = func(id string) (string, bool) { return "the instance before", id == "n2" }
	old.start(t, peers)
	wiped.start(t, nil) // without asking for admission
	eventually(t, "the known replica refuses the peer that it dials", func() bool { return old.Stats().PeersRefused["instance"] > 0 })
	eventually(t, "a refusal because of another instance", func() bool { // a question has little time
		_, err := wiped.transport.Ask(t.Context(), transport.Peer{ID: old.id, Address: old.address}, transport.Question{Kind: transport.AskDiskSpace})
		_, refused := errors.AsType[*transport.RefusedError](err)
		if err == nil || refused && !strings.Contains(err.Error(), "another instance") {
			t.Fatalf("got %v, want a refusal because of another instance", err)
		}
		return refused
	})
	if wiped.LastIndex() != 0 || wiped.Term() != 0 {
		t.Errorf("the wiped replica took part: term %d, last index %d", wiped.Term(), wiped.LastIndex())
	}
}
