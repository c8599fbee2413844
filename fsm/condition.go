package fsm

import (
	"fmt"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Condition is how a dependency must end before its dependent may run. A
// dependency is a unit: a listed task or a whole array.
type Condition uint8

// Conditions of a dependency.
const (
	WhenCompleted Condition = iota // all of its tasks completed
	WhenEnded                      // all of them ended, however
	WhenTolerated                  // all of them ended, at most JobHeader.max_failures of them without completing
	WhenFailed                     // all of them ended, one of them without completing
	numConditions
)

// Conditions returns the conditions of a task's dependencies as users sent
// them. They have been checked. It returns nil if all are WhenCompleted.
func Conditions(list []dtaskv1.Condition) (out []Condition) {
	for k, c := range list {
		if c <= dtaskv1.Condition_CONDITION_COMPLETED {
			continue
		}
		if out == nil {
			out = make([]Condition, len(list))
		}
		out[k] = Condition(c - dtaskv1.Condition_CONDITION_COMPLETED) //nolint:gosec // checked before
	}
	return out
}

// ProtoConditions is the inverse of Conditions.
func ProtoConditions(list []Condition) (out []dtaskv1.Condition) {
	for _, c := range list {
		out = append(out, dtaskv1.Condition_CONDITION_COMPLETED+dtaskv1.Condition(c))
	}
	return out
}

// unitCount counts the tasks of a unit by how they ended.
type unitCount struct {
	open    uint32 // have not ended
	failed  uint32 // failed, died, got lost, or were cancelled other than as skipped
	skipped uint32 // were not needed: a dependency of theirs ended such that they must not run
}

// uncompleted is the number of tasks that have not completed.
func (c *unitCount) uncompleted() uint32 { return c.open + c.failed + c.skipped }

// text describes the count for an error.
func (c *unitCount) text() string {
	return fmt.Sprintf("tasks %d open, %d failed, %d skipped", c.open, c.failed, c.skipped)
}

// of returns the number that a task in a state counts in; nil if it completed.
func (c *unitCount) of(state TaskState, cause cancelCause) *uint32 {
	switch {
	case state == Completed:
		return nil
	case !state.Terminal():
		return &c.open
	case state == Cancelled && cause == causeSkipped:
		return &c.skipped
	}
	return &c.failed
}

// move counts n tasks in another state.
func (c *unitCount) move(from, to *uint32, n uint32) {
	if from != nil {
		*from -= n
	}
	if to != nil {
		*to += n
	}
}

// cancelCause is why a task was cancelled.
type cancelCause uint8

const (
	causeOther   cancelCause = iota // because of a failure, a deadline, or another cancelled task
	causeUser                       // a user cancelled the task itself
	causeSkipped                    // it was not needed
	numCancelCauses
)

// fate is what a dependency means for its dependents. Until a task of the unit
// is revived, it changes once: from waits to one of the others.
type fate uint8

const (
	waits      fate = iota
	holds           // the condition holds
	impossible      // it will not hold, because of a failure
	needless        // it will not hold, and nothing failed
	numFates
)

// fate returns what a unit means for its dependents. most is the number of
// failures that a job tolerates.
func (c Condition) fate(u unitCount, most uint32) fate {
	if c == WhenCompleted {
		most = 0
	}
	needed := c == WhenCompleted || c == WhenTolerated // its results are
	switch {
	case needed && u.failed > most:
		return impossible
	case needed && u.skipped > 0:
		return needless
	case u.open > 0:
		return waits
	case c == WhenFailed && u.failed == 0:
		return needless
	}
	return holds
}

// unitCount counts the tasks of the unit of a task.
func (j *job) unitCount(i uint32) unitCount {
	if at, within := j.arrayAt(i); within {
		return j.ends[at]
	}
	var c unitCount
	r := j.records.at(i)
	c.move(nil, c.of(r.state, r.cause), 1)
	return c
}

// tolerance is how many tasks of a unit may fail so that WhenTolerated holds.
// Failures of cleanup tasks are not tolerated.
func (j *job) tolerance(i uint32) uint32 {
	if j.isCleanup(i) {
		return 0
	}
	return j.toleratedFailures()
}

// fateOf returns what a dependency means for its dependents.
func (j *job) fateOf(dep uint32, c Condition) fate {
	return c.fate(j.unitCount(dep), j.tolerance(dep))
}

// hasConditions reports whether a dependency of a sealed job has a condition
// other than WhenCompleted.
func (j *job) hasConditions() bool { return j.succ != nil && j.succ.conditions != nil }

// outlivesStop reports whether a task may start although its job stops after a
// failure: it depends, directly or through others, on how another task ends.
func (j *job) outlivesStop(i uint32) bool { return j.hasConditions() && j.succ.outlive[j.unit(i)] }

// endedWhy is why a dependent does not run, by what the dependency means for
// it. i is a task of the dependency that ended.
func (j *job) endedWhy(i uint32, c Condition, f fate) string {
	switch {
	case f == needless && c == WhenFailed:
		return fmt.Sprintf("skipped: dependency %s did not fail", j.unitName(i))
	case f == needless:
		return fmt.Sprintf("skipped: dependency %s was skipped", j.unitName(i))
	case c == WhenTolerated && j.tolerance(i) > 0:
		return fmt.Sprintf("dependency %s has more than %d failed tasks", j.unitName(i), j.tolerance(i))
	}
	return dependencyFailed(j.name(i))
}

// unitName is the id of a listed task or of an array.
func (j *job) unitName(i uint32) string {
	if a, _, ok := j.arrayOf(i); ok {
		return a.Name
	}
	return j.name(i)
}
