package raftnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/logstore"
	"github.com/dtask/dtask/coordinator/membership/datadir"
	"github.com/dtask/dtask/coordinator/transport"
)

// storeCommittedInterval is how often an idle replica compares its commit index with
// the persisted one. It writes an index that did not change for one interval, so at
// most two intervals after the change.
const storeCommittedInterval = 500 * time.Millisecond

// ConflictError means that a leader asked this replica to replace log entries that it
// knows to be committed, and that it refused. Raft guarantees that no leader does so
// unless a majority has lost what it stored, for example because a data directory was
// replaced by an older copy. The data directory has the same conflict, and Open refuses
// it from then on.
type ConflictError struct {
	ServerID string
	datadir.Conflict
}

// Error tells what happened and what to do.
func (e *ConflictError) Error() string {
	leader := e.Leader
	if leader == "" {
		leader = "(unknown)"
	}
	return fmt.Sprintf("server %s refuses to lose committed log entries: leader %s of term %d has another history from entry %d on, "+
		"but the entries up to %d (term %d) are committed here; acknowledged jobs are missing in the cluster of that leader, "+
		"whose majority includes a data directory that lost them. Nothing was deleted: server %s keeps its log and stays out of the cluster. "+
		"Do not delete its data directory; see \"Diverged histories\" in docs/operations.md",
		e.ServerID, leader, e.LeaderTerm, e.Truncated, e.Committed, e.CommittedTerm, e.ServerID)
}

// errOldSnapshot is returned to raft for a snapshot that would take the state back.
var errOldSnapshot = errors.New("the received snapshot is older than what is committed here")

// commitIndex returns raft's commit index; 0 until raft runs.
func (n *Node) commitIndex() uint64 {
	if r := n.running.Load(); r != nil {
		return r.CommitIndex()
	}
	return 0
}

// Committed returns the highest index that this replica knows to be committed, or knew
// when it last stopped.
func (n *Node) Committed() uint64 {
	index, _ := n.snapshotFiles.newest()
	return max(n.store.Committed(), index)
}

// mayDelete is called before log entries first to last are deleted. Those that a
// snapshot contains may be. Any others are deleted because a leader has other ones: if
// one of them is committed, the replica refuses.
func (n *Node) mayDelete(first, last uint64) error {
	committed := n.store.Committed()
	if first > committed {
		return nil
	}
	covered, _ := n.snapshotFiles.newest()
	lost := max(first, covered+1)
	if lost > min(last, committed) {
		return nil
	}
	leader, term := n.leaderAndTerm()
	return n.refuse(lost, leader, term)
}

// leaderAndTerm returns what raft knows; "" and 0 before it runs.
func (n *Node) leaderAndTerm() (leader string, term uint64) {
	r := n.running.Load()
	if r == nil {
		return "", 0
	}
	_, id := r.LeaderWithID()
	return string(id), r.CurrentTerm()
}

// checkRequest is called before raft gets a request of another replica. A leader of the
// current or a later term has every committed entry. If its log contradicts one, the
// histories have diverged: raft would delete the entry, or, if a replica has also
// forgotten that the term was used, take the leader's entry for its own. mayDelete
// refuses what another request changes after this check.
func (n *Node) checkRequest(command any) error {
	if err := n.Err(); err != nil {
		return err // it votes for nobody and stores nothing
	}
	r := n.running.Load()
	if r == nil {
		return nil
	}
	switch a := command.(type) {
	case *raft.AppendEntriesRequest:
		if a.Term < r.CurrentTerm() {
			return nil // raft ignores it
		}
		committed := n.store.Committed()
		for _, entry := range a.Entries {
			if entry.Index > committed {
				break
			}
			if n.contradicts(entry.Index, entry.Term, entry.Extensions) {
				return n.store.Fail("storing received entries", n.refuse(entry.Index, string(a.ID), a.Term))
			}
		}
		if a.PrevLogEntry > 0 && a.PrevLogEntry <= committed && n.contradicts(a.PrevLogEntry, a.PrevLogTerm, nil) {
			return n.store.Fail("storing received entries", n.refuse(a.PrevLogEntry, string(a.ID), a.Term))
		}
		n.compareWithSnapshot(a)
	case *raft.InstallSnapshotRequest:
		if a.Term < r.CurrentTerm() {
			return nil
		}
		return n.checkSnapshot(a)
	}
	return nil
}

// checkSnapshot checks what a request says about a leader's snapshot, which replaces the
// whole log. checkHistory checks the snapshot itself.
func (n *Node) checkSnapshot(a *raft.InstallSnapshotRequest) error {
	committed := n.Committed()
	if n.contradicts(a.LastLogIndex, a.LastLogTerm, nil) {
		return n.store.Fail("installing a snapshot", n.refuse(min(a.LastLogIndex, committed), string(a.ID), a.Term))
	}
	if a.LastLogIndex >= committed {
		return nil
	}
	// The snapshot ends within what is committed here: the leader did not receive the
	// answer to it, or another request has overtaken it. Raft would return to its state,
	// and forget what this replica has acknowledged since.
	if term, known := n.termAt(a.LastLogIndex); known && term == a.LastLogTerm {
		n.log.Info("skipped a snapshot", "leader", string(a.ID), "index", a.LastLogIndex, "term", a.LastLogTerm, "committed", committed)
		return transport.ErrSnapshotStored
	}
	n.log.Warn("refused an old snapshot", "leader", string(a.ID), "index", a.LastLogIndex, "term", a.LastLogTerm, "committed", committed)
	return fmt.Errorf("%w: it ends at entry %d, and entry %d is committed", errOldSnapshot, a.LastLogIndex, committed)
}

