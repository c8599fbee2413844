package raftnode

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// maxInFlight bounds the proposals without an outcome. The sequencer keeps a handful in
// flight, so it never waits here.
const maxInFlight = 256

// proposer appends entries and completes their proposals in order.
type proposer struct {
	*view

	timeout time.Duration // to enqueue a proposal
	err     func() error  // why the replica has failed, or nil

	mu     sync.RWMutex // held for reading while proposing, for writing to close
	closed bool
	queue  chan *Proposal // from Propose to run, in order; closed by close
	gone   chan struct{}  // closed when raft has stopped

	pending          atomic.Int64 // proposals without an outcome
	proposals, bytes atomic.Uint64
}

// Proposal is one proposed entry.
type Proposal struct {
	future raft.ApplyFuture // nil if it was refused
	gone   <-chan struct{}  // closed when raft has stopped
	done   chan struct{}    // closed after the following fields are set

	response any
	index    uint64
	err      error
}

// Propose passes an entry to raft and returns the proposal immediately, unless raft's
// queue is full: then it waits up to Config.EnqueueTimeout. The data must not be
// changed afterwards. The proposals of one caller are appended, applied and completed
// in the order of its calls.
func (n *Node) Propose(data []byte) *Proposal {
	p := &Proposal{gone: n.proposer.gone, done: make(chan struct{})}
	if err := n.proposer.enqueue(p, data); err != nil {
		p.err = err
		close(p.done)
	}
	return p
}

func (p *proposer) enqueue(proposal *Proposal, data []byte) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.err() != nil:
		return fmt.Errorf("%w: %w", ErrNoLeader, p.err())
	case !p.Leading(): // saves raft's main loop a round
		return p.notLeader()
	}
	proposal.future = p.raft.ApplyLog(raft.Log{Data: data}, p.timeout)
	p.proposals.Add(1)
	p.bytes.Add(uint64(len(data)))
	p.pending.Add(1)
	p.queue <- proposal
	return nil
}

// run completes proposals in the order in which they were made, until close. Raft
// applies in that order too, so no proposal waits for a later one.
func (p *proposer) run() {
	for proposal := range p.queue {
		err := proposeError(p.view, proposal.future.Error())
		if err == nil {
			if _, stopped := proposal.future.Response().(halted); stopped {
				err = ErrOutcomeUnknown // committed, but not applied here
			} else {
				proposal.response, proposal.index = proposal.future.Response(), proposal.future.Index()
			}
		}
		proposal.err = err
		p.pending.Add(-1)
		close(proposal.done)
	}
}

// close refuses further proposals.
func (p *proposer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	close(p.queue)
}

// Done is closed when Wait would not block.
func (p *Proposal) Done() <-chan struct{} { return p.done }

// Wait returns the FSM's response to the entry and the entry's index. *NotLeaderError,
// ErrNoLeader, ErrBusy and ErrTransferring are definite, ErrOutcomeUnknown is not; it
// returns no other errors. It may be called more than once.
func (p *Proposal) Wait() (response any, index uint64, err error) {
	select {
	case <-p.done:
		return p.response, p.index, p.err
	case <-p.gone:
	}
	select {
	case <-p.done:
		return p.response, p.index, p.err
	default: // raft has stopped without an answer
		return nil, 0, ErrOutcomeUnknown
	}
}

// proposeError maps the error of a raft future to the errors of this package. Only
// errors that raft returns before it appends the entry are definite.
func proposeError(v *view, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return v.notLeader()
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return ErrBusy
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return ErrTransferring
	default:
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
}
