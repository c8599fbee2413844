package api

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/statetext"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// resolveNeeds records in a header how the needed jobs that are in the history ended: the
// state machine no longer has them. It returns an error if a job is unknown, or if the
// caller must not know of it. Package spec reports needs that are invalid.
func (s *Server) resolveNeeds(p *auth.Principal, h *dtaskv1.JobHeader) error {
	if len(h.GetNeeds()) > spec.MaxNeeds {
		return nil
	}
	for _, n := range h.GetNeeds() {
		id := fsm.JobID(n.GetJob())
		known, foreign := id == 0, false // 0 is invalid
		s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
			_, _, inState := st.Progress(id)
			known = known || inState
			foreign = inState && isForeign(st, p, id)
		})
		if foreign {
			return s.missingJob(id)
		}
		if known {
			continue
		}
		switch head, ok, err := s.archivedJob(id); {
		case err != nil:
			return err
		case !ok || !sees(p, head.Header):
			return s.missingJob(id)
		default:
			n.EndedAs = fsm.ProtoJobState(head.State)
		}
	}
	return nil
}

// showNeeds adds how the jobs that a job needs have ended. The list is the header's,
// which must not be changed.
func showNeeds(shown *dtaskv1.Job, j *fsm.Job) {
	if len(j.NeedEnds) == 0 {
		return
	}
	shown.Needs, shown.Waiting = slices.Clone(shown.GetNeeds()), j.Waiting
	for k, end := range j.NeedEnds {
		n := proto.CloneOf(shown.GetNeeds()[k])
		n.EndedAs = dtaskv1.JobState_JOB_STATE_UNSPECIFIED
		if end != 0 {
			n.EndedAs = fsm.ProtoJobState(end)
		}
		shown.Needs[k] = n
	}
}

// explainUnmetNeed explains the rejection of a retry by the current state. It returns the
// rejection itself if the needed jobs have changed since.
func (j *jobs) explainUnmetNeed(id fsm.JobID, rejection error) error {
	st, _ := j.cfg.Machine.Fork()
	need, end, found := st.UnmetNeed(id)
	ended := statetext.Predicate(end.String())
	switch _, inState := st.Job(need); {
	case !found:
		return rejection
	case end == fsm.JobCompleted:
		return conflict("job %d runs only if job %d fails, but that job %s", id, need, ended)
	case !inState:
		return conflict("job %d needs job %d, which %s and is archived: submit both again", id, need, ended)
	}
	return conflict("job %d needs job %d, which %s: retry that one first", id, need, ended)
}

// errNeedArchived is returned for a job that was submitted while one that it needs left the
// state. When the client retries, that one is found in the history.
var errNeedArchived = &Error{Kind: KindBusy, Message: "a needed job was being archived", RetryAfter: retryAfter}
