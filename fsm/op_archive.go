package fsm

// Archive removes finished jobs from the state and passes them to history.
type Archive = List[JobID, archiveOp]

type archiveOp struct{ fixedSize[JobID] }

func (archiveOp) kind() opKind { return 26 }

func (archiveOp) fields(c *coder, id *JobID) { number(c, id) }

// apply removes a job that has ended. Its idempotency key stays until it
// expires, so that a late repetition of its submission does not run it again.
// Rejects: JobNotFound, WrongState if it has not ended.
func (archiveOp) apply(s *State, id JobID, fx *Effects) Reason {
	j := s.sealedJob(id)
	switch {
	case j == nil:
		return JobNotFound
	case !j.state.Terminal():
		return WrongState
	}
	s.mixJob(j)
	s.deadLetters.addJob(s.own, j, -1)
	s.jobs.remove(s.own, id)
	fx.archived(s, j)
	return Accepted
}

// ExpireHistory lets history delete the jobs that ended before a time. The
// leader proposes it while it trusts its clock.
type ExpireHistory struct {
	EndedBefore int64 // ms; above 0
}

func (*ExpireHistory) kind() opKind { return 27 }

func (o *ExpireHistory) fields(c *coder) { c.i64(&o.EndedBefore) }

// apply does not change the state.
// Rejects: Malformed without a time.
func (o *ExpireHistory) apply(_ *State, fx *Effects) Reason {
	if o.EndedBefore <= 0 {
		return Malformed
	}
	fx.endedBefore(o.EndedBefore)
	return Accepted
}
