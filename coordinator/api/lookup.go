package api

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/statetext"
)

// Finished jobs leave the replicated state for history. Reads ask the state first and
// history second: a job moves one way only.

var errInvalidJobID = errors.New("invalid job id")

// parseJobID parses the text form of a job id: a decimal number from 1, as the system
// prints it.
func parseJobID(text string) (fsm.JobID, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || n == math.MaxUint64 || strconv.FormatUint(n, 10) != text {
		return 0, errInvalidJobID
	}
	return fsm.JobID(n), nil
}

func formatJobID(id fsm.JobID) string { return strconv.FormatUint(uint64(id), 10) }

// jobID parses a job id of a request.
func jobID(text string) (fsm.JobID, error) {
	id, err := parseJobID(text)
	if err != nil {
		return 0, notFound("job %s not found: job ids are numbers, as submit and list print them", quote(text))
	}
	return id, nil
}

// jobNotFound is the error for an unknown or expired job. The two can't be
// distinguished: an id is not remembered longer than its job.
func jobNotFound(id fsm.JobID) error { return notFound("job %d not found: unknown or expired", id) }

// missingJob is the error for a job that is neither in the state nor in history.
func (s *Server) missingJob(id fsm.JobID) error {
	next := fsm.JobID(0)
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) { next = st.NextJob() })
	if s.cfg.History != nil && id < next && s.cfg.History.Incomplete() {
		return incompleteHistory()
	}
	return jobNotFound(id)
}

// forkJob returns a state that has a job, and its applied index. A job of history is
// adopted by the fork, and reads as it did when it left the state.
func (s *Server) forkJob(id fsm.JobID) (st *fsm.State, job fsm.Job, index uint64, err error) {
	st, index = s.cfg.Machine.Fork()
	job, ok := st.Job(id)
	if ok {
		return st, job, index, nil
	}
	if s.cfg.History != nil && id < st.NextJob() {
		switch ok, err := s.cfg.History.Adopt(st, id); {
		case err != nil:
			return nil, job, 0, s.historyFailed(err)
		case ok:
			job, _ = st.Job(id)
			return st, job, index, nil
		}
	}
	return nil, job, 0, s.missingJob(id)
}

// archivedJob returns the head of a job of history.
func (s *Server) archivedJob(id fsm.JobID) (head fsm.Head, ok bool, err error) {
	if s.cfg.History == nil {
		return head, false, nil
	}
	if head, ok, err = s.cfg.History.Find(id); err != nil {
		err = s.historyFailed(err)
	}
	return head, ok, err
}

// explainMissing replaces the leader's rejection of a job that is not in the state by
// what is known about the job; it returns other errors unchanged.
func (s *Server) explainMissing(id fsm.JobID, err error) error {
	if !isRejected(err, fsm.JobNotFound) {
		return err
	}
	switch head, ok, err := s.archivedJob(id); {
	case err != nil:
		return err
	case ok:
		return conflict("job %d %s and is archived: it can be read but not changed", id, statetext.Predicate(head.State.String()))
	}
	return s.missingJob(id)
}

// isRejected reports whether the leader rejected a call for a reason.
func isRejected(err error, reason fsm.Reason) bool {
	r, ok := errors.AsType[*sequencer.RejectedError](err)
	return ok && r.Reason == reason
}

// historyRetryDelay is when to repeat a call that needs jobs that history lacks.
const historyRetryDelay = time.Second

func incompleteHistory() error {
	return &Error{
		Kind: KindBusy, RetryAfter: historyRetryDelay,
		Message: "this replica is still fetching its history; the job may be in the missing part",
	}
}

// historyFailed is the error for a failed read of history, which the caller can't
// cause.
func (s *Server) historyFailed(err error) error {
	s.cfg.Logger.Warn("reading history failed", "err", err)
	return incompleteHistory()
}

// findTask finds a task by the id that the user gave it. It works on a fork, since it
// may read the whole job.
func (s *Server) findTask(id fsm.JobID, name string) (fsm.TaskRef, error) {
	st, _, _, err := s.forkJob(id)
	if err != nil {
		return fsm.TaskRef{}, err
	}
	ref, ok := st.FindTask(id, name)
	if !ok {
		return fsm.TaskRef{}, taskNotFound(st, id, name)
	}
	return ref, nil
}

// findTaskOrArray finds a task, or the first task of an array.
func (s *Server) findTaskOrArray(id fsm.JobID, name string) (ref fsm.TaskRef, isArray bool, err error) {
	st, _ := s.cfg.Machine.Fork()
	if ref, isArray = st.FindArray(id, name); isArray {
		return ref, true, nil
	}
	ref, err = s.findTask(id, name)
	return ref, false, err
}

// taskNotFound is the error for an unknown task id, with what the user may have meant.
func taskNotFound(st *fsm.State, id fsm.JobID, name string) error {
	for _, a := range st.Arrays(id) {
		tasks := func(first, last uint32) string {
			from, to := st.Name(fsm.TaskRef{Job: id, Index: a.First + first}), st.Name(fsm.TaskRef{Job: id, Index: a.First + last})
			if from == to {
				return from
			}
			return from + " to " + to
		}
		switch k, end, ok := a.Covering(name); {
		case name == a.Name:
			return notFound("task %s of job %d is an array; name one of its tasks: %s", quote(name), id, tasks(0, a.Count-1))
		case ok && k < end:
			return notFound("task %s of job %d not found: its items belong to %s", quote(name), id, tasks(k, end-1))
		case ok:
			return notFound("task %s of job %d not found: array %s has %s", quote(name), id, quote(a.Name), tasks(0, a.Count-1))
		}
	}
	return notFound("task %s of job %d not found", quote(name), id)
}

// describeTask names a task in a message.
func describeTask(st *fsm.State, ref fsm.TaskRef) string {
	return fmt.Sprintf("task %s of job %d", quote(st.Name(ref)), ref.Job)
}

// quote quotes text of a request for a message.
func quote(text string) string {
	const limit = 80
	if len(text) > limit {
		return strconv.Quote(text[:limit]) + "…"
	}
	return strconv.Quote(text)
}
