package worker

import (
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A told is an outcome as a worker told it: one that just succeeded has its
// result and kind here as any other.
type told struct {
	*dtaskv1.Outcome
	attempt *dtaskv1.AttemptRef
	tookMS  uint32
}

func (o told) GetAttempt() *dtaskv1.AttemptRef { return o.attempt }

// outcomesIn are the outcomes in a message, by number.
func outcomesIn(m *dtaskv1.SessionRequest) map[uint64]told {
	rows, err := columns.ReadOutcomes(m.GetReports().GetOutcomes())
	if err != nil {
		panic(err)
	}
	list := make(map[uint64]told)
	for rows.Left() > 0 {
		row := rows.Next()
		o := told{row.Detail, &dtaskv1.AttemptRef{Job: row.Job, Task: row.Task, Attempt: row.Attempt}, row.TookMS}
		if o.Outcome == nil {
			o.Outcome = &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, Result: row.Result}
		}
		list[row.Number] = o
	}
	return list
}
