package membership

import (
	"context"
	"sync"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// leaderPoll is how often the leader is read while a call waits for one.
	leaderPoll = 5 * time.Millisecond
	// maxLeaderWait bounds one call.
	maxLeaderWait = 10 * time.Second
	// maxSuccessorWait bounds AwaitSuccessor.
	maxSuccessorWait = 300 * time.Millisecond
)

// AwaitLeader implements ClusterService. It needs no leader.
func (s *Service) AwaitLeader(ctx context.Context, r *dtaskv1.AwaitLeaderRequest) (*dtaskv1.AwaitLeaderResponse, error) {
	wait := min(max(time.Duration(r.GetWaitMs())*time.Millisecond, 0), maxLeaderWait)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return s.leaders.await(ctx, s.knownLeader, r.GetAfterTerm()), nil
}

// AwaitSuccessor returns when this replica knows the leader of a term later than after, or
// after a short time: an election takes less, unless the others can't elect a leader.
func (s *Service) AwaitSuccessor(ctx context.Context, after uint64) {
	ctx, cancel := context.WithTimeout(ctx, maxSuccessorWait)
	defer cancel()
	s.leaders.await(ctx, s.knownLeader, after)
}

// knownLeader returns the leader that this replica knows; empty without one.
func (s *Service) knownLeader() *dtaskv1.AwaitLeaderResponse {
	node := s.cfg.Node()
	if node == nil {
		return &dtaskv1.AwaitLeaderResponse{}
	}
	term := node.Term()
	id, address := node.Leader()
	if id == "" || address == "" || node.Term() != term { // read between two terms
		return &dtaskv1.AwaitLeaderResponse{}
	}
	return &dtaskv1.AwaitLeaderResponse{LeaderId: id, LeaderAddress: address, Term: term}
}

// leaderWaits lets any number of calls wait for a leader. One of them reads the
// leader repeatedly and wakes the others, so that thousands of workers that have
// lost theirs cost nothing.
type leaderWaits struct {
	reading chan struct{} // size 1: held by the call that reads

	mu      sync.Mutex // guards changed
	changed chan struct{}
}

func newLeaderWaits() *leaderWaits {
	return &leaderWaits{reading: make(chan struct{}, 1), changed: make(chan struct{})}
}

// await returns the leader when it is of a later term, and an empty response when
// ctx is done first.
func (w *leaderWaits) await(ctx context.Context, known func() *dtaskv1.AwaitLeaderResponse, after uint64) *dtaskv1.AwaitLeaderResponse {
	for {
		changed := w.change() // before known: a later change is not missed
		if leader := known(); leader.GetTerm() > after {
			return leader
		}
		select {
		case <-changed:
		case w.reading <- struct{}{}:
			w.readUntilChanged(ctx, known)
			<-w.reading
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return &dtaskv1.AwaitLeaderResponse{}
		}
	}
}

// change returns a channel that is closed when the leader has changed.
func (w *leaderWaits) change() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// readUntilChanged reads the leader until it is another one or ctx is done, and
// wakes all calls: one of them reads on.
func (w *leaderWaits) readUntilChanged(ctx context.Context, known func() *dtaskv1.AwaitLeaderResponse) {
	poll := time.NewTicker(leaderPoll)
	defer poll.Stop()
	for before := known().GetTerm(); known().GetTerm() == before && ctx.Err() == nil; {
		select {
		case <-poll.C:
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
}
