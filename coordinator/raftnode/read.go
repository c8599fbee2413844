package raftnode

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// reader confirms leadership for linearizable reads, in one round for all that wait.
type reader struct {
	*view

	timeout time.Duration // to enqueue a barrier
	applied func() uint64 // index that the FSM has applied
	err     func() error  // why the replica has failed, or nil
	closing <-chan struct{}

	mu   sync.Mutex // guards next
	next *readRound
	wake chan struct{} // size 1: one pending signal is enough

	reads, rounds atomic.Uint64
}

// readRound is one confirmation of leadership, shared by all reads that were waiting
// when it started.
type readRound struct {
	done  chan struct{} // closed after the following fields are set
	index uint64
	err   error
}

// ReadIndex returns an index such that a read of the state at or after it is
// linearizable with respect to the time of the call: a barrier that was proposed after
// the call is committed and applied, in a term that did not change meanwhile. The FSM
// has applied the index already.
//
// Concurrent calls share one barrier, and under load it shares its write with the
// entries proposed at the same time. raft's VerifyLeader would save the write, but does
// not prove what is needed: it counts any answer of a follower, also one to a request
// sent before a pause of this process that has waited in the socket since; and it
// counts non-voters. An entry is acknowledged only by servers that received it
// (ADR-0011).
//
// Its errors are *NotLeaderError, ErrNoLeader, ErrBusy, ErrTransferring and ctx's. A
// read changes nothing, so all are definite.
func (n *Node) ReadIndex(ctx context.Context) (uint64, error) { return n.reader.readIndex(ctx) }

func (r *reader) readIndex(ctx context.Context) (uint64, error) {
	r.mu.Lock()
	if r.next == nil {
		r.next = &readRound{done: make(chan struct{})}
		select {
		case r.wake <- struct{}{}:
		default: // run is busy and checks again after its round
		}
	}
	round := r.next
	r.mu.Unlock()
	r.reads.Add(1)

	select {
	case <-round.done:
		return round.index, round.err
	case <-r.closing:
		return 0, ErrClosed
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// run confirms leadership, one round after the other. A round serves only reads that
// came before it started: a later read may have seen a write that the round does not
// cover.
func (r *reader) run() {
	for {
		select {
		case <-r.closing:
			return
		case <-r.wake:
		}
		select {
		case <-r.closing: // raft may stop meanwhile, and then it drops requests
			return
		default:
		}
		r.mu.Lock()
		round := r.next
		r.next = nil
		r.mu.Unlock()
		if round == nil {
			continue
		}
		r.rounds.Add(1)
		round.index, round.err = r.confirm()
		close(round.done)
	}
}

func (r *reader) confirm() (uint64, error) {
	term := r.raft.CurrentTerm()
	if r.raft.State() != raft.Leader {
		return 0, r.notLeader()
	}
	if err := proposeError(r.view, r.raft.Barrier(r.timeout).Error()); err != nil {
		if errors.Is(err, ErrOutcomeUnknown) {
			return 0, fmt.Errorf("%w: leadership is not confirmed: %v", ErrNoLeader, err) //nolint:errorlint // a read has no unknown outcome
		}
		return 0, err
	}
	if !r.leadsTerm(term) {
		return 0, r.notLeader()
	}
	if err := r.err(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	return r.applied(), nil
}
