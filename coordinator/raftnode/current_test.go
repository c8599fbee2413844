package raftnode

import "testing"

// held is an FSM that applies nothing until open is closed.
type held struct {
	*counter

	open <-chan struct{}
}

func (h held) Apply(index, term uint64, data []byte) any {
	<-h.open
	return h.counter.Apply(index, term, data)
}

// What it shows would be older than what it showed before.
func TestARestartedReplicaIsNotCurrentBeforeItHasAppliedItsLog(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, nil)[0]
	n.propose(t, 1, 10)
	eventually(t, "the replica is current", n.Current)
	n.stop(t)
	open := make(chan struct{})
	n.tune = func(cfg *Config) { cfg.FSM = held{n.fsm, open} }
	n.restart(t)
	eventually(t, "the log is committed again", func() bool {
		leader, _ := n.Leader()
		return leader == n.id && n.CommitIndex() > 10
	})
	if n.Current() {
		t.Errorf("the replica is current with %d of 10 values", len(n.fsm.all()))
	}
	close(open)
	eventually(t, "the replica is current again", n.Current)
	n.holds(t, 10)
}

func TestAReplicaWithoutALeaderIsNotCurrent(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	leader := c.leader(t)
	leader.propose(t, 1, 10)
	for _, n := range c {
		if n != leader {
			n.stop(t)
		}
	}
	eventually(t, "the last replica is not current", func() bool { return !leader.Current() })
	leader.stop(t)
	leader.restart(t)
	if leader.Current() {
		t.Error("a restarted replica without others is current")
	}
}

// It may still apply the log from its begin: a rate of its totals would count all of them as new.
func TestANewMemberIsNotCurrentBeforeItVotes(t *testing.T) {
	t.Parallel()
	leader := newCluster(t, 1, nil).leader(t)
	leader.propose(t, 1, 10)
	joiner := newTestNode(t, "n2", leader.net)
	joiner.peers = []Server{{ID: "n1", Address: leader.address}}
	for _, n := range []*testNode{leader, joiner} {
		if err := n.identity.SetClusterID("c1"); err != nil {
			t.Fatal(err)
		}
	}
	joiner.start(t, nil)
	if err := leader.AddNonvoter(t.Context(), joiner.id, joiner.address); err != nil {
		t.Fatal(err)
	}
	joiner.holds(t, 10)
	eventually(t, "the new member knows a leader", func() bool {
		id, _ := joiner.Leader()
		return id == leader.id
	})
	if joiner.Current() {
		t.Error("a member without a vote is current")
	}
	if err := leader.AddVoter(t.Context(), joiner.id, joiner.address); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new voter is current", joiner.Current)
}
