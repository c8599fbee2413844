package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Confirm makes the reads that follow it linearizable: they reflect everything
// that was acknowledged before Confirm was called.
//
// A quorum confirms that this replica leads. What was acknowledged in its own
// term was applied here before it was acknowledged, and what was acknowledged in
// earlier terms comes before the LeaderStart of this term in the log. So it is
// enough that this LeaderStart is applied here, and there is nothing to wait
// for: entries that are committed and not yet applied were not acknowledged to
// anybody. The comparison with the term in the state also catches a replica
// that lost its term and won another before the old one was wound up here.
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
		// A read changes nothing, so whatever went wrong is definite.
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

// allow makes sure that what is read from now on is as fresh as was asked for.
func (s *Server) allow(ctx context.Context, c dtaskv1.Consistency) error {
	switch c {
	case dtaskv1.Consistency_CONSISTENCY_UNSPECIFIED, dtaskv1.Consistency_CONSISTENCY_LINEARIZABLE:
		return s.Confirm(ctx)
	case dtaskv1.Consistency_CONSISTENCY_STALE:
		return nil
	}
	return invalid("consistency: %d is not known; send LINEARIZABLE or STALE", c)
}

// freshness tells what a read at an index is worth.
func (s *Server) freshness(index uint64) *dtaskv1.Freshness {
	f := &dtaskv1.Freshness{AppliedIndex: index, Replica: s.cfg.ServerID}
	raft := s.cfg.Raft()
	if raft != nil && raft.State() == "leader" {
		return f
	}
	heard := s.began // if there never was a leader
	if raft != nil && raft.LastContact().After(heard) {
		heard = raft.LastContact()
	}
	f.LagMs = max(time.Since(heard).Milliseconds(), 0)
	return f
}

// observed gives the running tasks of a job, if this replica leads.
func (s *Server) observed(id fsm.JobID) map[uint32]sequencer.Observation {
	if l := s.cfg.Leader(); l != nil {
		return l.Observed(id)
	}
	return nil
}

var errNotJobID = errors.New("not the id of a job")

// parseJobID reads the text form of a job's id: a decimal number from 1, as the
// system prints it.
func parseJobID(text string) (fsm.JobID, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || n == math.MaxUint64 || strconv.FormatUint(n, 10) != text {
		return 0, errNotJobID
	}
	return fsm.JobID(n), nil
}

// jobID reads an id that a caller sent.
func jobID(text string) (fsm.JobID, error) {
	id, err := parseJobID(text)
	if err != nil {
		return 0, notFound("job %s: there is no such job; ids are numbers, as submit and list print them", quote(text))
	}
	return id, nil
}

func noSuchJob(id fsm.JobID) error {
	return notFound("job %d: there is no such job, or it is not kept any more", id)
}

// noSuchTask says that a job has no task of a name, and what there is that may be meant.
func noSuchTask(st *fsm.State, id fsm.JobID, name string) error {
	for _, a := range st.Arrays(id) {
		named := func(k uint32) string { return st.Name(fsm.TaskRef{Job: id, Index: a.First + k}) }
		switch k, end, ok := a.Covering(name); {
		case name == a.Name:
			return notFound("job %d: %s is an array: name one of its tasks, %s", id, quote(name), between(named(0), named(a.Count-1)))
		case ok && k < end:
			return notFound("job %d has no task %s: its items are those of %s", id, quote(name), between(named(k), named(end-1)))
		case ok:
			return notFound("job %d has no task %s: the array %s has %s", id, quote(name), quote(a.Name), between(named(0), named(a.Count-1)))
		}
	}
	return notFound("job %d has no task %s", id, quote(name))
}

func between(first, last string) string {
	if first == last {
		return first
	}
	return first + " to " + last
}

// quote makes text of a caller fit for a message.
func quote(text string) string {
	const most = 80
	if len(text) > most {
		return strconv.Quote(text[:most]) + "…"
	}
	return strconv.Quote(text)
}

// taskOrArray finds a task, or the first one of an array, by the id that its user
// gave to it.
func (s *Server) taskOrArray(id fsm.JobID, name string) (ref fsm.TaskRef, whole bool, err error) {
	st, _ := s.cfg.Machine.Fork()
	if ref, whole = st.FindArray(id, name); whole {
		return ref, true, nil
	}
	ref, err = s.task(id, name)
	return ref, false, err
}

// task finds a task by the id that its user gave to it. It works on a fork,
// since it reads the whole job.
func (s *Server) task(id fsm.JobID, name string) (fsm.TaskRef, error) {
	st, _, _, err := s.fork(id)
	if err != nil {
		return fsm.TaskRef{}, err
	}
	ref, ok := st.FindTask(id, name)
	if !ok {
		return fsm.TaskRef{}, noSuchTask(st, id, name)
	}
	return ref, nil
}
