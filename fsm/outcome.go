package fsm

import "fmt"

// settle readies the cleanup tasks of a job if all ordinary tasks have ended,
// and ends the job if all tasks have.
func (s *State) settle(j *job, fx *Effects) {
	if j.state.Terminal() || j.openOrdinary() > 0 {
		return
	}
	if j.outcome == 0 {
		as, why := j.ordinaryOutcome()
		if j.err == "" {
			j.err = why
		}
		s.decideOutcome(j, as, fx)
	}
	if j.open() > 0 {
		return
	}
	as := j.outcome
	switch {
	case as != JobCompleted: // cleanup tasks do not change it
	case failedOf(&j.cleanupCounts) > 0:
		as = JobFailed
	case j.cleanupCounts[Cancelled] > 0 && j.hasCancelled(j.ordinary, j.total, func(c cancelCause) bool { return c != causeSkipped }):
		as = JobCancelled
	}
	s.closeJob(j, as, fx)
}

// ordinaryOutcome returns the outcome of the ordinary tasks, which have all
// ended, and the reason if it is that a task was cancelled.
func (j *job) ordinaryOutcome() (as JobState, why string) {
	switch {
	case !j.toleratesFailures():
		return JobFailed, ""
	case j.counts[Cancelled] == j.cleanupCounts[Cancelled]:
		return JobCompleted, ""
	case j.hasCancelled(0, j.ordinary, func(c cancelCause) bool { return c == causeUser }):
		return JobCancelled, ""
	}
	covered := j.coveredUnits()
	for i := range j.ordinary {
		if r := j.records.at(i); r.state != Cancelled || r.cause == causeSkipped || len(covered) > 0 && covered[j.unit(i)] {
			continue
		}
		if j.failedOrdinary() == 0 { // a user cancelled a task that was revived since
			return JobCancelled, ""
		}
		return JobFailed, fmt.Sprintf("task %s cancelled: %s", j.name(i), j.endReason(i))
	}
	return JobCompleted, ""
}

// hasCancelled reports whether one of the tasks from first to, excluding, end
// was cancelled for such a cause.
func (j *job) hasCancelled(first, end uint32, is func(cancelCause) bool) bool {
	for i := first; i < end; i++ {
		if r := j.records.at(i); r.state == Cancelled && is(r.cause) {
			return true
		}
	}
	return false
}

// coveredUnits returns the units of which a failure is expected: another unit
// depends on their end, however they end, or on a unit that is covered. nil if
// the job has no conditions.
func (j *job) coveredUnits() []bool {
	if !j.hasConditions() {
		return nil
	}
	covered := make([]bool, len(j.succ.from))
	for i := j.total; i > 0; {
		i = j.head(i - 1)
		unit, next := j.unit(i), j.dependents(i)
		for k, head := range next.heads {
			when := next.condition(k)
			covered[unit] = covered[unit] || when == WhenEnded || when == WhenTolerated || covered[j.unit(head)]
		}
	}
	return covered
}

// coveredFailures is the text for a completed job of which tasks were cancelled
// because of failures that the job tolerates, or all because it is not needed;
// empty without any.
func (j *job) coveredFailures() string {
	if j.counts[Cancelled] == 0 {
		return ""
	}
	for k := range j.needEnds {
		if j.needFate(k) == needless {
			return j.needlessWhy(k)
		}
	}
	first, n := j.total, 0
	for i := range j.ordinary {
		if r := j.records.at(i); r.state == Cancelled && r.cause != causeSkipped {
			first, n = min(first, i), n+1
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("task %s cancelled: %s", j.name(first), j.endReason(first))
	}
	return fmt.Sprintf("%d tasks cancelled, the first: task %s: %s", n, j.name(first), j.endReason(first))
}

// decideOutcome sets the outcome of the ordinary tasks, which have all ended,
// and readies the cleanup tasks without open dependencies.
func (s *State) decideOutcome(j *job, as JobState, fx *Effects) {
	j.outcome = as
	s.mixJob(j)
	for i := j.ordinary; i < j.total; i++ {
		if r := j.records.at(i); r.state == Blocked && r.pending == 0 {
			s.mixRecord(s.makeReady(j, i, fx))
		}
	}
}

func (s *State) closeJob(j *job, as JobState, fx *Effects) {
	if as == JobCompleted {
		j.err = j.coveredFailures()
	}
	j.state, j.ended, j.stateChanged = as, s.now, s.own.at
	s.mixJob(j)
	s.countJob(as)
	s.leaveKey(j)
	fx.endedJob(j.id)
	s.jobEvent(JobEndedEvent, j)
	s.notifyEnd(j, fx)
	if len(j.neededBy) > 0 {
		s.jobEnded(j.id, fx)
	}
}
