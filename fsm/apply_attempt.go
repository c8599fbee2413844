package fsm

import (
	"encoding/binary"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// held finds the record of a live attempt and refuses all others: this is the
// one place where fencing happens.
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
	return s.jobs.write(s.own, h.Job), Accepted
}

// each applies items one by one and gives the reason of the first refusal.
func each[T any](items []T, f func(T) Reason) Reason {
	first := Accepted
	for _, it := range items {
		if r := f(it); r != Accepted && first == Accepted {
			first = r
		}
	}
	return first
}

func (o *Assign) apply(s *State, _ *Effects) Reason {
	return each(o.Items, s.assign)
}

// assign makes a live attempt.
// Rejects: NoSuchJob, NoSuchTask, NoSuchWorker if it is not up, WrongState
// if it drains or unless the task is pending, StaleAttempt unless the number is
// the next.
// A second copy is refused: the task is assigned.
func (s *State) assign(it AssignItem) Reason {
	j := s.sealedJob(it.Job)
	switch {
	case j == nil:
		return JobNotFound
	case it.Index >= j.total:
		return TaskNotFound
	}
	at, found := s.workerAt(it.Worker)
	if !found || s.workers[at].State != WorkerUp {
		return WorkerNotFound
	}
	r, w := j.records.at(it.Index), s.workers[at]
	switch {
	case r.state != Pending || w.Drains():
		return WrongState
	case it.Attempt != r.attempt+1 || it.Attempt == 0:
		return StaleAttempt
	}
	j = s.jobs.write(s.own, it.Job)
	r = s.move(j, it.Index, Assigned)
	r.attempt, r.worker, r.startLogged = it.Attempt, it.Worker, false
	s.writeHeld()[at]++
	s.mixRecord(r)
	if it.Attempt > 1 {
		j.retries++
		s.mix(j.retries)
	}
	if j.state == JobPending {
		j.state, j.started = JobRunning, s.now
		s.mixJob(j)
	}
	return Accepted
}

func (o *RecordStart) apply(s *State, _ *Effects) Reason {
	return each(o.Items, s.beginAttempt)
}

// beginAttempt logs that an at-most-once attempt begins.
// Rejects: as held; WrongState for a task that may be repeated. A second copy
// changes nothing.
func (s *State) beginAttempt(h HeldAttempt) Reason {
	j, reason := s.held(h)
	if reason != Accepted {
		return reason
	}
	if j.policy(h.Index).GetExecution() != dtaskv1.Execution_EXECUTION_AT_MOST_ONCE {
		return WrongState
	}
	r := j.records.write(s.own, h.Index)
	if r.startLogged {
		return Accepted
	}
	s.mixRecord(r)
	r.startLogged, r.started = true, s.now
	s.mixRecord(r)
	return Accepted
}

func (o *Complete) apply(s *State, fx *Effects) Reason {
	return each(o.Items, func(it CompleteItem) Reason { return s.complete(it, fx) })
}

// complete ends a task well and readies what waited for it.
// Rejects: as held; AlreadyAccepted for a second copy; Malformed for a result
// that is too long or a digest that is none.
func (s *State) complete(it CompleteItem, fx *Effects) Reason {
	j, reason := s.held(it.HeldAttempt)
	if reason != Accepted {
		return reason
	}
	if len(it.Result) > maxResult || len(it.OutputSHA256) != 0 && len(it.OutputSHA256) != sha256Len {
		return Malformed
	}
	r := s.move(j, it.Index, Completed)
	r.ended, r.started, r.note = s.now, s.now-int64(it.DurationMS), 0
	if len(it.Result) > 0 || len(it.OutputSHA256) > 0 {
		head := resultHead(it)
		r.note = j.notes.add(s.own, noteResult, head, it.OutputSHA256, it.Result)
		s.mixBytes(head)
		s.mixBytes(it.Result)
		s.mixBytes(it.OutputSHA256)
	}
	s.mixRecord(r)
	s.release(j, it.Index, fx)
	s.settle(j, fx)
	return Accepted
}

// resultHead is the front of a result note: output size and length of its hash.
// Without a hash there is no output, and no size of it in the log either.
func resultHead(it CompleteItem) []byte {
	size := it.OutputSize
	if len(it.OutputSHA256) == 0 {
		size = 0
	}
	head := binary.AppendVarint(make([]byte, 0, binary.MaxVarintLen64+1), size)
	return append(head, byte(len(it.OutputSHA256))) //nolint:gosec // checked: 0 or 32
}

func (o *Fail) apply(s *State, fx *Effects) Reason {
	return each(o.Items, func(it FailItem) Reason { return s.fail(it, fx) })
}

