package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// LeaderCh sends true when this replica becomes the leader and false when it no
// longer is. Only the latest is kept: true after true is a term lost and another
// won in between. It has one receiver.
func (n *Node) LeaderCh() <-chan bool { return n.raft.LeaderCh() }

// Leading says whether this replica is the leader, as far as it knows. Another may
// have been elected already; ReadIndex finds out.
func (n *Node) Leading() bool { return n.raft.State() == raft.Leader }

// Barrier returns when the FSM has applied all that was committed before the call,
// with the term in which this replica leads. It fails if leadership was lost, or
// lost and won again, meanwhile.
func (n *Node) Barrier(ctx context.Context) (term uint64, err error) {
	term = n.raft.CurrentTerm()
	if err := n.await(ctx, func() error { return n.raft.Barrier(n.cfg.EnqueueTimeout).Error() }); err != nil {
		return 0, fmt.Errorf("waiting for a barrier: %w", err)
	}
	if now := n.raft.CurrentTerm(); now != term || !n.Leading() {
		return 0, fmt.Errorf("waiting for a barrier: term %d was lost: %w", term, n.notLeader())
	}
	if err := n.Err(); err != nil {
		return 0, fmt.Errorf("waiting for a barrier: %w", err)
	}
	return term, nil
}

// Transfer asks the voter that answers and has the longest log, with room on its disk
// if one has, to take leadership over, and returns when this replica leads no more.
// Raft would choose by what it believes of their logs; in a new term it believes the
// same of one that is dead.
func (n *Node) Transfer(ctx context.Context) error {
	if heir, _, ok := n.heir(ctx); ok {
		return n.transferTo(ctx, heir)
	}
	if err := n.await(ctx, func() error { return n.raft.LeadershipTransfer().Error() }); err != nil {
		return fmt.Errorf("transferring leadership: %w", err)
	}
	return nil
}

// TransferTo asks one voter to take leadership over, and returns when this replica
// leads no more.
func (n *Node) TransferTo(ctx context.Context, id string) error {
	others, _ := n.voters("")
	i := slices.IndexFunc(others, func(s Server) bool { return s.ID == id })
	if i < 0 {
		return fmt.Errorf("transferring leadership: %s is not another voter", id)
	}
	return n.transferTo(ctx, others[i])
}

func (n *Node) transferTo(ctx context.Context, heir Server) error {
	err := n.await(ctx, func() error {
		return n.raft.LeadershipTransferToServer(raft.ServerID(heir.ID), raft.ServerAddress(heir.Address)).Error()
	})
	if err != nil {
		return fmt.Errorf("transferring leadership to %s: %w", heir.ID, err)
	}
	return nil
}

// AddVoter adds a server that counts in quorums, or gives a known one a vote or
// another address. It returns when the change is committed.
func (n *Node) AddVoter(ctx context.Context, id, address string) error {
	return n.change(ctx, func(timeout time.Duration) raft.IndexFuture {
		return n.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(address), 0, timeout)
	})
}

// AddNonvoter adds a server that receives the log and does not vote.
func (n *Node) AddNonvoter(ctx context.Context, id, address string) error {
	return n.change(ctx, func(timeout time.Duration) raft.IndexFuture {
		return n.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(address), 0, timeout)
	})
}

// Remove removes a server. A leader that removes itself stops leading.
func (n *Node) Remove(ctx context.Context, id string) error {
	return n.change(ctx, func(timeout time.Duration) raft.IndexFuture {
		return n.raft.RemoveServer(raft.ServerID(id), 0, timeout)
	})
}

func (n *Node) change(ctx context.Context, f func(time.Duration) raft.IndexFuture) error {
	err := n.await(ctx, func() error { return f(n.cfg.EnqueueTimeout).Error() })
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil || errors.Is(err, ErrClosed):
		return fmt.Errorf("changing the servers: %w", err)
	default:
		return fmt.Errorf("changing the servers: %w", n.proposeError(err))
	}
}

// await runs a call of raft that takes no context, and stops waiting for it when ctx
// or the node ends. Close waits for the call itself.
func (n *Node) await(ctx context.Context, call func() error) error {
	if !n.enter() {
		return ErrClosed
	}
	done := make(chan error, 1)
	go func() {
		defer n.leave()
		done <- call()
	}()
	select {
	case err := <-done:
		return err
	case <-n.closing:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
