package raftnode

import (
	"errors"
	"fmt"
)

var (
	// ErrNoLeader is returned when nothing was proposed or read because no leader is
	// known, or because the leader could not confirm that it leads. It is definite; the
	// caller should retry at any replica.
	ErrNoLeader = errors.New("raftnode: no leader is ready")
	// ErrBusy is returned when raft's queue was full for Config.EnqueueTimeout. It is
	// definite; the caller should back off.
	ErrBusy = errors.New("raftnode: too busy to accept the proposal")
	// ErrTransferring is returned when leadership is being transferred, and nothing was
	// proposed. It is definite; the caller should retry at the next leader.
	ErrTransferring = errors.New("raftnode: leadership is being transferred")
	// ErrOutcomeUnknown is returned when an entry was proposed and its outcome cannot
	// be known here: leadership was lost, the node was closed, or the store failed. The
	// entry may still be committed; the caller must not treat it as refused.
	ErrOutcomeUnknown = errors.New("raftnode: outcome unknown")
	// ErrClosed is returned by calls on a node that is closing or closed. It is
	// definite. It wraps ErrNoLeader, which is what it means to a client.
	ErrClosed = fmt.Errorf("raftnode: node is closed: %w", ErrNoLeader)
	// ErrNotEmpty is returned by Open when Config.BootstrapServers is set and the data
	// directory contains raft state already.
	ErrNotEmpty = errors.New("raftnode: data directory contains raft state; cannot bootstrap a cluster")
)

// NotLeaderError reports that nothing was proposed or read because this replica is not
// the leader. It is definite.
type NotLeaderError struct {
	LeaderID   string // server id of the leader; "" if unknown
	LeaderAddr string // its address; "" if unknown
}

// Error implements error.
func (e *NotLeaderError) Error() string {
	if e.LeaderID == "" {
		return "raftnode: not the leader; leader unknown"
	}
	return fmt.Sprintf("raftnode: not the leader; the leader is %s at %s", e.LeaderID, e.LeaderAddr)
}

// Is makes a NotLeaderError without a leader match ErrNoLeader.
func (e *NotLeaderError) Is(target error) bool {
	return target == ErrNoLeader && e.LeaderID == ""
}

// HaltError is passed to Config.Fatal when the state machine stopped at an entry that
// it cannot apply.
type HaltError struct {
	Index, Term uint64
	Err         error
}

// Error implements error.
func (e *HaltError) Error() string {
	return fmt.Sprintf("state machine halted at index %d, term %d: %v", e.Index, e.Term, e.Err)
}

// Unwrap returns the cause.
func (e *HaltError) Unwrap() error { return e.Err }