// fail ends an attempt that failed: the task waits for its retry, or ends.
// Rejects: as held; WrongState for a retry of a stopping job or of an
// at-most-once attempt that has begun; Malformed for an unknown Next or an
// overlong error.
func (s *State) fail(it FailItem, fx *Effects) Reason {
	j, reason := s.held(it.HeldAttempt)
	if reason != Accepted {
		return reason
	}
	r := j.records.write(s.own, it.Index)
	switch {
	case it.Next < NextRetry || it.Next > NextFailed || tooLong(it.Error):
		return Malformed
	case it.Next == NextRetry && (j.stops(it.Index) || r.startLogged):
		return WrongState
	}
	s.mixRecord(r)
	r.started = s.now - int64(it.DurationMS)
	if it.CountsAsRetry {
		r.failures++
	}
	note := s.attemptNote(j, it.Index, it.Error)
	switch it.Next {
	case NextRetry:
		s.move(j, it.Index, Scheduled)
		r.ended, r.note = it.Due, note
		s.mixRecord(r)
		j.recovered++
		s.mix(j.recovered)
		fx.scheduled(it.AttemptRef, it.Due)
	case NextDead:
		s.failTask(j, it.Index, Dead, it.Error, note, fx)
	case NextFailed:
		s.failTask(j, it.Index, Failed, it.Error, note, fx)
	}
	return Accepted
}

func (o *Requeue) apply(s *State, fx *Effects) Reason {
	return each(o.Items, func(h HeldAttempt) Reason { return s.requeue(h, o.Lost, fx) })
}

// requeue puts a live attempt back. In a job that is stopping the task is
// cancelled instead. lost means that it ran on a worker that was lost.
// Rejects: as held; WrongState for an at-most-once attempt that has begun.
func (s *State) requeue(h HeldAttempt, lost bool, fx *Effects) Reason {
	j, reason := s.held(h)
	if reason != Accepted {
		return reason
	}
	if j.records.at(h.Index).startLogged {
		return WrongState
	}
	if lost {
		r := j.records.write(s.own, h.Index)
		s.mixRecord(r)
		r.started = s.now
		r.note = s.attemptNote(j, h.Index, workerLost)
		if r.losses < 255 {
			r.losses++
		}
	}
	if j.stops(h.Index) {
		s.cancelTask(j, h.Index, "job stopped")
		s.cancelDependents(j, h.Index)
		s.settle(j, fx)
		return Accepted
	}
	s.mixRecord(s.move(j, h.Index, Pending))
	j.recovered++
	s.mix(j.recovered)
	fx.ready(h.TaskRef)
	return Accepted
}

func (o *Lose) apply(s *State, fx *Effects) Reason {
	return each(o.Items, func(h HeldAttempt) Reason { return s.lose(h, fx) })
}

// lose ends an at-most-once attempt whose fate is unknown.
// Rejects: as held; WrongState unless it has begun.
func (s *State) lose(h HeldAttempt, fx *Effects) Reason {
	j, reason := s.held(h)
	if reason != Accepted {
		return reason
	}
	r := j.records.at(h.Index)
	if !r.startLogged {
		return WrongState
	}
	s.failTask(j, h.Index, Lost, fateUnknown, s.attemptNote(j, h.Index, fateUnknown), fx)
	return Accepted
}

func (o *Due) apply(s *State, fx *Effects) Reason {
	return each(o.Items, func(it DueItem) Reason { return s.due(it, fx) })
}

// due makes a scheduled task ready.
// Rejects: NoSuchJob, NoSuchTask, WrongState unless scheduled, StaleAttempt.
func (s *State) due(it DueItem, fx *Effects) Reason {
	j := s.sealedJob(it.Job)
	switch {
	case j == nil:
		return JobNotFound
	case it.Index >= j.total:
		return TaskNotFound
	}
	switch r := j.records.at(it.Index); {
	case r.state != Scheduled:
		return WrongState
	case r.attempt != it.Attempt:
		return StaleAttempt
	}
	j = s.jobs.write(s.own, it.Job)
	r := s.move(j, it.Index, Pending)
	r.ended = 0 // was when it is due
	s.mixRecord(r)
	fx.ready(it.TaskRef)
	return Accepted
}

// stops reports whether no new attempt of a task may start. Clean-up tasks run
// although the job stops.
func (j *job) stops(i uint32) bool { return j.stopping && !j.isCleanup(i) }

// stopsOnFailure reports whether one failed task stops the job.
func (j *job) stopsOnFailure() bool {
	return j.header.GetOnFailure() != dtaskv1.OnFailure_ON_FAILURE_CONTINUE
}
