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
// linearizable with respect to the moment of the call. It holds that this
// replica was the leader, had committed an entry of its own term, took its
// commit index, was then confirmed by a quorum, and is in the same term still.
// The caller waits with WaitApplied before it reads.
//
// Calls that wait together share one round. Its errors are *NotLeaderError,
// ErrNoLeader and ctx's; nothing was changed by a read, so all are definite.
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

// WaitApplied returns when the FSM of this replica has applied index.
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
	if n.raft.State() != raft.Leader {
		return 0, n.notLeader()
	}
	term := n.raft.CurrentTerm()
	start := n.store.noop.Load()
	committed := n.raft.CommitIndex()
	if start == nil || start.term != term || committed < start.index {
		return 0, fmt.Errorf("%w: term %d has no committed entry yet", ErrNoLeader, term)
	}
	if err := n.verifyLeader(); err != nil {
		if errors.Is(err, raft.ErrNotLeader) {
			return 0, n.notLeader()
		}
		return 0, fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	if n.raft.CurrentTerm() != term || n.raft.State() != raft.Leader {
		return 0, n.notLeader()
	}
	return n.lastCommand(committed)
}

// verifyLeader has a quorum confirm that this replica leads. raft's own check counts
// the answers of non-voters too, so while there are any, an entry is committed
// instead.
func (n *Node) verifyLeader() error {
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage != raft.Voter {
			return n.raft.Barrier(n.cfg.EnqueueTimeout).Error()
		}
	}
	return n.raft.VerifyLeader().Error()
}

// lastCommand returns the highest index up to the given one that the FSM sees:
// leaders' noops, barriers and configurations never reach it, and to wait
// for one would be to wait for ever. It is 0 when all is in a snapshot, which the
// FSM has applied by then.
func (n *Node) lastCommand(index uint64) (uint64, error) {
	if applied := n.fsm.applied.Load(); applied >= index {
		return applied, nil
	}
	for ; index > n.fsm.applied.Load(); index-- {
		var log raft.Log
		err := n.logs.GetLog(index, &log)
		switch {
		case errors.Is(err, raft.ErrLogNotFound):
			return 0, nil // compacted, so in a snapshot
		case err != nil:
			return 0, fmt.Errorf("%w: %w", ErrNoLeader, err)
		case log.Type == raft.LogCommand:
			return index, nil
		}
	}
	return index, nil
}
