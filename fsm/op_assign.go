package fsm

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// HeldAttempt names a live attempt and the worker that holds it.
type HeldAttempt struct {
	AttemptRef
	Worker WorkerID
}

// held finds the job of a live attempt and rejects all other attempts.
// Fencing happens here and nowhere else.
func (s *State) held(h HeldAttempt) (*job, Reason) {
	j := s.sealedJob(h.Job)
	switch {
	case j == nil:
		return nil, JobNotFound
	case h.Index >= j.total:
		return nil, TaskNotFound
	}
	r := j.records.at(h.Index)
	switch {
	case r.attempt != h.Attempt || r.worker != h.Worker:
		return nil, StaleAttempt
	case r.state == Completed:
		return nil, AlreadyAccepted
	case r.state != Assigned:
		return nil, StaleAttempt
	}
	return s.jobs.change(s.own, j), Accepted
}

// AssignItem assigns a task to a worker. Its Attempt is the previous one plus
// one.
type AssignItem HeldAttempt

// Assign creates live attempts.
type Assign = List[AssignItem, assignOp]

type assignOp struct{ fixedSize[AssignItem] }

func (assignOp) kind() opKind { return 8 }

func (assignOp) fields(c *coder, it *AssignItem) { c.held((*HeldAttempt)(it)) }

// apply creates a live attempt.
// Rejects: JobNotFound, TaskNotFound; WorkerNotFound unless the worker is up;
// WrongState if it drains or the task is not pending; StaleAttempt unless the
// number is the next one.
// A second copy is rejected, since the task is assigned.
func (assignOp) apply(s *State, it AssignItem, _ *Effects) Reason { return s.assign(it, 0) }

// assign creates a live attempt that takes an alternative of the resources of its task.
func (s *State) assign(it AssignItem, alternative uint8) Reason {
	j := s.sealedJob(it.Job)
	switch {
	case j == nil:
		return JobNotFound
	case it.Index >= j.total:
		return TaskNotFound
	}
	at, found := s.workers.at(it.Worker)
	if !found || s.workers.list[at].State != WorkerUp {
		return WorkerNotFound
	}
	r, w := j.records.at(it.Index), s.workers.list[at]
	switch {
	case r.state != Pending || w.Drains():
		return WrongState
	case it.Attempt != r.attempt+1 || it.Attempt == 0:
		return StaleAttempt
	}
	j = s.jobs.change(s.own, j)
	r = s.move(j, it.Index, Assigned)
	r.attempt, r.worker, r.marks, r.started = it.Attempt, it.Worker, marksOf(alternative), s.now
	s.workers.writeHeld(s.own)[at]++
	s.mixRecord(r)
	if j.state == JobPending {
		j.state, j.started = JobRunning, s.now
		s.mixJob(j)
	}
	return Accepted
}

// AlternativeItem assigns a task to a worker with an alternative of its resources.
type AlternativeItem struct {
	HeldAttempt
	Alternative uint8 // its number in the policy of the task, from 1; 0 is Assign
}

// AssignAlternative is Assign for attempts that do not take the first of their alternatives:
// what takes that, and what has no others, needs no further byte.
type AssignAlternative = List[AlternativeItem, assignAlternativeOp]

type assignAlternativeOp struct{ fixedSize[AlternativeItem] }

func (assignAlternativeOp) kind() opKind { return 67 }

func (assignAlternativeOp) fields(c *coder, it *AlternativeItem) {
	c.held(&it.HeldAttempt)
	number(c, &it.Alternative)
}

// apply creates a live attempt.
// Rejects: as Assign; Malformed if the task does not have the alternative.
// A second copy is rejected, since the task is assigned.
func (assignAlternativeOp) apply(s *State, it AlternativeItem, _ *Effects) Reason {
	if j := s.sealedJob(it.Job); j != nil && it.Index < j.total &&
		(it.Alternative == 0 || int(it.Alternative) > len(j.policy(it.Index).GetAlternatives()) || it.Alternative > MaxAlternatives) {
		return Malformed
	}
	return s.assign(AssignItem(it.HeldAttempt), it.Alternative)
}

// RecordStart logs the start of at-most-once attempts. They are never
// repeated after that.
type RecordStart = List[HeldAttempt, recordStartOp]

type recordStartOp struct{ fixedSize[HeldAttempt] }

func (recordStartOp) kind() opKind { return 9 }

func (recordStartOp) fields(c *coder, h *HeldAttempt) { c.held(h) }

// apply logs the start of an attempt.
// Rejects: as held; WrongState unless the task is at-most-once. A second copy
// changes nothing.
func (recordStartOp) apply(s *State, h HeldAttempt, _ *Effects) Reason {
	j, reason := s.held(h)
	if reason != Accepted {
		return reason
	}
	if j.policy(h.Index).GetExecution() != dtaskv1.Execution_EXECUTION_AT_MOST_ONCE {
		return WrongState
	}
	r := j.records.write(s.own, h.Index)
	if r.marks.startLogged() {
		return Accepted
	}
	s.mixRecord(r)
	r.marks, r.started = r.marks|markStartLogged, s.now
	j.running++
	s.mixRecord(r)
	return Accepted
}

// Due makes scheduled tasks ready. Each is named with the attempt after which
// it waits.
type Due = List[AttemptRef, dueOp]

type dueOp struct{ fixedSize[AttemptRef] }

func (dueOp) kind() opKind { return 15 }

func (dueOp) fields(c *coder, a *AttemptRef) { c.attempt(a) }

// apply makes a scheduled task ready.
// Rejects: JobNotFound, TaskNotFound, WrongState unless it is scheduled,
// StaleAttempt.
func (dueOp) apply(s *State, a AttemptRef, fx *Effects) Reason {
	j := s.sealedJob(a.Job)
	switch {
	case j == nil:
		return JobNotFound
	case a.Index >= j.total:
		return TaskNotFound
	}
	switch r := j.records.at(a.Index); {
	case r.state != Scheduled:
		return WrongState
	case r.attempt != a.Attempt:
		return StaleAttempt
	}
	j = s.jobs.write(s.own, a.Job)
	r := s.move(j, a.Index, Pending)
	r.ended = 0 // was the due time
	s.mixRecord(r)
	fx.ready(a.TaskRef)
	return Accepted
}
