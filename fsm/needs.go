package fsm

import (
	"fmt"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ProtoJobState returns a state in the form of the protocol.
func ProtoJobState(s JobState) dtaskv1.JobState { return protoJobStates[s] }

var protoJobStates = [numJobStates]dtaskv1.JobState{
	JobPending:   dtaskv1.JobState_JOB_STATE_PENDING,
	JobRunning:   dtaskv1.JobState_JOB_STATE_RUNNING,
	JobCompleted: dtaskv1.JobState_JOB_STATE_COMPLETED,
	JobFailed:    dtaskv1.JobState_JOB_STATE_FAILED,
	JobCancelled: dtaskv1.JobState_JOB_STATE_CANCELLED,
}

// endedAs returns how a needed job had ended according to a header; 0 if the
// header does not have it.
func endedAs(n *dtaskv1.JobNeed) JobState {
	for s := JobCompleted; s < numJobStates; s++ {
		if protoJobStates[s] == n.GetEndedAs() {
			return s
		}
	}
	return 0
}

// needs is the number of jobs that a job needs.
func (j *job) needs() int { return len(j.header.GetNeeds()) }

// needFate is what a needed job means for a job that needs it.
func (j *job) needFate(k int) fate { return needFate(j.header.GetNeeds()[k], j.needEnds[k]) }

// needFate is what the end of a needed job means; 0 = it has not ended.
func needFate(n *dtaskv1.JobNeed, end JobState) fate {
	switch c := n.GetCondition(); {
	case end == 0:
		return waits
	case c == dtaskv1.Condition_CONDITION_ENDED:
		return holds
	case (c == dtaskv1.Condition_CONDITION_FAILED) == (end != JobCompleted):
		return holds
	case c == dtaskv1.Condition_CONDITION_FAILED:
		return needless
	}
	return impossible
}

// waiting reports whether none of the tasks of a job may be ready because not
// all jobs that it needs have ended as required. It may have started: cleanup
// tasks of a job that a user cancelled do not wait.
func (j *job) waiting() bool {
	if j.needEnds == nil || j.outcome != 0 {
		return false
	}
	for k := range j.needEnds {
		if j.needFate(k) != holds {
			return true
		}
	}
	return false
}

// closed reports whether a task waits for more than its dependencies: a cleanup
// task for the end of all ordinary tasks, an ordinary one for other jobs or the gate.
func (j *job) closed(i uint32) bool {
	if j.isCleanup(i) {
		return j.outcome == 0
	}
	return j.waiting() || j.gated()
}

// checkNeeds reports whether the needs of a header may be those of a job.
func checkNeeds(h *dtaskv1.JobHeader, id JobID) bool {
	for _, n := range h.GetNeeds() {
		c := n.GetCondition()
		if n.GetJob() == 0 || n.GetJob() >= uint64(id) || c > dtaskv1.Condition_CONDITION_FAILED || c == dtaskv1.Condition_CONDITION_TOLERATED {
			return false
		}
		if n.GetEndedAs() != 0 && endedAs(n) == 0 {
			return false
		}
	}
	return true
}

// needsNow returns how the jobs that a job needs have ended; nil if it needs
// none. ok is false if one is unknown and its end is not in the header.
func (s *State) needsNow(j *job) (ends []JobState, ok bool) {
	if j.needs() == 0 {
		return nil, true
	}
	ends = make([]JobState, j.needs())
	for k, n := range j.header.GetNeeds() {
		x := s.sealedJob(JobID(n.GetJob()))
		switch {
		case x != nil && x.state.Terminal():
			ends[k] = x.state
		case x == nil && endedAs(n) == 0:
			return nil, false
		case x == nil:
			ends[k] = endedAs(n)
		}
	}
	return ends, true
}

// addNeeds makes a job wait for the jobs that it needs. If they have ended, it
// starts or ends the job immediately.
func (s *State) addNeeds(j *job, ends []JobState, fx *Effects) {
	j.needEnds = ends
	for k, n := range j.header.GetNeeds() {
		if j.needFate(k) == holds {
			continue
		}
		if x := s.jobs.writeUnseen(s.own, JobID(n.GetJob())); x != nil {
			x.neededBy = append(x.neededBy, j.id)
		}
	}
	s.mixNeeds(j)
	s.decideNeeds(j, fx)
}

// renewNeeds returns, for a revival, how the jobs that a job needs have ended by
// now. Needs that were met once stay met. unmet is the first need because of
// which the job still can't run; negative without one.
func (s *State) renewNeeds(j *job) (ends []JobState, unmet int) {
	if j.needEnds == nil {
		return nil, -1
	}
	ends = slices.Clone(j.needEnds)
	for k, n := range j.header.GetNeeds() {
		if j.needFate(k) == holds {
			continue
		}
		x := s.sealedJob(JobID(n.GetJob()))
		switch {
		case x != nil && x.state.Terminal():
			ends[k] = x.state
		case x != nil:
			ends[k] = 0
			continue
		}
		if needFate(n, ends[k]) != holds {
			return ends, k
		}
	}
	return ends, -1
}

// UnmetNeed returns the first job because of whose end a job can't be revived,
// and how it ended.
func (s *State) UnmetNeed(id JobID) (need JobID, end JobState, found bool) {
	j := s.sealedJob(id)
	if j == nil {
		return 0, 0, false
	}
	ends, unmet := s.renewNeeds(j)
	if unmet < 0 {
		return 0, 0, false
	}
	return JobID(j.header.GetNeeds()[unmet].GetJob()), ends[unmet], true
}

// jobEnded starts or ends the jobs that need a job that has ended. If they end
// as well, the jobs that need them follow, at any distance: in a loop, because a
// chain of jobs may be too long for a recursion.
func (s *State) jobEnded(id JobID, fx *Effects) {
	s.endedJobs = append(s.endedJobs, id)
	if len(s.endedJobs) > 1 {
		return // the loop of an outer call continues with it
	}
	for k := 0; k < len(s.endedJobs); k++ {
		x := s.jobs.write(s.own, s.endedJobs[k])
		ids := slices.Clone(x.neededBy)
		slices.Sort(ids)
		ids = slices.Compact(ids)
		x.neededBy = nil
		for _, id := range ids {
			if s.needEnded(id, x, fx) {
				x.neededBy = append(x.neededBy, id)
			}
		}
	}
	s.endedJobs = nil
}

// needEnded records in a job how another one has ended. It reports whether the
// job still depends on that one: if that one is revived, its next end counts.
func (s *State) needEnded(id JobID, x *job, fx *Effects) (again bool) {
	j := s.sealedJob(id)
	if j == nil || !j.asks(x.id) {
		return false
	}
	j = s.jobs.write(s.own, id)
	j.needEnds = slices.Clone(j.needEnds)
	for k, n := range j.header.GetNeeds() {
		if JobID(n.GetJob()) == x.id && j.needFate(k) != holds {
			j.needEnds[k] = x.state
		}
	}
	again = j.asks(x.id)
	s.mixNeeds(j)
	if j.outcome == 0 {
		s.decideNeeds(j, fx)
		s.mixJob(j)
	}
	return again
}

// decideNeeds readies a job, unless its gate is closed, if all jobs that it needs have
// ended as required, and ends it if one of them has ended otherwise.
func (s *State) decideNeeds(j *job, fx *Effects) {
	var found [numFates]bool
	at := [numFates]int{}
	for k := range j.needEnds {
		if f := j.needFate(k); !found[f] {
			found[f], at[f] = true, k
		}
	}
	switch {
	case found[impossible]:
		s.endUnstarted(j, JobFailed, j.needWhy(at[impossible]), causeOther, fx)
	case found[needless]:
		s.endUnstarted(j, JobCompleted, j.needlessWhy(at[needless]), causeSkipped, fx)
	case !found[waits]:
		s.enter(j, fx)
	}
}

// asks reports whether a job needs another one, and that one has not ended as
// required.
func (j *job) asks(id JobID) bool {
	for k, n := range j.header.GetNeeds() {
		if JobID(n.GetJob()) == id && j.needFate(k) != holds {
			return true
		}
	}
	return false
}

// needWhy is why a job does not run because of another one.
func (j *job) needWhy(k int) string {
	return fmt.Sprintf("needed job %d %s", j.header.GetNeeds()[k].GetJob(), endedText[j.needEnds[k]])
}

// needlessWhy is why a job is not needed.
func (j *job) needlessWhy(k int) string { return "skipped: " + j.needWhy(k) }

var endedText = [numJobStates]string{JobCompleted: "completed", JobFailed: "failed", JobCancelled: "was cancelled"}

// endUnstarted ends a job of which no task has started, with its cleanup tasks:
// there is nothing to clean up.
func (s *State) endUnstarted(j *job, as JobState, why string, cause cancelCause, fx *Effects) {
	s.mixJob(j)
	s.cancelAll(j, j.total, func(i uint32, _ *record) { s.cancelTask(j, i, why, cause) }, fx)
	j.stopping, j.err = true, why
	s.decideOutcome(j, as, fx)
	s.settle(j, fx)
}

// readyFirst readies the ordinary tasks of a job that have no open
// dependencies.
func (s *State) readyFirst(j *job, fx *Effects) {
	if j.updates != nil { // some of them may have a start time
		for i := range j.ordinary {
			if r := j.records.at(i); r.state == Blocked && r.pending == 0 {
				s.mixRecord(s.makeReady(j, i, fx))
			}
		}
		return
	}
	j.records.writeRun(s.own, 0, j.ordinary, func(r *record) bool {
		if r.pending > 0 || r.state != Blocked {
			return false
		}
		r.state, r.ended = Pending, 0
		return true
	}, func(first, n uint32) {
		j.counts[Blocked] -= n
		j.counts[Pending] += n
		fx.readyRun(TaskRef{j.id, first}, n)
	})
}

// mixNeeds adds how needed jobs have ended to the digest.
func (s *State) mixNeeds(j *job) {
	s.mix(uint64(j.id))
	for _, end := range j.needEnds {
		s.mix(uint64(end))
	}
}

// restoreNeeds finds the jobs that need others, in a state that was read from a
// snapshot.
func (s *State) restoreNeeds() {
	for j := range s.jobs.all() {
		for k := range j.needEnds {
			x := s.jobs.get(JobID(j.header.GetNeeds()[k].GetJob()))
			if x != nil && j.needFate(k) != holds {
				x.neededBy = append(x.neededBy, j.id)
			}
		}
	}
}

// checkNeeds checks that a job has an entry for each job that it needs, and that
// it has ended if one of them did not end as required.
func (j *job) checkNeeds() error {
	want := j.needs()
	if j.state == JobUploading {
		want = 0
	}
	if len(j.needEnds) != want {
		return fmt.Errorf("has the ends of %d needed jobs, want %d", len(j.needEnds), want)
	}
	waiting := j.waiting()
	for k, end := range j.needEnds {
		if end != 0 && !end.Terminal() {
			return fmt.Errorf("needed job %d ended as %v", j.header.GetNeeds()[k].GetJob(), end)
		}
		if f := j.needFate(k); waiting && f != holds && f != waits {
			return fmt.Errorf("waits although %s", j.needWhy(k))
		}
	}
	return nil
}

// checkNeeded checks that a job waits only for jobs that are open, and that it is
// listed in the jobs whose end may change its needs.
func (s *State) checkNeeded(j *job) error {
	for k := range j.needEnds {
		if j.needFate(k) == holds {
			continue
		}
		x := s.sealedJob(JobID(j.header.GetNeeds()[k].GetJob()))
		switch {
		case j.waiting() && (x == nil || x.state.Terminal()):
			return fmt.Errorf("waits for job %d, which is not open", j.header.GetNeeds()[k].GetJob())
		case x != nil && !slices.Contains(x.neededBy, j.id):
			return fmt.Errorf("needs job %d, which does not list it", x.id)
		}
	}
	return nil
}

// needEnds codes how needed jobs have ended, as the last field of a frame: jobs
// without needs don't have it, as in earlier builds. more means that another field
// follows.
func (c *coder) needEnds(ends *[]JobState, more bool) {
	if more || len(*ends) > 0 || c.d != nil && len(c.d.b) > 0 {
		list(c, ends, func(end *JobState) { number(c, end) })
	}
}
