package raftnode

import (
	"errors"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/transport"
)

// leaderAt returns the transport of a leader, which a test plays, of the cluster of n.
func leaderAt(t *testing.T, n *testNode, leader Server) *transport.Transport {
	t.Helper()
	l := transport.New(transport.Config{
		Advertise: leader.Address, Timeout: testTimeout, Logger: quiet(), RaftLogger: newHCLog(quiet()),
		ServerAt: func(raft.ServerAddress) (string, bool) { return n.id, true },
		Admission: transport.Admission{
			Self:  func() transport.Preface { return transport.Preface{ServerID: leader.ID, Instance: "of the leader"} },
			Peers: []string{n.id},
		},
	})
	t.Cleanup(func() {
		err := l.Close()
		l.CloseStreams()
		l.Wait()
		if err != nil {
			t.Error(err)
		}
	})
	return l
}

func logsOf(first, term uint64, values ...uint64) (logs []*raft.Log) {
	for i, v := range values {
		logs = append(logs, &raft.Log{Index: first + uint64(i), Term: term, Type: raft.LogCommand, Data: valueEntry(v)})
	}
	return logs
}

// A follower is a replica whose leader the test plays.
type follower struct {
	*testNode

	leader Server
	sender *transport.Transport
}

// newFollower starts a follower whose log has nothing but the configuration.
func newFollower(t *testing.T) *follower {
	t.Helper()
	f := &follower{testNode: newTestNode(t, "n1", nil), leader: Server{ID: "n2", Address: "127.0.0.1:1", Voter: true}}
	f.tune = func(cfg *Config) {
		endless(cfg)
		cfg.TrailingLogs = 1
	}
	f.peers = []Server{{ID: f.id, Address: f.address, Voter: true}, f.leader}
	f.start(t, f.peers)
	f.sender = leaderAt(t, f.testNode, f.leader)
	return f
}

// accepts sends a request of the leader in term 3, which has committed all that it
// sends, and fails the test if it is not accepted.
func (f *follower) accepts(t *testing.T, prev, prevTerm uint64, entries ...*raft.Log) {
	t.Helper()
	f.acceptsAt(t, prev+uint64(len(entries)), prev, prevTerm, entries...)
}

// acceptsAt is accepts with the commit index of the leader.
func (f *follower) acceptsAt(t *testing.T, committed, prev, prevTerm uint64, entries ...*raft.Log) {
	t.Helper()
	q := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(f.leader.ID), Addr: []byte(f.leader.Address)},
		Term:      3, PrevLogEntry: prev, PrevLogTerm: prevTerm, Entries: entries, LeaderCommitIndex: committed,
	}
	var resp raft.AppendEntriesResponse
	if err := f.sender.AppendEntries(raft.ServerID(f.id), raft.ServerAddress(f.address), q, &resp); err != nil || !resp.Success {
		t.Fatalf("the request was not accepted: %+v, %v", resp, err)
	}
}

// TestAnOlderTailIsNotCommittedBeforeItIsCompared has a replica that was away with
// entries of an earlier leader, which were never committed. The next leader sends it
// the committed entries, in several requests. The first ends before the place where the
// logs differ, and its commit index is beyond it.
func TestAnOlderTailIsNotCommittedBeforeItIsCompared(t *testing.T) {
	t.Parallel()
	f := newFollower(t)
	f.stop(t)
	s := openStore(t, f.dir, f.logStore())
	if err := errors.Join(s.SetUint64([]byte("CurrentTerm"), 2), s.StoreLogs(logsOf(2, 2, 1, 90, 91, 92)), s.Close()); err != nil {
		t.Fatal(err)
	}
	f.restart(t)
	const committed = 5
	f.acceptsAt(t, committed, 1, 1, logsOf(2, 2, 1)...)
	if got := f.CommitIndex(); got != 2 {
		t.Errorf("committed up to %d, and the request ends at 2", got)
	}
	f.acceptsAt(t, committed, 2, 2, logsOf(3, 3, 2, 3, 4)...)
	eventually(t, "all is applied", func() bool { return f.AppliedIndex() == committed })
	if got, want := f.fsm.all(), []uint64{1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("applied %v, want %v", got, want)
	}
}
