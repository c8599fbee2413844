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

// allow makes the reads that follow it as fresh as requested.
func (s *Server) allow(ctx context.Context, c dtaskv1.Consistency) error {
	switch c {
	case dtaskv1.Consistency_CONSISTENCY_UNSPECIFIED, dtaskv1.Consistency_CONSISTENCY_LINEARIZABLE:
		return s.Confirm(ctx)
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