// checkHistory checks, when a leader's snapshot is complete and before it is used, that
// it has every command that is committed here. last is the end of the snapshot.
func (n *Node) checkHistory(received snapshotHeader, last uint64) error {
	own, committed, err := n.committedHistory()
	if err != nil {
		return err
	}
	if last < committed { // committed since checkSnapshot: the leader sends a later one
		return fmt.Errorf("%w: it ends at entry %d, and entry %d is committed", errOldSnapshot, last, committed)
	}
	lost := received.terms.lacks(&own)
	if lost == 0 {
		return nil
	}
	leader, term := n.leaderAndTerm()
	return n.store.Fail("installing a snapshot", n.refuse(lost, leader, term))
}

// committedHistory returns the terms of the commands up to the last committed entry,
// and the index of that entry.
func (n *Node) committedHistory() (own termHistory, committed uint64, err error) {
	for {
		// A snapshot has all commands up to its end. What is between the last of them and
		// the end may be deleted already.
		covered, _ := n.snapshotFiles.newest()
		var applied uint64
		own, applied = n.fsm.history()
		committed = n.store.Committed()
		err = n.addCommands(&own, max(applied, covered)+1, committed)
		if now, _ := n.snapshotFiles.newest(); err == nil || now == covered {
			return own, max(committed, covered), err
		}
	}
}

// addCommands adds the commands of the log from first to last to a history.
func (n *Node) addCommands(h *termHistory, first, last uint64) error {
	var entry raft.Log
	for index := first; index <= last; index++ {
		if err := n.logs.GetLog(index, &entry); err != nil {
			return fmt.Errorf("reading what is committed here: entry %d: %w", index, err)
		}
		if entry.Type == raft.LogCommand {
			h.add(&entry)
		}
	}
	return nil
}

// compareWithSnapshot changes a request that continues after this replica's newest
// snapshot, so that raft accepts it. Raft compares the entry before a request with the
// log only, or with the snapshot if the log is empty: if the log has nothing but entries
// after the snapshot, raft would refuse the request, also one without entries, and the
// leader would send its own snapshot, without end if that ends earlier. So the request
// gets the form of one that begins with the first entry of all: raft compares nothing
// before it, skips the entries that the log has, and replaces those that differ.
func (n *Node) compareWithSnapshot(a *raft.AppendEntriesRequest) {
	at, term := n.snapshotFiles.newest()
	if at > 0 && a.PrevLogEntry == at && a.PrevLogTerm == term {
		a.PrevLogEntry, a.PrevLogTerm = 0, 0
	}
}

// contradicts reports whether a log that has an entry of a term, and with a checksum if
// sum is not nil, cannot have all that is committed here. Terms never decrease along a
// log.
func (n *Node) contradicts(index, term uint64, sum []byte) bool {
	var entry raft.Log
	if index <= n.store.Committed() && n.logs.GetLog(index, &entry) == nil {
		return entry.Term != term || sum != nil && !bytes.Equal(entry.Extensions, sum)
	}
	committed := n.Committed()
	committedTerm, known := n.termAt(committed)
	switch {
	case !known:
		return false
	case index == committed:
		return term != committedTerm
	case index < committed:
		return term > committedTerm
	default:
		return term < committedTerm
	}
}

// termAt returns the term of an entry of the log or at the end of the newest snapshot.
func (n *Node) termAt(index uint64) (term uint64, known bool) {
	var entry raft.Log
	if n.logs.GetLog(index, &entry) == nil {
		return entry.Term, true
	}
	if at, term := n.snapshotFiles.newest(); at == index && at > 0 {
		return term, true
	}
	return 0, false
}

// refuse records in the data directory that the entries from lost on would be lost, and
// ends the process. It returns the reason.
func (n *Node) refuse(lost uint64, leader string, term uint64) error {
	e := &ConflictError{ServerID: n.cfg.Identity.Identity().ServerID}
	e.Committed, e.Truncated, e.Leader, e.LeaderTerm, e.Found = n.Committed(), lost, leader, term, time.Now()
	e.CommittedTerm, _ = n.termAt(e.Committed)
	err := errors.Join(e, datadir.WriteConflict(n.cfg.DataDir, e.Conflict))
	n.failure.fail(err)
	return err
}

// checkCommitted verifies that a data directory still has what it knew to be
// committed.
func (n *Node) checkCommitted(contents *logstore.Contents) error {
	snapshot, _ := n.snapshotFiles.newest()
	if last, committed := max(contents.Last, snapshot), n.store.PersistedCommitted(); committed > last {
		return &logstore.DamageError{
			Path:   n.cfg.DataDir,
			Detail: fmt.Sprintf("its log ends at entry %d, but entry %d was committed and stored here", last, committed),
		}
	}
	return nil
}

// storeCommitted persists the commit index while no entries arrive, which otherwise
// have it. It returns when ctx is done.
func (n *Node) storeCommitted(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for seen := uint64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		index := n.store.Committed()
		if index == seen && n.store.StoreCommitted() != nil {
			return // the store has failed, and ends the process
		}
		seen = index
	}
}
