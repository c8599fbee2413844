package raftnode

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// snapshotRetain is how many snapshots stay on the disk: if the newest cannot be
// read, raft restores the one before it.
const snapshotRetain = 2

// snapshotCheck is how often the bytes of the log are looked at.
const snapshotCheck = time.Second

// snapshotLoop takes a snapshot when the log has grown by Config.SnapshotBytes.
// Raft's own trigger counts entries, which says nothing: an entry may hold one
// operation or thousands.
func (n *Node) snapshotLoop() {
	ticker := time.NewTicker(n.cfg.Pace.Of(snapshotCheck))
	defer ticker.Stop()
	var last time.Time
	for {
		select {
		case <-n.closing:
			return
		case now := <-ticker.C:
			if n.store.counters.sinceSnapshot.Load() < n.cfg.SnapshotBytes || now.Sub(last) < n.cfg.SnapshotInterval {
				continue
			}
			last = now
			if err := n.snapshot(); err != nil {
				// Raft refuses one while a configuration change is not yet
				// applied; the next round tries again.
				n.log.Warn("snapshot not taken", "err", err)
			}
		}
	}
}

// Snapshot takes a snapshot now, however small the log is. It returns nil when
// there is nothing new.
func (n *Node) Snapshot(ctx context.Context) error {
	return n.await(ctx, n.snapshot)
}

func (n *Node) snapshot() error {
	covered := n.store.counters.sinceSnapshot.Load()
	start := time.Now()
	err := n.raft.Snapshot().Error()
	switch {
	case errors.Is(err, raft.ErrNothingNewToSnapshot):
		return nil
	case err != nil:
		n.counters.snapshotFailures.Add(1)
		return err
	}
	// What was stored while the snapshot was written counts for the next one. An
	// entry that was stored before and applied after the capture is counted for
	// neither, which moves the next snapshot by that little.
	n.store.counters.sinceSnapshot.Add(-covered)
	n.counters.snapshots.Add(1)
	n.log.Info("snapshot taken", "log_bytes", covered, "took", time.Since(start))
	return nil
}
