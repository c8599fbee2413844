package raftnode

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// maxInFlight bounds the proposals that wait for their answer. The proposer keeps a
// handful in flight, so it never waits here.
const maxInFlight = 256

// Proposal is one proposed entry on its way.
type Proposal struct {
	future raft.ApplyFuture // nil when it was refused at once
	gone   <-chan struct{}  // closed when the node is
	done   chan struct{}    // closed by the collector, after what follows was set

	response any
	index    uint64
	err      error
}

// Propose hands an entry to raft and returns at once with the proposal, unless
// raft has no room: then it waits up to Config.EnqueueTimeout. Data must not be
// changed afterwards. The proposals of one caller that calls Propose in order
// are appended, applied and done in that order.
func (n *Node) Propose(data []byte) *Proposal {
	p := &Proposal{gone: n.gone, done: make(chan struct{})}
	if err := n.enqueue(p, data); err != nil {
		p.err = err
		close(p.done)
	}
	return p
}

func (n *Node) enqueue(p *Proposal, data []byte) error {
	n.proposing.RLock()
	defer n.proposing.RUnlock()
	switch {
	case n.isClosing():
		return ErrClosed
	case n.Err() != nil:
		return fmt.Errorf("%w: %w", ErrNoLeader, n.Err())
	case n.raft.State() != raft.Leader: // spares the log of raft's main loop a round
		return n.notLeader()
	}
	p.future = n.raft.ApplyLog(raft.Log{Data: data}, n.cfg.EnqueueTimeout)
	n.counters.proposals.Add(1)
	n.counters.proposedBytes.Add(uint64(len(data)))
	n.pending.Add(1)
	n.proposals <- p
	return nil
}

// Done is closed when Wait would not block.
func (p *Proposal) Done() <-chan struct{} { return p.done }

// Wait returns what the FSM answered to the entry and the entry's index. Its errors
// are those of the package: *NotLeaderError, ErrNoLeader, ErrBusy and
// ErrTransferring are definite, ErrOutcomeUnknown is not; there are no others.
// It may be called more than once.
func (p *Proposal) Wait() (response any, index uint64, err error) {
	select {
	case <-p.done:
		return p.response, p.index, p.err
	case <-p.gone:
	}
	select {
	case <-p.done:
		return p.response, p.index, p.err
	default: // the node is closed, and raft will not answer this one any more
		return nil, 0, ErrOutcomeUnknown
	}
}

// collect completes proposals in the order in which they were made, until there
// are no more. Raft applies in that order too, so it waits for nobody twice.
func (n *Node) collect() {
	for p := range n.proposals {
		err := n.proposeError(p.future.Error())
		if err == nil {
			if _, stopped := p.future.Response().(halted); stopped {
				err = ErrOutcomeUnknown // committed, and not applied here
			} else {
				p.response, p.index = p.future.Response(), p.future.Index()
			}
		}
		p.err = err
		n.pending.Add(-1)
		close(p.done)
	}
}
