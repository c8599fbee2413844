package raftnode

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"
)

// kill simulates the exit of a replica's process: its port closes, and all its
// connections break.
func (n *testNode) kill() {
	stop := n.stopMux
	n.stopMux = func() {}
	stop()
	n.net.isolate(n.address)
}

// revive starts a killed replica again.
func (n *testNode) revive(tb testing.TB) {
	tb.Helper()
	n.stop(tb)
	n.net.heal(n.address)
	n.restart(tb)
}

func (c cluster) others(but *testNode) cluster {
	return slices.DeleteFunc(slices.Clone(c), func(n *testNode) bool { return n == but })
}

// watched waits until all other replicas watch the leader.
func (c cluster) watched(tb testing.TB, leader *testNode) {
	tb.Helper()
	eventually(tb, "all followers watch "+leader.id, func() bool {
		return !slices.ContainsFunc(c, func(n *testNode) bool {
			id, _ := n.Leader()
			return n != leader && (id != leader.id || !n.Stats().Watching)
		})
	})
}

func (c cluster) quickElections() (count uint64) {
	for _, n := range c {
		count += n.Stats().QuickElections
	}
	return count
}

// stillLeads fails unless a replica leads in a term and no quick election was started.
func (c cluster) stillLeads(tb testing.TB, leader *testNode, term uint64) {
	tb.Helper()
	leader.propose(tb, 1, 1)
	for _, n := range c {
		if id, _ := n.Leader(); id != leader.id || n.Term() != term {
			tb.Errorf("%s follows %q in term %d, want %s in term %d", n.id, id, n.Term(), leader.id, term)
		}
	}
	if quick := c.quickElections(); quick != 0 {
		tb.Errorf("%d elections were started", quick)
	}
}

// slow makes raft's timeouts so long that a leader keeps its term while the machine
// stalls. An election in which nobody wins is still repeated within the time of a test.
func slow(cfg *Config) {
	cfg.Heartbeat, cfg.Election = 20*time.Second, 20*time.Second
}

func TestADeadLeaderIsReplacedWithoutATimeout(t *testing.T) {
	t.Parallel()
	const kills = 20
	c := newCluster(t, 3, slow)
	leader := c.leader(t)
	var gaps []time.Duration
	for range kills {
		c.watched(t, leader)
		leader.propose(t, 1, 10)
		died := time.Now()
		leader.kill()
		next := c.leader(t, leader)
		gaps = append(gaps, time.Since(died))
		leader.revive(t)
		leader = next
	}
	slices.Sort(gaps)
	median := gaps[kills/2]
	t.Logf("from the exit to an entry of the next leader: median %v, min %v, max %v", median, gaps[0], gaps[kills-1])
	if median > c[0].cfg.Heartbeat/2 {
		t.Errorf("the median %v is not below a timeout", median)
	}
	c.wantNoFatals(t)
}

func TestResetLinksDeposeNoLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	leader := c.leader(t)
	term := leader.Term()
	c.watched(t, leader)
	for range 100 {
		from, to := c[rand.IntN(3)], c[rand.IntN(3)] //nolint:gosec // any value works
		links := [][2]*testNode{{from, to}}
		if rand.IntN(2) == 0 { //nolint:gosec // any value works
			links = append(links, [2]*testNode{to, from})
		}
		for _, link := range links {
			from, to := link[0], link[1]
			before := from.Stats().WatchesLost
			leader.net.reset(from.address, to.address)
			if to == leader && from != leader { // until it is detected, the watch counts
				eventually(t, "the broken watch connection is detected", func() bool { return from.Stats().WatchesLost > before })
			}
		}
		c.watched(t, leader)
	}
	c.stillLeads(t, leader, term)
	c.wantNoFatals(t)
}

func TestOneFollowerWithoutTheLeaderDoesNotDeposeIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	leader := c.leader(t)
	term := leader.Term()
	c.watched(t, leader)
	alone := c.others(leader)[0]
	leader.net.refuse(alone.address, leader.address)
	leader.net.reset(leader.address, alone.address)
	leader.net.reset(alone.address, leader.address)
	eventually(t, "it has probed the leader repeatedly", func() bool {
		return leader.net.refusals(alone.address, leader.address) > 10
	})
	c.stillLeads(t, leader, term)
	c.wantNoFatals(t)
}

func TestALeaderWithAClosedPortAndLiveConnectionsIsNotDeposed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	leader := c.leader(t)
	term := leader.Term()
	c.watched(t, leader)
	for _, n := range c.others(leader) {
		n.net.refuse(n.address, leader.address)
		n.net.reset(n.address, leader.address)
	}
	for _, n := range c.others(leader) {
		eventually(t, "all replicas have probed the leader repeatedly", func() bool {
			return n.net.refusals(n.address, leader.address) > 10
		})
	}
	c.stillLeads(t, leader, term)
	c.wantNoFatals(t)
}

func TestTheLastOfThreeReplicasDoesNotStand(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	leader := c.leader(t)
	c.watched(t, leader)
	term := leader.Term()
	last := c.others(leader)[0]
	c.others(leader)[1].kill()
	leader.kill()
	eventually(t, "raft's own timeout", func() bool { return last.State() == "candidate" && last.Stats().WatchesLost > 0 })
	// Both timeouts are over at about the same time: if raft's is first, nothing is abandoned.
	if s := last.Stats(); s.QuickElections != 0 || s.QuickAbandoned > 1 || s.Term != term {
		t.Errorf("alone after term %d: %+v", term, s)
	}
	c.wantNoFatals(t)
}

func TestALeadershipTransferIsNotTakenForAnExit(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	leader := c.leader(t)
	term := leader.Term()
	for range 6 {
		c.watched(t, leader)
		if err := leader.Transfer(t.Context()); err != nil {
			t.Fatal(err)
		}
		old := leader
		leader = c.leader(t)
		c.watched(t, leader)
		if term++; leader.Term() != term || leader == old {
			t.Fatalf("after a transfer by %s, %s leads in term %d, want another leader in term %d", old.id, leader.id, leader.Term(), term)
		}
		old.stop(t)
		old.restart(t)
	}
	c.watched(t, leader)
	c.stillLeads(t, leader, term)
	c.wantNoFatals(t)
}

func TestARestartedPeerIsAskedForItsVote(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	leader := c.leader(t)
	asker, peer := c.others(leader)[0], c.others(leader)[1]
	vote := func() error {
		request := &raft.RequestPreVoteRequest{RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(asker.id), Addr: []byte(asker.address),
		}}
		return asker.transport.RequestPreVote(raft.ServerID(peer.id), raft.ServerAddress(peer.address), request, &raft.RequestPreVoteResponse{})
	}
	var votes errgroup.Group
	for range 2 * 3 { // concurrently: they fill the pool of idle connections
		votes.Go(vote)
	}
	if err := votes.Wait(); err != nil {
		t.Fatal(err)
	}
	peer.stop(t)
	peer.restart(t)
	for range 2 {
		if err := vote(); err != nil {
			t.Errorf("a reachable peer was not asked: %v", err)
		}
	}
	c.wantNoFatals(t)
}
