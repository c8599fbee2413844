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
	// openingSuspicion is the same for a coordinator that has yet to welcome a late worker:
	// handshakes and admission may take some time.
	openingSuspicion = 750 * time.Millisecond
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

// awaitAnswer notes that the leader should answer a message within a time.
func (s *session) awaitAnswer(limit time.Duration) {
	if !s.awaiting {
		s.awaiting = true
		s.suspect.Reset(limit)
	}
}

// isSucceeded reports whether a leader that was found ends the session: it may have been found
// just before the welcome of a later one, or of itself.
func (s *session) isSucceeded(found *successorError) bool {
	return !s.welcomed || found.term > s.w.fence.message().GetTerm()
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
// heard from, or the session ends. While the worker is not welcomed, any leader is
// one, also that of its last session, except for the coordinator of this session:
// if others name that one, it is slow, and they are asked for a later leader.
func (s *session) search(ctx context.Context) {
	if s.endSearch != nil || len(s.others) == 0 {
		return
	}
	ctx, s.endSearch = context.WithCancel(ctx)
	term, itself := s.w.fence.message().GetTerm(), ""
	if !s.welcomed {
		term, itself = max(term, 1)-1, s.addr
	}
	others := slices.Clone(s.others)
	//nolint:gosec // spread, not secrecy
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	askers := min(successorAskers, len(others))
	for first := range askers {
		s.searching.Go(func() {
			after := term
			for i := first; ctx.Err() == nil; i += askers {
				switch found := s.w.askSuccessor(ctx, others[i%len(others)], after); {
				case found == nil:
				case found.address == itself:
					after = found.term
				default:
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
