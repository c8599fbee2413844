package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/metadata"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// suspicion is how long a leader may not answer before the worker asks other
	// coordinators for its successor. The worker leaves only if there is one: a
	// leader that is merely slow keeps its workers until the liveness timeout.
	suspicion = 250 * time.Millisecond
	// successorWait is how long one call waits for a successor.
	successorWait = 2 * time.Second
	// successorAskers is how many coordinators are asked at once.
	successorAskers = 2
	// clusterKey is the metadata key of the cluster that a call is meant for.
	clusterKey = "dtask-cluster-id"
)

// A successorError ends a session because there is a leader of a later term.
type successorError struct {
	address string
	term    uint64
}

func (e *successorError) Error() string {
	return fmt.Sprintf("the coordinator does not answer, and %s leads term %d", e.address, e.term)
}

// awaitAnswer notes that the leader should answer a message.
func (s *session) awaitAnswer() {
	if !s.awaiting {
		s.awaiting = true
		s.suspect.Reset(suspicion)
	}
}

// heard notes a message of the leader, which is therefore alive.
func (s *session) heard() {
	s.awaiting = false
	s.suspect.Stop()
	if s.endSearch != nil {
		s.endSearch()
		s.endSearch = nil
	}
}

// search asks other coordinators for the leader's successor until the leader is
// heard from, or the session ends. If they name the one that has yet to welcome the
// worker, it is only slow.
func (s *session) search(ctx context.Context) {
	if s.endSearch != nil || len(s.others) == 0 {
		return
	}
	ctx, s.endSearch = context.WithCancel(ctx)
	term := s.w.fence.message().GetTerm()
	others := slices.Clone(s.others)
	//nolint:gosec // spread, not secrecy
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	askers, opening := min(successorAskers, len(others)), !s.welcomed
	for first := range askers {
		s.searching.Go(func() {
			for i := first; ctx.Err() == nil; i += askers {
				found := s.w.askSuccessor(ctx, others[i%len(others)], term)
				if found != nil && opening && found.address == s.addr {
					return
				}
				if found != nil {
					select {
					case s.successor <- found:
					default: // another asker was faster
					}
					return
				}
			}
		})
	}
}

// askSuccessor asks one coordinator, and returns nil if it names no leader of a
// later term. It takes some time in any case.
func (w *Worker) askSuccessor(ctx context.Context, addr string, term uint64) *successorError {
	limited, cancel := context.WithTimeout(ctx, successorWait+time.Second)
	defer cancel()
	conn, err := w.connect(addr)
	if err == nil {
		var r *dtaskv1.AwaitLeaderResponse
		call := metadata.AppendToOutgoingContext(w.authorized(limited), clusterKey, w.fence.clusterID())
		r, err = dtaskv1.NewClusterServiceClient(conn).AwaitLeader(call, &dtaskv1.AwaitLeaderRequest{AfterTerm: term, WaitMs: successorWait.Milliseconds()})
		w.conns.release(conn, err == nil || ctx.Err() != nil)
		if r.GetTerm() > term && r.GetLeaderAddress() != "" {
			return &successorError{address: r.GetLeaderAddress(), term: r.GetTerm()}
		}
	}
	// It may be down, of an earlier version, or have answered at once.
	select {
	case <-time.After(jitter(2 * minBackoff)):
	case <-ctx.Done():
	}
	return nil
}
