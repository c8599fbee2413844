package fsm

// SealGated makes an uploaded job exist that has a gate, which is closed, or that expires.
// The operation is one of its own because earlier builds store a header with fields that
// they don't know, and start the job at once.
type SealGated SealUpload

func (*SealGated) kind() opKind { return 58 }

func (o *SealGated) fields(c *coder) { (*SealUpload)(o).fields(c) }

func (o *SealGated) size() int { return fixedFields }

// apply makes an uploaded job exist.
// Rejects: as SealUpload; Malformed also if the header has nothing of that, or values out of
// range; RunOpen if earlier jobs have its concurrency key, and its overlap rule forbids another
// one.
func (o *SealGated) apply(s *State, fx *Effects) Reason {
	g, j := gateNone, s.jobs.get(o.Job)
	if j != nil && j.state == JobUploading && j.records.n == j.total {
		if !IsGated(j.header) || !checkGate(j.header) {
			return Malformed
		}
		g = gateOf(j.header)
	}
	return (*SealUpload)(o).seal(s, g, fx)
}

// OpenGate lets a job start whose time has come, and whose concurrency key is free.
type OpenGate struct{ Job JobID }

func (*OpenGate) kind() opKind { return 59 }

func (o *OpenGate) fields(c *coder) { number(c, &o.Job) }

// apply opens the gate of a job, and readies its tasks without open dependencies.
// Rejects: JobNotFound; WrongState if the gate is not closed, if the job waits for other
// jobs, or before its time; RunOpen while as many jobs with its key as may run do.
// A second copy is rejected, since the gate is open.
func (o *OpenGate) apply(s *State, fx *Effects) Reason {
	j := s.sealedJob(o.Job)
	switch {
	case j == nil:
		return JobNotFound
	case !j.gated() || j.waiting() || s.now < startMS(j.header, j.submitted):
		return WrongState
	case s.Holders(ConcurrencyKey(j.header)) >= ConcurrencyLimit(j.header):
		return RunOpen
	}
	j = s.jobs.write(s.own, o.Job)
	s.mixJob(j)
	j.gate = gateOpened
	s.readyFirst(j, fx)
	s.mixJob(j)
	return Accepted
}

// ExpireJob cancels a job of which no task has started in time.
type ExpireJob struct {
	Job    JobID
	Reason string
}

func (*ExpireJob) kind() opKind { return 60 }

func (o *ExpireJob) fields(c *coder) {
	number(c, &o.Job)
	c.str(&o.Reason)
}

// apply ends all tasks of a job, cleanup tasks too: there is nothing to clean up.
// Rejects: JobNotFound; AlreadyEnded, also if only cleanup tasks remain; WrongState if the
// job does not expire, has started, or before that time; Malformed.
func (o *ExpireJob) apply(s *State, fx *Effects) Reason {
	j := s.sealedJob(o.Job)
	switch {
	case j == nil:
		return JobNotFound
	case j.outcome != 0:
		return AlreadyEnded
	case tooLong(o.Reason):
		return Malformed
	}
	if at := expiryMS(j.header, j.submitted, j.revived); at == 0 || j.started != 0 || s.now < at {
		return WrongState
	}
	s.endUnstarted(s.jobs.write(s.own, o.Job), JobCancelled, o.Reason, causeOther, fx)
	return Accepted
}
