package transport

import (
	"time"

	"github.com/hashicorp/raft"
)

// peerProgress is what this replica, as leader, knows of a peer.
type peerProgress struct {
	lastSent    delta     // the last request that the peer accepted
	lastContact time.Time // when the peer last answered

	// matchIndex is the last entry that the peer has of the leader of matchTerm, this
	// replica. Only what is committed stays: another leader may replace the rest.
	matchTerm, matchIndex uint64
	// durableIndex is the last entry that the peer has for good.
	durableIndex uint64
}

// record records what a peer's answer to a request implies.
func (t *Transport) record(id raft.ServerID, args *raft.AppendEntriesRequest, success bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[id]
	p.lastContact = time.Now()
	if success && !isHeartbeat(args) {
		p.lastSent = deltaOf(args)
		p.match(args.Term, lastMatched(args), args.LeaderCommitIndex)
	}
	t.peers[id] = p
}

// match records that the peer has stored all entries up to last of the leader of a
// term.
func (p *peerProgress) match(term, last, commit uint64) {
	if p.matchTerm == term {
		last = max(last, p.matchIndex)
	}
	p.matchTerm, p.matchIndex = term, last
	p.durableIndex = max(p.durableIndex, min(last, commit))
}

// LastContact returns when a peer last answered this replica; the zero time if never.
func (t *Transport) LastContact(id raft.ServerID) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peers[id].lastContact
}

// DurableIndex returns an index up to which a peer has stored all that is committed, as
// it answered to this replica; 0 if unknown. The caller must read the commit index
// before the term.
func (t *Transport) DurableIndex(id raft.ServerID, commit, term uint64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[id]
	if p.matchTerm == term {
		p.durableIndex = max(p.durableIndex, min(p.matchIndex, commit))
		t.peers[id] = p
	}
	return p.durableIndex
}
