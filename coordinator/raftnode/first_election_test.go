package raftnode

import (
	"testing"
	"time"
)

// endless makes every timeout of raft so long that no test reaches one, even if the
// machine stalls.
func endless(cfg *Config) {
	cfg.Heartbeat, cfg.Election = time.Hour, time.Hour
}

// stopAll is stopTogether, after which all replicas start without waiting for a timeout.
func (c cluster) stopAll(tb testing.TB) {
	tb.Helper()
	c.stopTogether(tb)
	for _, n := range c {
		n.tune = endless
	}
}

// stopTogether stops all replicas like a power failure: none detects that another one
// exited and starts an election.
func (c cluster) stopTogether(tb testing.TB) {
	tb.Helper()
	for _, n := range c {
		n.net.isolate(n.address)
	}
	for _, n := range c {
		n.stop(tb)
	}
	for _, n := range c {
		n.net.heal(n.address)
	}
}

func TestReplicasThatStartTogetherElectALeaderWithoutATimeout(t *testing.T) {
	t.Parallel()
	for name, count := range map[string]int{"one": 1, "three": 3, "five": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, count, endless)
			c.leader(t).propose(t, 1, 20)
			c.stopAll(t)
			for _, n := range c {
				n.restart(t)
			}
			c.leader(t).propose(t, 21, 1)
			for _, n := range c {
				n.holds(t, 21)
			}
			c.wantNoFatals(t)
		})
	}
}

func TestAStartingMajorityDoesNotWaitForTheRest(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, endless)
	c.leader(t).propose(t, 1, 20)
	c.stopAll(t)
	c[2].restart(t)
	c[1].restart(t)
	leader := c.leader(t)
	leader.propose(t, 21, 1)
	term := leader.Term()
	c[0].restart(t)
	c[0].holds(t, 21)
	if first := c[0].Stats().FirstElections; first != 0 || leader.Term() != term || !leader.Leading() {
		t.Errorf("the late replica stood %d times in term %d, want 0 in term %d", first, leader.Term(), term)
	}
	c.wantNoFatals(t)
}

func TestAReplicaThatStartsAloneDoesNotStand(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, endless)
	c.leader(t).propose(t, 1, 20)
	term := c.leader(t).Term()
	c.stopAll(t)
	last := c[0]
	for _, other := range c[1:] {
		last.net.refuse(last.address, other.address)
	}
	last.restart(t)
	for _, other := range c[1:] {
		eventually(t, "it has asked repeatedly", func() bool { return last.net.refusals(last.address, other.address) > 10 })
	}
	if s := last.Stats(); s.FirstElections != 0 || s.Term != term || s.State != "follower" {
		t.Errorf("alone after term %d: %+v", term, s)
	}
	c.wantNoFatals(t)
}

func TestAReturningReplicaDoesNotStandWhileALeaderExists(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	leader := c.leader(t)
	term := leader.Term()
	back := c.others(leader)[0]
	for i := range uint64(5) {
		back.stop(t)
		leader.propose(t, 1+10*i, 10)
		back.restart(t)
		back.holds(t, 10*(i+1))
		if s := back.Stats(); s.FirstElections != 0 || s.Term != term || !leader.Leading() {
			t.Fatalf("back while %s leads term %d: %+v", leader.id, term, s)
		}
	}
	c.wantNoFatals(t)
}

func TestTheReplicaWithTheLongestLogStandsFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	leader := c.leader(t)
	behind, other := c.others(leader)[0], c.others(leader)[1]
	behind.stop(t)
	leader.propose(t, 1, 20)
	c.stopAll(t)
	behind.restart(t)
	other.restart(t)
	if got := (cluster{behind, other}).leader(t); got != other {
		t.Errorf("%s leads, want %s", got.id, other.id)
	}
	behind.holds(t, 20)
	leader.restart(t)
	leader.holds(t, 20)
	c.wantNoFatals(t)
}

func TestALogOfALaterTermPrecedesALongerOne(t *testing.T) {
	t.Parallel()
	// Without others the old leader answers its proposals when its lease ends, and stops then.
	c := newCluster(t, 3, func(cfg *Config) { cfg.Heartbeat, cfg.Election = 10*time.Second, 10*time.Second })
	old := c.leader(t)
	old.propose(t, 1, 1)
	for _, n := range c { // any of them can win
		n.holds(t, 1)
	}
	old.net.isolate(old.address)
	before := old.LastIndex()
	for v := range uint64(20) { // stored here and never committed
		old.Propose(valueEntry(100 + v))
	}
	eventually(t, "the isolated leader's log is longer", func() bool { return old.LastIndex() >= before+20 })
	c.others(old)[0].stands(t)
	newer := c.leader(t, old)
	newer.propose(t, 2, 1)
	if old.LastIndex() <= newer.LastIndex() {
		t.Fatalf("the old log ends at %d, the new one at %d", old.LastIndex(), newer.LastIndex())
	}
	c.stopAll(t)
	old.restart(t)
	newer.restart(t)
	if got := (cluster{old, newer}).leader(t); got != newer {
		t.Errorf("%s leads, want %s", got.id, newer.id)
	}
	old.holds(t, 2)
	c.wantNoFatals(t)
}
