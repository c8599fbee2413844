package raftnode

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// disks gives every replica of a test a disk of 1000 bytes with adjustable free space.
type disks map[string]*atomic.Uint64

func (d disks) tune(cfg *Config) {
	id := cfg.Identity.Identity().ServerID
	if d[id] == nil {
		d[id] = new(atomic.Uint64)
		d[id].Store(1000)
	}
	free := d[id]
	cfg.MinFreeSpace = &SpaceLimit{Bytes: 50, Percent: 10}
	cfg.SpaceInterval = 5 * time.Millisecond
	cfg.MeasureSpace = func(string) (uint64, uint64, error) { return free.Load(), 1000, nil }
}

func TestFreeSpaceIsMeasured(t *testing.T) {
	t.Parallel()
	free, size, err := diskSpace(t.TempDir())
	if err != nil || free > size {
		t.Errorf("%d of %d bytes are free, %v", free, size, err)
	}
	if _, _, err := diskSpace(t.TempDir() + "/not-there"); err == nil && size != 0 {
		t.Error("a missing directory has free space")
	}
	for name, x := range map[string]struct {
		limit SpaceLimit
		size  uint64
		want  uint64
	}{
		"a tenth of a large disk":       {SpaceLimit{Bytes: 512 << 20, Percent: 10}, 100 << 30, 10 * (100 << 30 / 100)},
		"512 MiB of a small disk":       {SpaceLimit{Bytes: 512 << 20, Percent: 10}, 1 << 30, 512 << 20},
		"all of a disk below the limit": {DefaultSpaceLimit(), 1 << 20, 256 << 20},
		"nothing without a limit":       {SpaceLimit{}, 1 << 30, 0},
	} {
		if got := x.limit.of(x.size); got != x.want {
			t.Errorf("%s: %d bytes must be free, want %d", name, got, x.want)
		}
	}
}

func TestALeaderWithoutSpaceTransfersToAVoterWithSpace(t *testing.T) {
	t.Parallel()
	d := make(disks)
	c := newCluster(t, 3, func(cfg *Config) { endless(cfg); d.tune(cfg) })
	leader := c.leader(t)
	leader.propose(t, 1, 100)
	spacious, low := c.others(leader)[0], c.others(leader)[1]
	d[low.id].Store(99) // no successor
	eventually(t, "a follower's low space", low.LowSpace)
	d[leader.id].Store(99)
	eventually(t, "the leader's low space", leader.LowSpace)
	leader.propose(t, 101, 100) // proposals are still accepted
	if !leader.Leading() {
		t.Error("a leader with low but not critical space transferred leadership")
	}
	d[leader.id].Store(49)
	eventually(t, "the voter with space leads", spacious.Leading)
	spacious.propose(t, 201, 10)
	d[leader.id].Store(101)
	eventually(t, "the new space is measured", func() bool { return leader.Stats().FreeSpace == 101 })
	if !leader.LowSpace() {
		t.Error("its space is no longer low at the limit")
	}
	d[leader.id].Store(1000)
	eventually(t, "space is no longer low", func() bool { return !leader.LowSpace() })
	for _, n := range c {
		n.holds(t, 210)
	}
	c.wantNoFatals(t)
}

func TestALeaderWithoutSpaceContinuesIfNoVoterHasMore(t *testing.T) {
	t.Parallel()
	d := make(disks)
	c := newCluster(t, 3, func(cfg *Config) { endless(cfg); d.tune(cfg) })
	leader := c.leader(t)
	term := leader.Term()
	for _, n := range append(c.others(leader), leader) { // if the others had space, the leader would transfer
		d[n.id].Store(49)
		eventually(t, "critical space", n.space.critical.Load)
	}
	if to, err := leader.yield(t.Context()); to != "" || err != nil {
		t.Errorf("transferred to %q, %v", to, err)
	}
	c.stillLeads(t, leader, term)
	c.wantNoFatals(t)
}

func TestAReplicaWithoutSpaceStartsNoQuickElection(t *testing.T) {
	t.Parallel()
	d := make(disks)
	c := newCluster(t, 3, func(cfg *Config) { slow(cfg); d.tune(cfg) })
	leader := c.leader(t)
	short, spacious := c.others(leader)[0], c.others(leader)[1]
	d[short.id].Store(1)
	eventually(t, "critical space", short.space.critical.Load)
	eventually(t, "a log that can win", func() bool { return spacious.LastIndex() == leader.LastIndex() })
	c.watched(t, leader)
	leader.kill()
	if next := c.leader(t, leader); next != spacious || short.Stats().QuickElections != 0 {
		t.Errorf("%s leads; %s, whose disk is full, has started %d elections", next.id, short.id, short.Stats().QuickElections)
	}
	c.wantNoFatals(t)
}

func TestADiskThatCannotBeMeasuredHasSpace(t *testing.T) {
	t.Parallel()
	for name, measure := range map[string]SpaceFunc{
		"error":   func(string) (uint64, uint64, error) { return 0, 0, errors.New("no") },
		"unknown": func(string) (uint64, uint64, error) { return 0, 0, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTestNode(t, "n1", nil)
			n.tune = func(cfg *Config) { cfg.MeasureSpace = measure }
			n.start(t, []Server{{ID: n.id, Address: n.address}})
			if n.LowSpace() {
				t.Error("its space is low")
			}
		})
	}
}
