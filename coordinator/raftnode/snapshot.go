package raftnode

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/logstore"
)

// snapshotInterval is how often the size of the log is compared with
// Config.SnapshotBytes.
const snapshotInterval = time.Second

// snapshotter takes a snapshot when the log has grown by a number of bytes, and by at
// least the size of the newest snapshot. Otherwise, a replica with a large state would
// write many times as many bytes for snapshots as for the log.
//
// Raft's own trigger counts entries, which means little: an entry may hold one operation
// or thousands.
type snapshotter struct {
	*view

	log      *slog.Logger
	store    *logstore.Store
	files    *snapshotStore
	bytes    uint64        // of log that cause a snapshot, at least
	interval time.Duration // minimum between two snapshots

	snapshots, failures atomic.Uint64
}

// run takes snapshots until ctx is done, and checks for them every tick.
func (s *snapshotter) run(ctx context.Context, tick time.Duration) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if s.store.BytesSinceSnapshot() < s.due(last.IsZero()) || now.Sub(last) < s.interval {
				continue
			}
			last = now
			if err := s.take(); err != nil {
				// Raft refuses a snapshot while a configuration change is not applied;
				// the next round tries again.
				s.log.WarnContext(ctx, "snapshot not taken", "err", err)
			}
		}
	}
}

// due returns after how many bytes of log a snapshot is due. The first one comes
// earlier, at each replica at another time: if all of them wrote at once, none could
// answer the leader quickly.
func (s *snapshotter) due(first bool) uint64 {
	bytes := max(s.bytes, s.files.size())
	if first {
		return s.share(bytes)
	}
	return bytes
}

// share returns this replica's share of n: for the third of five replicas, by id, three
// fifths.
func (s *snapshotter) share(n uint64) uint64 {
	servers, rank := s.Servers(), uint64(1)
	for _, server := range servers {
		if server.ID < s.self {
			rank++
		}
	}
	if len(servers) == 0 {
		return n
	}
	return n / uint64(len(servers)) * min(rank, uint64(len(servers)))
}

// take takes a snapshot, unless there is nothing new.
func (s *snapshotter) take() error {
	covered := s.store.BytesSinceSnapshot()
	start := time.Now()
	err := s.raft.Snapshot().Error()
	switch {
	case errors.Is(err, raft.ErrNothingNewToSnapshot):
		return nil
	case err != nil:
		s.failures.Add(1)
		return err
	}
	// Bytes that were stored while the snapshot was written count for the next one. An
	// entry stored before and applied after the capture counts for neither, which
	// delays the next snapshot slightly.
	s.store.SnapshotTaken(covered)
	s.snapshots.Add(1)
	s.log.Info("snapshot taken", "log_bytes", covered, "took", time.Since(start))
	return nil
}

// Snapshot takes a snapshot now, however small the log is. It returns nil if there is
// nothing new.
func (n *Node) Snapshot(ctx context.Context) error {
	return n.calls.await(ctx, n.snapshots.take)
}
