package raftnode

import (
	"time"

	"github.com/hashicorp/raft"
)

// Stats is what a node has done since Open, and its present state.
type Stats struct {
	State        string // leader, follower, candidate or shutdown
	Term         uint64
	LastIndex    uint64 // of the log
	CommitIndex  uint64
	AppliedIndex uint64 // of the FSM

	Proposals        uint64 // entries proposed here
	ProposedBytes    uint64
	Pending          int64  // proposals without an outcome
	Syncs            uint64 // writes of the log, each synced to the disk
	StoredEntries    uint64
	StoredBytes      uint64
	StoreTime        time.Duration // spent in these writes
	BytesToSnapshot  uint64        // log bytes that the last snapshot does not cover
	Snapshots        uint64
	SnapshotFailures uint64
	Reads            uint64            // read indexes requested
	ReadRounds       uint64            // quorum rounds that answered them
	Watching         bool              // a watch connection to the leader is up
	WatchesLost      uint64            // watch connections to a leader that broke while it led
	QuickElections   uint64            // elections started because the leader's process exited
	QuickAbandoned   uint64            // broken watch connections that led to no quick election in time
	FirstElections   uint64            // elections started because a majority had started without a leader
	FreeSpace        uint64            // bytes available on the disk of the data directory; 0 if unknown
	LowSpace         bool              // see Node.LowSpace
	RoundTrip        time.Duration     // longest to another voter; 0 if unknown
	PeersRefused     map[string]uint64 // Raft connections refused by either side, by reason
}

// Stats returns the counters. They are read one by one, so they may differ slightly in
// time.
func (n *Node) Stats() Stats {
	stored := n.store.Stats()
	return Stats{
		State:            n.State(),
		Term:             n.Term(),
		LastIndex:        n.LastIndex(),
		CommitIndex:      n.CommitIndex(),
		AppliedIndex:     n.AppliedIndex(),
		Proposals:        n.proposer.proposals.Load(),
		ProposedBytes:    n.proposer.bytes.Load(),
		Pending:          n.proposer.pending.Load(),
		Syncs:            stored.Syncs,
		StoredEntries:    stored.Entries,
		StoredBytes:      stored.Bytes,
		StoreTime:        stored.Time,
		BytesToSnapshot:  n.store.BytesSinceSnapshot(),
		Snapshots:        n.snapshots.snapshots.Load(),
		SnapshotFailures: n.snapshots.failures.Load(),
		Reads:            n.reader.reads.Load(),
		ReadRounds:       n.reader.rounds.Load(),
		Watching:         n.failover.watching.Load(),
		WatchesLost:      n.failover.watchesLost.Load(),
		QuickElections:   n.failover.elections.Load(),
		QuickAbandoned:   n.failover.abandoned.Load(),
		RoundTrip:        n.transport.RoundTrip(),
		FirstElections:   n.firstElection.count.Load(),
		FreeSpace:        n.space.free.Load(),
		LowSpace:         n.LowSpace(),
		PeersRefused:     n.transport.Refused(),
	}
}

// LowSpace reports that the disk of the data directory is nearly full: new work should
// be refused, and what ends or deletes work still be accepted.
func (n *Node) LowSpace() bool { return n.space.low.Load() }

// DiskSpace returns the free and the total bytes of the data directory's disk; size is 0 if
// they are unknown.
func (n *Node) DiskSpace() (free, size uint64) { return n.space.free.Load(), n.space.size.Load() }

// AppliedIndex returns the index of the last entry that the FSM has applied. It stays
// below CommitIndex if the last entries are raft's own.
func (n *Node) AppliedIndex() uint64 { return n.fsm.applied.Load() }

// Current reports whether this replica votes, knows a leader, and the FSM has applied what the log
// had when it was opened: then the state is not older than any before the restart. If the end of
// that log was never committed, this takes as many later entries. A new member votes when it has
// caught up.
func (n *Node) Current() bool {
	leader, _ := n.Leader()
	_, votes := n.otherVoters("")
	return leader != "" && n.AppliedIndex() >= n.found && votes
}

// Progress returns the applied index, and whether proposals have no outcome yet. A
// leader whose index does not advance while proposals are pending is stuck.
func (n *Node) Progress() (applied uint64, pending bool) {
	return n.AppliedIndex(), n.proposer.pending.Load() > 0
}

// DurableIndex returns an index up to which a server has durably stored what is
// committed, as far as this replica knows from its time as leader; 0 if unknown. A
// server never returns to a lower index, unless its data directory is replaced by an
// older one.
func (n *Node) DurableIndex(id string) uint64 {
	commit := n.CommitIndex()
	if id == n.self {
		return min(n.LastIndex(), commit)
	}
	return n.transport.DurableIndex(raft.ServerID(id), commit, n.Term())
}

// LastContactOf returns when a server last answered this replica as its leader; the
// zero time if never.
func (n *Node) LastContactOf(id string) time.Time { return n.transport.LastContact(raft.ServerID(id)) }
