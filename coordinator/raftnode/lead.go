package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/dtask/dtask/coordinator/transport"
)

// LeaderCh sends true when this replica becomes the leader and false when it stops
// leading. Only the latest value is kept: true after true means that a term was lost
// and another one won in between. It has one receiver.
func (n *Node) LeaderCh() <-chan bool { return n.raft.LeaderCh() }

// Barrier returns when the FSM has applied everything that was committed before the
// call, with the term in which this replica leads. It fails if leadership was lost
// meanwhile, even if it was won again.
func (n *Node) Barrier(ctx context.Context) (term uint64, err error) {
	term = n.raft.CurrentTerm()
	err = n.calls.await(ctx, func() error { return n.raft.Barrier(n.cfg.EnqueueTimeout).Error() })
	switch {
	case err != nil:
	case !n.leadsTerm(term):
		err = fmt.Errorf("term %d ended: %w", term, n.notLeader())
	default:
		err = n.Err()
	}
	if err != nil {
		return 0, fmt.Errorf("waiting for a barrier: %w", err)
	}
	return term, nil
}

// Transfer transfers leadership to the voter that answers and has the longest log,
// preferring voters with free disk space, and returns when this replica no longer
// leads. Raft would choose by its own estimate of their logs, which in a new term is
// the same for a voter that is down.
func (n *Node) Transfer(ctx context.Context) error {
	if next, _, ok := n.successor(ctx); ok {
		return n.transferTo(ctx, next)
	}
	if err := n.calls.await(ctx, func() error { return n.raft.LeadershipTransfer().Error() }); err != nil {
		return fmt.Errorf("transferring leadership: %w", err)
	}
	return nil
}

// TransferTo transfers leadership to a voter, and returns when this replica no longer
// leads.
func (n *Node) TransferTo(ctx context.Context, id string) error {
	others, _ := n.otherVoters("")
	i := slices.IndexFunc(others, func(s Server) bool { return s.ID == id })
	if i < 0 {
		return fmt.Errorf("transferring leadership: %s is not another voter", id)
	}
	return n.transferTo(ctx, others[i])
}

func (n *Node) transferTo(ctx context.Context, next Server) error {
	err := n.calls.await(ctx, func() error {
		return n.raft.LeadershipTransferToServer(raft.ServerID(next.ID), raft.ServerAddress(next.Address)).Error()
	})
	if err != nil {
		return fmt.Errorf("transferring leadership to %s: %w", next.ID, err)
	}
	return nil
}

// successor asks the other voters and returns the one that should lead next: a voter
// with free disk space before one without, then the one with the longest log. ok is
// false if none answers.
func (n *Node) successor(ctx context.Context) (next Server, hasSpace, ok bool) {
	others, _ := n.otherVoters("")
	var longest uint64
	for _, a := range askVoters(ctx, n.transport, others, transport.Question{Kind: transport.AskDiskSpace}) {
		space := a.Code == transport.AnswerYes
		if !ok || (space && !hasSpace) || (space == hasSpace && a.LastIndex > longest) {
			next, hasSpace, ok, longest = a.Server, space, true, a.LastIndex
		}
	}
	return next, hasSpace, ok
}

// AddVoter adds a server that counts in quorums, or gives an existing one a vote or
// another address. It returns when the change is committed.
func (n *Node) AddVoter(ctx context.Context, id, address string) error {
	return n.changeServers(ctx, func(timeout time.Duration) raft.IndexFuture {
		return n.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(address), 0, timeout)
	})
}

// AddNonvoter adds a server that receives the log and does not vote.
func (n *Node) AddNonvoter(ctx context.Context, id, address string) error {
	return n.changeServers(ctx, func(timeout time.Duration) raft.IndexFuture {
		return n.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(address), 0, timeout)
	})
}

// Remove removes a server. A leader that removes itself stops leading.
func (n *Node) Remove(ctx context.Context, id string) error {
	return n.changeServers(ctx, func(timeout time.Duration) raft.IndexFuture {
		return n.raft.RemoveServer(raft.ServerID(id), 0, timeout)
	})
}

func (n *Node) changeServers(ctx context.Context, change func(time.Duration) raft.IndexFuture) error {
	err := n.calls.await(ctx, func() error { return change(n.cfg.EnqueueTimeout).Error() })
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && !errors.Is(err, ErrClosed) {
		err = proposeError(n.view, err)
	}
	return fmt.Errorf("changing the servers: %w", err)
}
