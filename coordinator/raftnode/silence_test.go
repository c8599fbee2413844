package raftnode

import (
	"testing"
	"time"
)

// Its connections break, but dials to it are not refused: the fast path for a process
// that has exited does not apply.
func TestASilentLeaderIsReplacedByAMajorityThatHeardNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *Config) { cfg.Heartbeat, cfg.Election = 4*time.Second, 8*time.Second })
	leader := c.leader(t)
	// Time in which a voter did not run does not count, and raft's own timeout may be first:
	// on a machine that stalls, not every election is one of a voter that heard nothing.
	for range 10 {
		before := c.quickElections()
		leader.net.isolate(leader.address)
		next := c.leader(t, leader)
		leader.net.heal(leader.address)
		if c.quickElections() > before {
			c.wantNoFatals(t)
			return
		}
		leader = next
	}
	t.Error("no election was started by a voter that heard nothing")
}

// On a busy machine the messages of a leader are late. A leader that resigned before its
// followers doubt it would cost each worker a new session, which makes the machine busier.
func TestALeaderKeepsItsTermIfItsMessagesAreLate(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	leader := c.leader(t)
	leader.propose(t, 1, 10)
	term, follower := leader.Term(), c.others(leader)[0]
	leader.net.isolate(leader.address)
	eventually(t, "more than half of the timeout without a message", func() bool {
		return time.Since(follower.LastContact()) > 11*time.Second
	})
	leader.net.heal(leader.address)
	leader.propose(t, 1, 10)
	if leader.Term() != term || leader.State() != "leader" {
		t.Errorf("%s in term %d, want the leader of term %d", leader.State(), leader.Term(), term)
	}
	c.wantNoFatals(t)
}

func TestAVoterAloneDoesNotReplaceASilentLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	leader := c.leader(t)
	leader.propose(t, 1, 10)
	alone := c.others(leader)[0]
	alone.net.isolate(alone.address)
	eventually(t, "raft's own timeout", func() bool { return alone.State() == "candidate" })
	leader.propose(t, 1, 10)
	if n := c.quickElections(); n != 0 {
		t.Errorf("%d elections were started by voters", n)
	}
	c.wantNoFatals(t)
}

// A process that was stopped, alone or with its machine, has heard nothing because it
// did not run.
func TestTimeInWhichAProcessDidNotRunIsNoSilence(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, slow)
	leader := c.leader(t)
	leader.propose(t, 1, 10)
	voter := c.others(leader)[0]
	s := &silence{failover: voter.failover}
	eventually(t, "the voter has heard from the leader", func() bool {
		_, _, silent := s.check(time.Now())
		return s.leader.ID == leader.id && !silent
	})
	now := time.Now()
	for range 5 {
		now = now.Add(time.Minute)
		if _, _, silent := s.check(now); silent {
			t.Fatal("minutes between two checks count as silence")
		}
	}
	s.contact = voter.LastContact()
	s.quiet = voter.cfg.Heartbeat - time.Nanosecond
	if !s.silent(leader.id, s.term) {
		t.Error("almost a heartbeat timeout is not enough for an answer")
	}
	if s.silent(leader.id, s.term+1) || s.silent(voter.id, s.term) {
		t.Error("the silence of another leader counts")
	}
}
