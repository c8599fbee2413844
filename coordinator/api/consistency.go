package api

import (
	"context"
	"fmt"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Confirm makes the reads that follow it linearizable: they reflect everything that
// was acknowledged before Confirm was called.
//
// A quorum confirms that this replica leads. What was acknowledged in its own term
// was applied here before that, and what was acknowledged in earlier terms precedes
// the StartTerm of this term in the log. So it is enough that this StartTerm is
// applied here, and there is nothing to wait for: entries that are committed and not
// yet applied were not acknowledged. Comparing with the term in the state also
// catches a replica that lost its term and won another before the old one ended here.
func (s *Server) Confirm(ctx context.Context) error {
	raft := s.cfg.Raft()
	if raft == nil || s.cfg.Leader() == nil {
		return errNotLeader
	}
	term := raft.Term()
	if _, err := raft.ReadIndex(ctx); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("confirming leadership: %w", context.Cause(ctx))
		}
		// A read changes nothing, so any failure is definite.
		s.cfg.Logger.DebugContext(ctx, "leadership not confirmed", "err", err)
		return errNotLeader
	}
	var started uint64
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) { started, _ = st.Term() })
	if raft.Term() != term || started != term {
		return errNotLeader
	}
	return nil
}

// barrier makes reads linearizable that follow at this replica, which need not lead: they do once it
// has applied the index that barrier returns. On a leader that is 0.
func (s *Server) barrier(ctx context.Context) (uint64, error) {
	if s.cfg.Leader() != nil {
		return 0, s.Confirm(ctx) // it has applied everything of its term
	}
	raft := s.cfg.Raft()
	if raft == nil || s.cfg.AskBarrier == nil {
		return 0, errNotLeader
	}
	id, address := raft.Leader()
	if address == "" || id == s.cfg.ServerID {
		return 0, errNotLeader
	}
	index, err := s.cfg.AskBarrier(ctx, address)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, fmt.Errorf("asking the leader for a barrier: %w", context.Cause(ctx))
	case err != nil:
		s.cfg.Logger.DebugContext(ctx, "no barrier for a read", "leader", id, "err", err)
		return 0, errNotLeader // the caller tries others
	}
	return index, nil
}

// confirmAnywhere is Confirm for any replica. One that is far behind is errNotLeader, too.
func (s *Server) confirmAnywhere(ctx context.Context) error {
	index, err := s.barrier(ctx)
	if err != nil {
		return err
	}
	return s.awaitIndex(ctx, index, dtaskv1.Consistency_CONSISTENCY_STALE)
}

// allow makes the reads that follow it as fresh as requested: linearizable ones by confirm.
func allow(ctx context.Context, c dtaskv1.Consistency, confirm func(context.Context) error) error {
	switch c {
	case dtaskv1.Consistency_CONSISTENCY_UNSPECIFIED, dtaskv1.Consistency_CONSISTENCY_LINEARIZABLE:
		return confirm(ctx)
	case dtaskv1.Consistency_CONSISTENCY_STALE:
		return nil
	}
	return invalid("invalid consistency %d: must be LINEARIZABLE or STALE", c)
}

// freshness describes a read at an index.
func (s *Server) freshness(index uint64) *dtaskv1.Freshness {
	f := &dtaskv1.Freshness{AppliedIndex: index, Replica: s.cfg.ServerID}
	raft := s.cfg.Raft()
	if raft != nil && raft.State() == "leader" {
		return f
	}
	contact := s.started // if there was no leader yet
	if raft != nil && raft.LastContact().After(contact) {
		contact = raft.LastContact()
	}
	f.LagMs = max(time.Since(contact).Milliseconds(), 0)
	return f
}

// leader returns the current term.
func (s *Server) leader() (Leader, error) {
	if l := s.cfg.Leader(); l != nil {
		return l, nil
	}
	return nil, errNotLeader
}

// observed returns the running tasks of a job if this replica leads.
func (s *Server) observed(id fsm.JobID) map[uint32]sequencer.Observation {
	if l := s.cfg.Leader(); l != nil {
		return l.Observed(id)
	}
	return nil
}
