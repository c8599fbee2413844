package worker

import (
	"errors"
	"fmt"

	"github.com/dtask/dtask/internal/array"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

var errNoRun = errors.New("the task has an expression of the run of a schedule, but its job is not one")

// scheduledRun returns what the expressions of a body about the run of a schedule stand for;
// nil if it has none. Only coordinators have time zones. One that lacks that of the schedule
// sends no date, and another one may have it.
func (a *attempt) scheduledRun(body *dtaskv1.TaskBody) (*array.Run, error) {
	if !body.GetScheduled() {
		return nil, nil //nolint:nilnil // it needs none
	}
	switch run := a.jobContext.GetRun(); {
	case run == nil:
		return nil, errNoRun
	case run.GetTickMs() != 0 && run.GetDate() == "":
		return nil, fmt.Errorf("the leader does not know the time zone %q of the schedule: run the same version of dtaskd on all coordinators", run.GetTimezone())
	default:
		return array.RunOf(run), nil
	}
}
