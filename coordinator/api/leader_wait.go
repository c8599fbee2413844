package api

import (
	"context"
	"time"

	"github.com/dtask/dtask/fsm"
)

// A call that arrives while no leader is known, after a start or the loss of a leader,
// waits here: most elections end before a rejected client would retry. At most
// maxLeaderWaits calls wait, for Config.LeaderWait; others fail immediately.
const (
	maxLeaderWaits     = 64
	leaderPollInterval = 5 * time.Millisecond
)

// awaitLeader waits if a call failed because no leader is known. It reports whether
// this replica has become the leader, so that the call, which had no effect, may be
// made again.
func (s *Server) awaitLeader(ctx context.Context, m method, failed error) (leads bool) {
	if failed == nil || !m.waits || !s.leaderless() {
		return false
	}
	if e := meaning(failed, s.cfg.Classify); e == nil || e.Kind != KindNotLeader {
		return false
	}
	return s.awaitUntil(ctx, func() bool { return !s.leaderless() }) && s.cfg.Leader() != nil
}

// awaitSuccessor waits, after jobs failed because a term of this replica has ended, until
// the next leader is known, to which the status of the jobs then redirects the client.
// Otherwise the client would retry after a fixed delay.
func (s *Server) awaitSuccessor(ctx context.Context, ended Leader) {
	s.awaitUntil(ctx, func() bool {
		if now := s.cfg.Leader(); now != nil && now != ended {
			return s.termStarted()
		}
		raft := s.cfg.Raft()
		if raft == nil {
			return false
		}
		id, address := raft.Leader()
		return id != "" && address != "" && id != s.cfg.ServerID
	})
}

// awaitUntil polls a condition, and reports whether it became true in time.
func (s *Server) awaitUntil(ctx context.Context, holds func() bool) bool {
	if !s.leaderWaits.TryAcquire(1) {
		return false
	}
	defer s.leaderWaits.Release(1)
	poll := time.NewTicker(leaderPollInterval)
	defer poll.Stop()
	timeout := time.NewTimer(s.cfg.LeaderWait)
	defer timeout.Stop()
	for !holds() {
		select {
		case <-poll.C:
		case <-timeout.C:
			return false
		case <-s.stopping:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// leaderless reports whether this replica neither leads, in a term that has started,
// nor knows the leader.
func (s *Server) leaderless() bool {
	raft := s.cfg.Raft()
	if raft == nil {
		return true
	}
	if s.cfg.Leader() != nil {
		return !s.termStarted()
	}
	id, address := raft.Leader()
	return id == "" || address == "" || id == s.cfg.ServerID
}

// termStarted reports whether the first entry of Raft's current term is applied. A leader
// without a term of its own is then about to lose leadership; before, it was just elected.
func (s *Server) termStarted() bool {
	var started uint64
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) { started, _ = st.Term() })
	raft := s.cfg.Raft()
	return raft != nil && started == raft.Term()
}
