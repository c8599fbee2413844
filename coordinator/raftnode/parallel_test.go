package raftnode

import (
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/logstore"
)

// slowDisk delays the writes of entries of one replica.
type slowDisk struct {
	logstore.Backend

	held *sync.RWMutex // held for writing by the test
}

func (s slowDisk) StoreLogs(logs []*raft.Log) error {
	s.held.RLock()
	defer s.held.RUnlock()
	return s.Backend.StoreLogs(logs)
}

func TestFollowersMayStoreAnEntryBeforeItsLeaderButItIsNotCommitted(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	disks := make(map[string]*sync.RWMutex)
	c := newCluster(t, 3, func(cfg *Config) {
		endless(cfg)
		held := new(sync.RWMutex)
		mu.Lock()
		defer mu.Unlock()
		disks[cfg.Advertise] = held
		cfg.WrapStore = func(b logstore.Backend) logstore.Backend { return slowDisk{Backend: b, held: held} }
	})
	leader := c.leader(t)
	leader.propose(t, 1, 3)
	mu.Lock()
	disk := disks[leader.address]
	mu.Unlock()
	before := leader.LastIndex()
	disk.Lock()
	answer := leader.Propose(valueEntry(4))
	for _, n := range c.others(leader) {
		eventually(t, n.id+" has the entry", func() bool { return n.LastIndex() > before })
	}
	if commit := leader.CommitIndex(); commit > before {
		t.Errorf("entry %d is committed but not on the disk of its leader", commit)
	}
	select {
	case <-answer.Done():
		t.Error("the leader answers before its disk has the entry")
	default:
	}
	disk.Unlock()
	if _, _, err := answer.Wait(); err != nil {
		t.Error(err)
	}
	for _, n := range c {
		n.holds(t, 4)
	}
	c.wantNoFatals(t)
}
