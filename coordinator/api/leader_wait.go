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
	if e := meaning(failed, s.cfg.Classify); e == nil || e.Kind != KindNotLeader || !s.leaderWaits.TryAcquire(1) {
		return false
	}
	defer s.leaderWaits.Release(1)
	poll := time.NewTicker(leaderPollInterval)
	defer poll.Stop()
	timeout := time.NewTimer(s.cfg.LeaderWait)
	defer timeout.Stop()
	for s.leaderless() {
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
	return s.cfg.Leader() != nil
}

// leaderless reports whether this replica neither leads, in a term that has started,
// nor knows the leader.
func (s *Server) leaderless() bool {
	raft := s.cfg.Raft()
	if raft == nil {
		return true
	}
	if s.cfg.Leader() != nil {
		var started uint64
		s.cfg.Machine.Read(func(st *fsm.State, _ uint64) { started, _ = st.Term() })
		return started != raft.Term()
	}
	id, address := raft.Leader()
	return id == "" || address == "" || id == s.cfg.ServerID
}
