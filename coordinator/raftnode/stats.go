package raftnode

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Stats is what a node has done since Open, and where it stands.
type Stats struct {
	State        string // leader, follower, candidate or shutdown
	Term         uint64
	LastIndex    uint64 // of the log
	CommitIndex  uint64
	AppliedIndex uint64 // of the FSM

	Proposals        uint64 // entries proposed here
	ProposedBytes    uint64
	Pending          int64  // proposals without an answer
	Syncs            uint64 // writes of the log, each synced to the disk
	StoredEntries    uint64
	StoredBytes      uint64
	StoreTime        time.Duration // spent in these writes
	BytesToSnapshot  uint64        // log bytes that the last snapshot does not cover
	Snapshots        uint64
	SnapshotFailures uint64
	Reads            uint64 // read indexes asked for
	ReadRounds       uint64 // quorum rounds that answered them
	Watching         bool   // a watch connection to the leader is up
	WatchesLost      uint64 // watch connections to a leader that broke while it led
	QuickElections   uint64 // elections that this replica started because of it
	FirstElections   uint64 // elections that this replica started because nobody had begun to lead
	FreeSpace        uint64 // bytes on the disk of the data folder, 0 if that is not known
	LowSpace         bool   // see Node.LowSpace
	PeersRefused     uint64 // Raft connections refused, by either side
	ConnsRefused     uint64 // connections of the shared port closed unserved
}

// Stats returns the counters. They are read one by one, so they may differ by what
// happened in between.
func (n *Node) Stats() Stats {
	stored := n.store.Stats()
	return Stats{
		State:            n.State(),
		Term:             n.Term(),
		LastIndex:        n.LastIndex(),
		CommitIndex:      n.CommitIndex(),
		AppliedIndex:     n.AppliedIndex(),
		Proposals:        n.counters.proposals.Load(),
		ProposedBytes:    n.counters.proposedBytes.Load(),
		Pending:          n.pending.Load(),
		Syncs:            stored.Syncs,
		StoredEntries:    stored.Entries,
		StoredBytes:      stored.Bytes,
		StoreTime:        stored.Time,
		BytesToSnapshot:  n.store.BytesSinceSnapshot(),
		Snapshots:        n.counters.snapshots.Load(),
		SnapshotFailures: n.counters.snapshotFailures.Load(),
		Reads:            n.counters.reads.Load(),
		ReadRounds:       n.counters.readRounds.Load(),
		Watching:         n.watching.Load(),
		WatchesLost:      n.counters.watchesLost.Load(),
		QuickElections:   n.counters.quickElections.Load(),
		FirstElections:   n.counters.firstElections.Load(),
		FreeSpace:        n.freeSpace.Load(),
		LowSpace:         n.LowSpace(),
		PeersRefused:     n.transport.Refused(),
		ConnsRefused:     n.cfg.Listener.Refused(),
	}
}

// State returns leader, follower, candidate or shutdown.
func (n *Node) State() string {
	switch n.raft.State() {
	case raft.Follower:
		return "follower"
	case raft.Candidate:
		return "candidate"
	case raft.Leader:
		return "leader"
	case raft.Shutdown:
		return "shutdown"
	default:
		return "unknown"
	}
}

// Leader returns the leader's server id and address, or "" for both while none is
// known. A follower forgets a leader that it has not heard for Config.Heartbeat.
func (n *Node) Leader() (id, address string) {
	addr, server := n.raft.LeaderWithID()
	return string(server), string(addr)
}

// Term returns the current term.
func (n *Node) Term() uint64 { return n.raft.CurrentTerm() }

// LastIndex returns the index of the last entry of the log or the snapshot.
func (n *Node) LastIndex() uint64 { return n.raft.LastIndex() }

// CommitIndex returns the highest index known to be committed.
func (n *Node) CommitIndex() uint64 { return n.raft.CommitIndex() }

// AppliedIndex returns the index of the last entry that the FSM has applied. It
// stays below CommitIndex where the last entries are raft's own.
func (n *Node) AppliedIndex() uint64 { return n.fsm.applied.Load() }

// Progress returns the applied index, and whether proposals wait for their answer. A
// leader whose index stands still while some wait is not doing its duty.
func (n *Node) Progress() (applied uint64, pending bool) {
	return n.fsm.applied.Load(), n.pending.Load() > 0
}

// LastContact returns when this follower last heard from a leader; the zero time if
// never.
func (n *Node) LastContact() time.Time { return n.raft.LastContact() }

// Stored returns an index up to which a server has stored all that is committed, as
// far as this replica has seen it, at the time when it led; 0 if it knows nothing. A
// server never goes back behind it, unless its folder was replaced by an older one.
func (n *Node) Stored(id string) uint64 {
	commit := n.CommitIndex()
	if id == n.cfg.Identity.Get().ServerID {
		return min(n.LastIndex(), commit)
	}
	return n.transport.DurableIndex(raft.ServerID(id), commit, n.Term())
}

// Heard returns when a server last answered this replica as its leader; the zero time
// if never.
func (n *Node) Heard(id string) time.Time { return n.transport.LastContact(raft.ServerID(id)) }

// Member says whether a server is in the latest configuration.
func (n *Node) Member(id string) bool {
	return slices.ContainsFunc(n.Servers(), func(s Server) bool { return s.ID == id })
}

// Servers returns the latest configuration, which may not be committed yet.
func (n *Node) Servers() []Server {
	var servers []Server
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		servers = append(servers, Server{ID: string(s.ID), Address: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return servers
}
