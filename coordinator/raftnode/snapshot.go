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
//
// The first one comes earlier, at each replica at another time: when all of them write
// at once, none is left to answer the leader quickly.
func (n *Node) snapshotLoop() {
	ticker := time.NewTicker(n.cfg.TimeScale.Scale(snapshotCheck))
	defer ticker.Stop()
	var last time.Time
	for {
		select {
		case <-n.closing:
			return
		case now := <-ticker.C:
			due := n.cfg.SnapshotBytes
			if last.IsZero() {
				due = n.turn(due)
			}
			if n.store.BytesSinceSnapshot() < due || now.Sub(last) < n.cfg.SnapshotInterval {
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

// turn is this replica's part of all: of the third of five replicas, by id, three fifths.
func (n *Node) turn(all uint64) uint64 {
	own, before, servers := n.cfg.Identity.Get().ServerID, uint64(0), n.Servers()
	for _, s := range servers {
		if s.ID < own {
			before++
		}
	}
	if len(servers) == 0 {
		return all
	}
	return all / uint64(len(servers)) * min(before+1, uint64(len(servers)))
}

// Snapshot takes a snapshot now, however small the log is. It returns nil when
// there is nothing new.
func (n *Node) Snapshot(ctx context.Context) error {
	return n.await(ctx, n.snapshot)
}

func (n *Node) snapshot() error {
	covered := n.store.BytesSinceSnapshot()
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
	n.store.SnapshotTaken(covered)
	n.counters.snapshots.Add(1)
	n.log.Info("snapshot taken", "log_bytes", covered, "took", time.Since(start))
	return nil
}
