package sequencer_test

import (
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ended is the outcome of an attempt in the worker's outbox.
type ended struct {
	at     fsm.AttemptRef
	how    *dtaskv1.Outcome
	tookMS uint32
}

// outcomesOf returns the message for ended attempts, numbered from first. The
// worker may send them again, so the message shares no memory with them.
func outcomesOf(first uint64, list ...ended) *dtaskv1.Outcomes {
	m := columns.NewOutcomes(first, len(list))
	for _, e := range list {
		row := columns.Outcome{Job: uint64(e.at.Job), Task: e.at.Index, Attempt: e.at.Attempt, TookMS: e.tookMS}
		if e.how.GetKind() == dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED && len(e.how.GetOutputSha256()) == 0 {
			row.Result = e.how.GetResult()
		} else {
			row.Detail = proto.CloneOf(e.how)
		}
		columns.AddOutcome(m, &row)
	}
	return m
}
