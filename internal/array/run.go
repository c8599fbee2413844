package array

import (
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Run has the values of the expressions about the run of a schedule that a job is. Those
// that it does not have are empty.
type Run struct {
	At       string // the tick, RFC 3339 in UTC
	Previous string // the tick of the run before it, RFC 3339 in UTC
	Date     string // of the tick in the schedule's time zone, YYYY-MM-DD
}

// RunOf returns the values for the tasks of a run, which has its date; nil if the job is not
// the run of a schedule.
func RunOf(r *dtaskv1.ScheduledRun) *Run {
	if r == nil {
		return nil
	}
	return &Run{At: instant(r.GetTickMs()), Previous: instant(r.GetPreviousMs()), Date: r.GetDate()}
}

// instant returns a Unix time in milliseconds as text; empty for 0.
func instant(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(time.RFC3339)
}

// ofRun reports whether an expression is about the run of a schedule.
func ofRun(expression string) bool {
	_, ok := (&Run{}).value(expression)
	return ok
}

// value returns the value of an expression, if the expression is about a run.
func (r *Run) value(expression string) (value string, ok bool) {
	switch expression {
	case "scheduled.at":
		return r.At, true
	case "scheduled.previous":
		return r.Previous, true
	case "scheduled.date":
		return r.Date, true
	}
	return "", false
}
