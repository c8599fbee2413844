package worker

import (
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// reportedOutcome is an outcome as a worker reported it, with the result and kind also
// for an attempt that just succeeded.
type reportedOutcome struct {
	*dtaskv1.Outcome
	attempt *dtaskv1.AttemptRef
	tookMS  uint32
}

func (o reportedOutcome) GetAttempt() *dtaskv1.AttemptRef { return o.attempt }

// outcomesIn returns the outcomes in a message, by number.
func outcomesIn(m *dtaskv1.SessionRequest) map[uint64]reportedOutcome {
	rows, err := columns.ReadOutcomes(m.GetReports().GetOutcomes())
	if err != nil {
		panic(err)
	}
	list := make(map[uint64]reportedOutcome)
	for rows.Left() > 0 {
		row := rows.Next()
		o := reportedOutcome{row.Detail, &dtaskv1.AttemptRef{Job: row.Job, Task: row.Task, Attempt: row.Attempt}, row.TookMS}
		if o.Outcome == nil {
			o.Outcome = &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, Result: row.Result}
		}
		list[row.Number] = o
	}
	return list
}
