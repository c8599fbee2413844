package transport

import (
	"time"

	"github.com/hashicorp/raft"
)

// idleInterval is how often a peer that is up to date receives a request without news.
const idleInterval = 100 * time.Millisecond

// delta is what a request without entries tells a peer.
type delta struct{ term, last, commit uint64 }

func deltaOf(a *raft.AppendEntriesRequest) delta {
	return delta{a.Term, a.PrevLogEntry, a.LeaderCommitIndex}
}

// waitForNews delays a request that repeats the last one sent to a peer until the log
// has a new entry, at most idleInterval. Raft repeats itself every few milliseconds so
// that followers learn of a commit soon; in an idle cluster that is most of a leader's
// work. Nothing is answered on the peer's behalf, and heartbeats are not delayed:
// leases and reads stay as they are. New entries are added to the delayed request
// rather than sent after its answer.
func (t *Transport) waitForNews(id raft.ServerID, args *raft.AppendEntriesRequest) {
	if t.log == nil || len(args.Entries) > 0 || isHeartbeat(args) || args.PrevLogEntry != args.LeaderCommitIndex {
		return
	}
	t.mu.Lock()
	lastSent := t.peers[id].lastSent
	t.mu.Unlock()
	last, changed := t.log.Newest()
	if lastSent != deltaOf(args) || last != args.PrevLogEntry {
		return
	}
	select {
	case <-changed:
		args.Entries = t.newEntries(args)
	case <-time.After(t.timeScale.Scale(idleInterval)):
	case <-t.closed:
	}
}

// newEntries returns the entries after a request that the leader of its term has
// appended. Entries of another term exist if this replica was deposed while it waited:
// its log may then differ from when the request was made, and these are another
// leader's to send. An entry of the term itself was made by its leader, after
// everything it had before.
func (t *Transport) newEntries(args *raft.AppendEntriesRequest) (logs []*raft.Log) {
	last, _ := t.log.Newest()
	for index := args.PrevLogEntry + 1; index <= last && len(logs) < t.maxAppend; index++ {
		log := new(raft.Log)
		if t.log.GetLog(index, log) != nil || log.Term != args.Term {
			break
		}
		logs = append(logs, log)
	}
	return logs
}
