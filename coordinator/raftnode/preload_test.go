package raftnode

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
)

// snapshotted returns a stopped replica with one snapshot of 50 entries and five more
// entries.
func snapshotted(t *testing.T) *testNode {
	t.Helper()
	c := newCluster(t, 1, func(cfg *Config) { cfg.TrailingLogs = 1 })
	n := c.leader(t)
	n.propose(t, 1, 50)
	if err := n.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.propose(t, 51, 5)
	n.stop(t)
	return n
}

func TestAPreloadedSnapshotIsReadOnceAndUsedAtOpen(t *testing.T) {
	t.Parallel()
	n := snapshotted(t)
	n.listen(t)
	cfg := n.config(t)
	cfg.Preloaded = Preload(t.Context(), n.dir, n.fsm)
	cfg.Preloaded.Wait()
	if got := n.fsm.all(); len(got) != 0 {
		t.Errorf("%d entries are in use before the node is open", len(got))
	}
	node, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Node = node
	n.holds(t, 55)
	if reads := n.fsm.reads.Load(); reads != 1 {
		t.Errorf("the snapshot was read %d times", reads)
	}
	cluster{n}.leader(t).propose(t, 56, 5)
	n.holds(t, 60)
}

func TestRaftRestoresWhatCouldNotBePreloaded(t *testing.T) {
	t.Parallel()
	n := snapshotted(t)
	given, cancel := context.WithCancel(t.Context())
	cancel()
	n.listen(t)
	cfg := n.config(t)
	cfg.Preloaded = Preload(given, n.dir, n.fsm)
	node, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Node = node
	n.holds(t, 55)
}

func TestOnlyTheSnapshotThatRaftStartsWithIsPreloaded(t *testing.T) {
	t.Parallel()
	names := []string{"2-900-1700000000000", "10-90-1600000000000", "10-900-1500000000000", "10-900-1500000000001", "9-1000-1900000000000", "lost+found"}
	if got := slices.MaxFunc(names, compareSnapshots); got != names[3] {
		t.Errorf("%s is preloaded, want %s", got, names[3])
	}
	n := snapshotted(t)
	there, err := snapshotNames(n.dir)
	if err != nil {
		t.Fatal(err)
	}
	rewrite(t, filepath.Join(n.dir, snapshotsDir, slices.MaxFunc(there, compareSnapshots), "meta.json"), func(data []byte) { data[0] ^= 1 })
	n.listen(t)
	cfg := n.config(t)
	cfg.Preloaded = Preload(t.Context(), n.dir, n.fsm)
	if node, err := Open(cfg); err == nil {
		n.Node = node
		t.Error("a snapshot that raft cannot read was used")
	}
	if got := n.fsm.all(); len(got) != 0 {
		t.Errorf("%d entries of it are in use", len(got))
	}
}
