package raftnode

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/internal/loglimit"
)

const (
	// yieldRetryDelay is the delay after leadership could not be transferred.
	yieldRetryDelay = 10 * time.Second
	// yieldTimeout bounds one transfer.
	yieldTimeout = 2 * time.Second
)

// SpaceLimit is how much space must be free on a disk: the larger of the two.
type SpaceLimit struct {
	Bytes   uint64
	Percent uint64 // of the size of the disk; at most 100
}

// DefaultSpaceLimit is 256 MiB. A share of the disk is for the operator to choose: a
// tenth of a large disk is enough for years.
func DefaultSpaceLimit() SpaceLimit { return SpaceLimit{Bytes: 256 << 20} }

// of returns the bytes that must be free on a disk of a size.
func (l SpaceLimit) of(size uint64) uint64 { return max(l.Bytes, size/100*l.Percent) }

// SpaceFunc returns how many bytes are available to this process on the disk of a
// directory, and the size of the disk; a size of 0 means unknown.
type SpaceFunc func(dir string) (free, size uint64, err error)

// DiskSpace is the SpaceFunc of released programs.
func DiskSpace(dir string) (free, size uint64, err error) { return diskSpace(dir) }

// spaceMonitor measures the free space of the data directory's disk. A full disk ends
// the process at the next write, and the replicas one after the other. So two limits
// come before that:
//
//	low       the owner refuses what would fill the disk further (Node.LowSpace)
//	critical  half of that: the leader transfers leadership to a voter with space, and the replica
//	          starts no election
//
// If no other voter has more space, the leader continues: running work, cancellations
// and deletions still free space.
type spaceMonitor struct {
	dir      string
	limit    SpaceLimit
	interval time.Duration
	measure  SpaceFunc
	log      *slog.Logger
	limiter  loglimit.Limiter

	low, critical atomic.Bool
	free, size    atomic.Uint64
}

// update measures the free space. A disk that cannot be measured has enough.
func (m *spaceMonitor) update() {
	free, size, err := m.measure(m.dir)
	if err != nil {
		if suppressed, ok := m.limiter.Allow("space"); ok {
			m.log.Warn("free disk space is unknown", "data_dir", m.dir, "err", err, "suppressed", suppressed)
		}
		return
	}
	if size == 0 {
		return
	}
	limit := m.limit.of(size)
	was := m.low.Load()
	low := free < limit || (was && free < limit+limit/16) // hysteresis: it doesn't flap at the limit
	m.low.Store(low)
	if low && !was {
		m.log.Error("disk nearly full; refusing new jobs", "data_dir", m.dir, "free_bytes", free, "limit_bytes", limit)
	} else if was && !low {
		m.log.Info("disk has free space again", "data_dir", m.dir, "free_bytes", free)
	}
	m.critical.Store(free < limit/2)
	m.free.Store(free)
	m.size.Store(size)
}

// run measures until ctx is done. If the space is critical while this replica leads, it
// calls yield, which transfers leadership and returns the new leader, or "" if no voter
// has more space.
func (m *spaceMonitor) run(ctx context.Context, leading func() bool, yield func(context.Context) (string, error)) {
	tick := time.NewTicker(m.interval)
	defer tick.Stop()
	var next time.Time // no transfer before this
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.update()
		if !m.critical.Load() || !leading() || time.Now().Before(next) {
			continue
		}
		switch to, err := yield(ctx); {
		case err != nil:
			next = time.Now().Add(yieldRetryDelay)
			m.log.ErrorContext(ctx, "disk nearly full; transferring leadership failed", "err", err)
		case to != "":
			m.log.WarnContext(ctx, "disk nearly full; transferred leadership", "to", to)
		}
	}
}

// yield transfers leadership to the voter with free space and the longest log. It
// returns "" if no voter has free space.
func (n *Node) yield(ctx context.Context) (to string, err error) {
	ctx, cancel := context.WithTimeout(ctx, yieldTimeout)
	defer cancel()
	next, hasSpace, ok := n.successor(ctx)
	if !ok || !hasSpace {
		return "", nil
	}
	if err := n.transferTo(ctx, next); err != nil && n.Leading() {
		return "", fmt.Errorf("transferring leadership to %s: %w", next.ID, err)
	}
	return next.ID, nil
}
