package check

import (
	"slices"

	"github.com/dtask/dtask/test/chaos/history"
)

// endedCodes are the reasons for the end of a task, by its state: docs/explain.md lists them.
var endedCodes = map[string][]string{
	"completed":  {"completed", "result_reused"},
	"aggregated": {"completed", "result_reused"},
	"failed":     {"failed"},
	"cancelled":  {"cancelled", "first_cause"},
	"dead":       {"retries_exhausted"},
	"lost":       {"outcome_unknown"},
}

// answers checks explanations and plans. Both have no effect, so that none has an unknown outcome:
// each one answers, or the cluster was not available.
func (a *account) answers() {
	for i := range a.calls {
		c := &a.calls[i]
		if c.Kind != history.Explain && c.Kind != history.Plan {
			continue
		}
		where := place{c.Job, c.Task}.String()
		if c.Kind == history.Plan {
			where = "plan of " + c.Key
		}
		switch {
		case c.Error == "" && c.Verdict != history.OK: // the suite ended during the call
		case c.Verdict != history.OK && (c.Verdict != history.Fail || c.Reason != history.Unavailable):
			a.faults.add(Wrong, where, "the %s ended as %s (%s): %s", c.Kind, c.Verdict, c.Reason, c.Error)
		case c.Verdict != history.OK:
		case c.Kind == history.Plan && (c.Plan != c.Want || c.Plan == ""):
			a.faults.add(Wrong, where, "planned as %q, want %q", c.Plan, c.Want)
		case c.Kind == history.Explain:
			a.explanation(where, c)
		}
	}
}

// explanation checks one that was given: it is about the task, its reasons fit its state, and a
// state in which a task has ended is its last one. After everything has ended, nothing waits.
func (a *account) explanation(where string, c *history.Call) {
	final := a.finalTask(c)
	codes, ended := endedCodes[c.State]
	isEnd := func(code string) bool {
		for _, list := range endedCodes {
			if slices.Contains(list, code) {
				return true
			}
		}
		return false
	}
	switch {
	case c.Answered != where:
		a.faults.add(Wrong, where, "its explanation is about %s", c.Answered)
	case final == nil:
		a.faults.add(Wrong, where, "it is explained (%s), and does not exist", c.State)
	case len(c.Codes) == 0:
		a.faults.add(Wrong, where, "the explanation of its state %s has no reason", c.State)
	case ended && !slices.Contains(codes, c.Codes[0]), !ended && slices.ContainsFunc(c.Codes, isEnd):
		a.faults.add(Wrong, where, "its state %s is explained by %v", c.State, c.Codes)
	case (ended || c.Settled) && !final.isIn(c.State):
		a.faults.add(Wrong, where, "explained as %s, and its last state is %s", c.State, final.State)
	}
}

// isIn reports whether a task is in a state. A completed one may be shown as aggregated later.
func (t FinalTask) isIn(state string) bool {
	return t.State == state || t.completed() && FinalTask{State: state}.completed()
}

// finalTask returns the task of a call at the end; nil if it is missing.
func (a *account) finalTask(c *history.Call) *FinalTask {
	f := a.finals[c.Job]
	if f == nil {
		return nil
	}
	if i := slices.IndexFunc(f.Tasks, func(t FinalTask) bool { return t.ID == c.Task }); i >= 0 {
		return &f.Tasks[i]
	}
	return nil
}

// Answers counts the explanations and plans that the cluster gave.
type Answers struct{ Explained, Planned, Unavailable int }

// CountAnswers counts them.
func CountAnswers(r Record) (n Answers) {
	for i := range r.Calls {
		c := &r.Calls[i]
		switch {
		case c.Kind != history.Explain && c.Kind != history.Plan:
		case c.Verdict != history.OK:
			n.Unavailable++
		case c.Kind == history.Plan:
			n.Planned++
		default:
			n.Explained++
		}
	}
	return n
}
