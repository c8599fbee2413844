package raftnode

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/transport"
)

var (
	// ErrNoLeader is returned when nothing was proposed or read because no
	// leader is known, or because the leader could not confirm that it leads. It is definite; the caller should wait a little and try
	// any replica.
	ErrNoLeader = errors.New("raftnode: no leader is ready")
	// ErrBusy is returned when a proposal found no room before
	// Config.EnqueueTimeout ended. It is definite; the caller should back off.
	ErrBusy = errors.New("raftnode: too busy to take the proposal")
	// ErrTransferring is returned when leadership is being handed over, and
	// nothing was proposed. It is definite; the caller should retry shortly at
	// the next leader.
	ErrTransferring = errors.New("raftnode: leadership is being transferred")
	// ErrOutcomeUnknown is returned when an entry was proposed and its fate
	// cannot be known here: leadership was lost, the node was closed, or the
	// store failed. The entry may still be committed. The caller must not
	// treat it as refused.
	ErrOutcomeUnknown = errors.New("raftnode: outcome unknown")
	// ErrClosed is returned by calls on a node that is closing or closed; it
	// is definite. It wraps ErrNoLeader, since that is what it means to a
	// client.
	ErrClosed = fmt.Errorf("raftnode: node is closed: %w", ErrNoLeader)
	// ErrNotEmpty is returned by Open when Config.Founders is set and the
	// folder holds raft state already.
	ErrNotEmpty = errors.New("raftnode: cannot found a cluster in a folder that holds raft state")
	// ErrClusterKnown is returned by SetClusterID when the folder belongs to
	// another cluster already.
	ErrClusterKnown = errors.New("raftnode: data folder belongs to another cluster")
)

// NotLeaderError says that nothing was proposed or read because this replica is
// not the leader. It is definite.
type NotLeaderError struct {
	LeaderID   string // server id of the leader; "" when it is not known
	LeaderAddr string // its address; "" when it is not known
}

// Error implements error.
func (e *NotLeaderError) Error() string {
	if e.LeaderID == "" {
		return "raftnode: not the leader, and the leader is not known"
	}
	return fmt.Sprintf("raftnode: not the leader; the leader is %s at %s", e.LeaderID, e.LeaderAddr)
}

// Is makes a NotLeaderError without a leader match ErrNoLeader.
func (e *NotLeaderError) Is(target error) bool {
	return target == ErrNoLeader && e.LeaderID == ""
}

// HaltError is given to Config.Fatal when the state machine stopped at an entry
// that it cannot apply.
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

// RemovedError returns the RefusedError of a server that is no member any more.
func RemovedError(serverID string) *transport.RefusedError {
	return &transport.RefusedError{ServerID: serverID, Reason: "it was removed from the cluster, and its id is never used again; " +
		"to add it anew, start it with an empty folder and a new --id, and use dtaskctl cluster add"}
}

// proposeError maps what a raft future said about a proposal to the errors of
// this package. Only what raft answers before it appends the entry is definite.
func (n *Node) proposeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return n.notLeader()
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return ErrBusy
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return ErrTransferring
	default:
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
}

// notLeader returns a NotLeaderError with the leader that is known now.
func (n *Node) notLeader() error {
	id, addr := n.Leader()
	if id == n.cfg.Identity.Get().ServerID { // it was lost or won between the refusal and now
		id, addr = "", ""
	}
	return &NotLeaderError{LeaderID: id, LeaderAddr: addr}
}
