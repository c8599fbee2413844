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

// TestAnOlderTailIsNotCommittedBeforeItIsCompared has a replica that was away with
// entries of an earlier leader, which were never committed. The next leader sends it
// the committed entries, in several requests. The first ends before the place where the
// logs differ, and its commit index is beyond it.
func TestAnOlderTailIsNotCommittedBeforeItIsCompared(t *testing.T) {
	t.Parallel()
	n, leader := newTestNode(t, "n1", nil), Server{ID: "n2", Address: "127.0.0.1:1", Voter: true}
	n.tune = endless
	n.peers = []Server{{ID: n.id, Address: n.address, Voter: true}, leader}
	n.start(t, n.peers)
	n.stop(t)
	s := openStore(t, n.dir, n.logStore())
	if err := errors.Join(s.SetUint64([]byte("CurrentTerm"), 2), s.StoreLogs(logsOf(2, 2, 1, 90, 91, 92)), s.Close()); err != nil {
		t.Fatal(err)
	}
	n.restart(t)

	l := leaderAt(t, n, leader)
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(leader.ID), Addr: []byte(leader.Address)}
	for _, q := range []raft.AppendEntriesRequest{
		{PrevLogEntry: 1, PrevLogTerm: 1, Entries: logsOf(2, 2, 1)},
		{PrevLogEntry: 2, PrevLogTerm: 2, Entries: logsOf(3, 3, 2, 3, 4)},
	} {
		q.RPCHeader, q.Term, q.LeaderCommitIndex = header, 3, 5
		var resp raft.AppendEntriesResponse
		if err := l.AppendEntries(raft.ServerID(n.id), raft.ServerAddress(n.address), &q, &resp); err != nil || !resp.Success {
			t.Fatalf("the request was not accepted: %+v, %v", resp, err)
		}
		if want := q.Entries[len(q.Entries)-1].Index; n.CommitIndex() != want {
			t.Errorf("committed up to %d, and the request ends at %d", n.CommitIndex(), want)
		}
	}
	eventually(t, "all is applied", func() bool { return n.AppliedIndex() == 5 })
	if got, want := n.fsm.all(), []uint64{1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("applied %v, want %v", got, want)
	}
}
