package fsm

// CancelJob ends all ordinary tasks of a job.
type CancelJob struct {
	Job            JobID
	Reason         string
	IncludeCleanup bool // ends its cleanup tasks, too
}

func (*CancelJob) kind() opKind { return 16 }

func (o *CancelJob) fields(c *coder) {
	number(c, &o.Job)
	c.str(&o.Reason)
	c.bool(&o.IncludeCleanup)
}

// apply ends all ordinary tasks of a job. The job ends as cancelled when its
// cleanup tasks have ended. With IncludeCleanup these are ended as well, even
// if they run; a job that had failed by then stays failed.
// Rejects: JobNotFound, Malformed; AlreadyEnded if the job has ended or,
// without IncludeCleanup, if only cleanup tasks remain.
func (o *CancelJob) apply(s *State, fx *Effects) Reason {
	return s.endJob(o.Job, JobCancelled, o.Reason, o.IncludeCleanup, fx)
}

// FailJob ends a job as failed because its deadline has passed.
type FailJob struct {
	Job   JobID
	Error string
}

func (*FailJob) kind() opKind { return 18 }

func (o *FailJob) fields(c *coder) {
	number(c, &o.Job)
	c.str(&o.Error)
}

// apply ends all ordinary tasks of a job as cancelled. The job ends as failed
// when its cleanup tasks have ended.
// Rejects: as CancelJob without IncludeCleanup.
func (o *FailJob) apply(s *State, fx *Effects) Reason {
	return s.endJob(o.Job, JobFailed, o.Error, false, fx)
}

func (s *State) endJob(id JobID, as JobState, why string, includeCleanup bool, fx *Effects) Reason {
	j := s.sealedJob(id)
	switch {
	case j == nil:
		return JobNotFound
	case j.state.Terminal() || j.outcome != 0 && !includeCleanup:
		return AlreadyEnded
	case tooLong(why):
		return Malformed
	}
	j = s.jobs.write(s.own, id)
	s.mixJob(j)
	end := j.ordinary
	if includeCleanup {
		end = j.total
	}
	s.cancelAll(j, end, func(i uint32, _ *record) { s.cancelOpenTask(j, i, why, causeOther, fx) }, fx)
	if j.outcome == 0 {
		j.stopping, j.err = true, why
		s.decideOutcome(j, as, fx)
	} else if j.outcome == JobCompleted && failedOf(&j.cleanupCounts) == 0 {
		j.err = why
	}
	s.settle(j, fx)
	return Accepted
}

// cancelOpenTask cancels a task that has not ended, with its live attempt.
func (s *State) cancelOpenTask(j *job, i uint32, why string, cause cancelCause, fx *Effects) {
	if r := j.records.at(i); r.state == Assigned {
		fx.endedAttempt(HeldAttempt{AttemptRef{TaskRef{j.id, i}, r.attempt}, r.worker})
	}
	s.cancelTask(j, i, why, cause)
}

// CancelTask ends one task or an array, and all tasks that depend on it.
type CancelTask struct {
	Task       TaskRef
	Reason     string
	WholeArray bool // all tasks of the task's array
}

func (*CancelTask) kind() opKind { return 17 }

func (o *CancelTask) fields(c *coder) {
	c.task(&o.Task)
	c.str(&o.Reason)
	c.bool(&o.WholeArray)
}

// apply ends one task, or the open tasks of its array, and all that depend on
// it.
// Rejects: JobNotFound; TaskNotFound, also for WholeArray of a task without
// array; AlreadyEnded, Malformed.
func (o *CancelTask) apply(s *State, fx *Effects) Reason {
	j := s.sealedJob(o.Task.Job)
	switch {
	case j == nil:
		return JobNotFound
	case o.Task.Index >= j.total:
		return TaskNotFound
	}
	first, n := o.Task.Index, uint32(1)
	if o.WholeArray {
		if _, within := j.arrayAt(first); !within {
			return TaskNotFound
		}
		first = j.head(first)
		n = j.span(first)
	}
	open := first
	for open < first+n && j.records.at(open).state.Terminal() {
		open++
	}
	switch {
	case open == first+n:
		return AlreadyEnded
	case tooLong(o.Reason):
		return Malformed
	}
	j = s.jobs.write(s.own, j.id)
	ended := endedRun{task: open}
	for i := open; i < first+n; i++ {
		if !j.records.at(i).state.Terminal() {
			s.cancelOpenTask(j, i, o.Reason, causeUser, fx)
			ended.n++
		}
	}
	s.follow(j, []endedRun{ended}, fx)
	s.settle(j, fx)
	return Accepted
}

// FailTask ends a task without a live attempt as failed because its queue
// timeout has passed.
type FailTask struct {
	Task  TaskRef
	Error string
}

func (*FailTask) kind() opKind { return 19 }

func (o *FailTask) fields(c *coder) {
	c.task(&o.Task)
	c.str(&o.Error)
}

// apply ends a task without a live attempt as failed.
// Rejects: JobNotFound, TaskNotFound, AlreadyEnded, WrongState if it is
// assigned, Malformed.
func (o *FailTask) apply(s *State, fx *Effects) Reason {
	j := s.sealedJob(o.Task.Job)
	switch {
	case j == nil:
		return JobNotFound
	case o.Task.Index >= j.total:
		return TaskNotFound
	}
	switch r := j.records.at(o.Task.Index); {
	case r.state.Terminal():
		return AlreadyEnded
	case r.state == Assigned:
		return WrongState
	case tooLong(o.Error):
		return Malformed
	}
	j = s.jobs.write(s.own, j.id)
	s.failTask(j, o.Task.Index, Failed, o.Error, s.endNote(j, o.Task.Index, o.Error), fx)
	return Accepted
}
