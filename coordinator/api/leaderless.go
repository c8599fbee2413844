package api

import (
	"context"
	"strings"
	"time"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A call that comes while nobody leads, after a start or the loss of a leader, waits here for a
// leader: most elections are over sooner than a client that is sent away comes back. Few calls wait,
// and none long; the others are told at once that there is no leader.
const (
	maxLeaderless  = 64
	leaderlessLook = 5 * time.Millisecond
)

// ofJobs is how the methods begin that wait. Coordinators ask each other with others, and want to know how
// things are.
var ofJobs = "/" + dtaskv1.JobService_ServiceDesc.ServiceName + "/"

// awaitLeader waits after a call failed because this replica does not lead, while none is
// known here that does. It says whether this replica has begun to: nothing has happened for
// the call, and it may be made once more.
func (s *Server) awaitLeader(ctx context.Context, method string, failed error) (leads bool) {
	if failed == nil || !strings.HasPrefix(method, ofJobs) || !s.leaderless() {
		return false
	}
	if e := meaning(failed, s.cfg.Classify); e == nil || e.Kind != KindNotLeader || !s.leaderlessCalls.TryAcquire(1) {
		return false
	}
	defer s.leaderlessCalls.Release(1)
	look := time.NewTicker(leaderlessLook)
	defer look.Stop()
	enough := time.NewTimer(s.cfg.LeaderWait)
	defer enough.Stop()
	for s.leaderless() {
		select {
		case <-look.C:
		case <-enough.C:
			return false
		case <-s.stopping:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return s.cfg.Leader() != nil
}

// leaderless reports whether this replica neither leads, in a term that has begun, nor can
// name the leader.
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
