package raftnode

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// readRound is one confirmation of leadership, shared by all reads that were
// waiting when it began.
type readRound struct {
	done  chan struct{} // closed by the reader, after what follows was set
	index uint64
	err   error
}

// ReadIndex returns an index such that a read of the state at or after it is
// linearizable with respect to the moment of the call: a barrier that was
// proposed after the call is committed and applied, in a term that did not change
// meanwhile. The FSM has applied the index already.
//
// Calls that wait together share one barrier, and under load it shares its write
// with the entries of that moment. raft's VerifyLeader would spare the write, but
// does not prove what is needed: it takes any answer of a follower for a
// confirmation, also one to a request that was sent before a pause of this process
// and lies in the socket since; and it counts non-voters. An entry can be
// acknowledged only by those who got it.
//
// Its errors are *NotLeaderError, ErrNoLeader, ErrBusy, ErrTransferring and ctx's;
// nothing is changed by a read, so all are definite.
func (n *Node) ReadIndex(ctx context.Context) (uint64, error) {
	n.reading.Lock()
	if n.nextRound == nil {
		n.nextRound = &readRound{done: make(chan struct{})}
		select {
		case n.wakeReader <- struct{}{}:
		default: // it is awake, and looks again when the present round is over
		}
	}
	round := n.nextRound
	n.reading.Unlock()
	n.counters.reads.Add(1)

	select {
	case <-round.done:
		return round.index, round.err
	case <-n.closing:
		return 0, ErrClosed
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// WaitApplied returns when the FSM of this replica has applied index, which must be
// one that the FSM sees: an index that ReadIndex or a Proposal returned, here or at
// another replica.
func (n *Node) WaitApplied(ctx context.Context, index uint64) error {
	return n.fsm.wait(ctx, index, n.closing)
}

// readLoop confirms leadership, one round at a time. A round serves only reads that
// came before it began: a read that comes later may have seen a write that
// the round does not cover.
func (n *Node) readLoop() {
	for {
		select {
		case <-n.closing:
			return
		case <-n.wakeReader:
		}
		n.reading.Lock()
		round := n.nextRound
		n.nextRound = nil
		n.reading.Unlock()
		if round == nil {
			continue
		}
		n.counters.readRounds.Add(1)
		round.index, round.err = n.confirm()
		close(round.done)
	}
}

func (n *Node) confirm() (uint64, error) {
	term := n.raft.CurrentTerm()
	if n.raft.State() != raft.Leader {
		return 0, n.notLeader()
	}
	if err := n.proposeError(n.raft.Barrier(n.cfg.EnqueueTimeout).Error()); err != nil {
		if errors.Is(err, ErrOutcomeUnknown) {
			return 0, fmt.Errorf("%w: leadership is not confirmed: %v", ErrNoLeader, err) //nolint:errorlint // a read has no unknown outcome
		}
		return 0, err
	}
	if n.raft.CurrentTerm() != term || n.raft.State() != raft.Leader {
		return 0, n.notLeader()
	}
	if err := n.Err(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	return n.fsm.applied.Load(), nil
}
