package fsm

import dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"

// Next is what happens to a task after a failed attempt, as decided by the
// leader.
type Next uint8

// What happens to a task after a failed attempt.
const (
	NextRetry Next = iota + 1 // a retry at Due
	NextDead                  // retries exhausted
	NextFailed
)

// FailItem ends an attempt that failed.
type FailItem struct {
	HeldAttempt
	DurationMS    uint32
	Next          Next
	Due           int64 // ms; with NextRetry
	CountsAsRetry bool
	Error         string
}

// Fail records failures.
type Fail = List[FailItem, failOp]

type failOp struct{}

func (failOp) kind() opKind { return 11 }

func (failOp) fields(c *coder, it *FailItem) {
	c.held(&it.HeldAttempt)
	number(c, &it.DurationMS)
	number(c, &it.Next)
	c.i64(&it.Due)
	c.bool(&it.CountsAsRetry)
	c.str(&it.Error)
}

func (failOp) size(it *FailItem) int { return len(it.Error) + 24 }

// apply ends a failed attempt. The task waits for its retry, or ends.
// Rejects: as held; WrongState for a retry in a stopping job or of an
// at-most-once attempt that has started; Malformed for an unknown Next or an
// error that is too long.
func (failOp) apply(s *State, it FailItem, fx *Effects) Reason {
	j, reason := s.held(it.HeldAttempt)
	if reason != Accepted {
		return reason
	}
	r := j.records.write(s.own, it.Index)
	switch {
	case it.Next < NextRetry || it.Next > NextFailed || tooLong(it.Error):
		return Malformed
	case it.Next == NextRetry && (j.stops(it.Index) || r.marks.startLogged()):
		return WrongState
	}
	s.mixRecord(r)
	r.started = s.now - int64(it.DurationMS)
	note := s.attemptNote(j, it.Index, it.Error)
	switch it.Next {
	case NextRetry:
		s.move(j, it.Index, Scheduled)
		r.ended, r.note = it.Due, note
		if it.CountsAsRetry {
			r.failures++
		}
		s.mixRecord(r)
		j.retries++
		s.mix(j.retries)
		fx.scheduled(it.AttemptRef, it.Due)
		s.taskEvent(TaskRetryEvent, j, it.Index)
	case NextDead:
		s.failTask(j, it.Index, Dead, it.Error, note, fx)
	case NextFailed:
		s.failTask(j, it.Index, Failed, it.Error, note, fx)
	}
	return Accepted
}

// Requeue makes the tasks of live attempts ready again without counting a
// retry: their worker drains, released them, or never began them.
type Requeue = List[HeldAttempt, requeueOp]

type requeueOp struct{ fixedSize[HeldAttempt] }

func (requeueOp) kind() opKind { return 12 }

func (requeueOp) fields(c *coder, h *HeldAttempt) { c.held(h) }

func (requeueOp) apply(s *State, h HeldAttempt, fx *Effects) Reason { return s.requeue(h, false, fx) }

// RequeueLost is Requeue for attempts that ran on a worker that was marked
// down. The loss is counted and kept in the task's history.
type RequeueLost = List[HeldAttempt, requeueLostOp]

type requeueLostOp struct{ fixedSize[HeldAttempt] }

func (requeueLostOp) kind() opKind { return 13 }

func (requeueLostOp) fields(c *coder, h *HeldAttempt) { c.held(h) }

func (requeueLostOp) apply(s *State, h HeldAttempt, fx *Effects) Reason {
	return s.requeue(h, true, fx)
}

// requeue makes the task of a live attempt ready again. If the job is
// stopping, the task is cancelled instead.
// Rejects: as held; WrongState for an at-most-once attempt that has started.
func (s *State) requeue(h HeldAttempt, lost bool, fx *Effects) Reason {
	j, reason := s.held(h)
	if reason != Accepted {
		return reason
	}
	if j.records.at(h.Index).marks.startLogged() {
		return WrongState
	}
	if lost {
		r := j.records.write(s.own, h.Index)
		s.mixRecord(r)
		r.note = s.attemptNote(j, h.Index, workerLost)
		s.taskEvent(TaskRequeuedEvent, j, h.Index)
	}
	if j.stops(h.Index) {
		s.cancelTask(j, h.Index, "job stopped", causeOther)
		s.follow(j, []endedRun{{h.Index, 1}}, fx)
		s.settle(j, fx)
		return Accepted
	}
	r := s.move(j, h.Index, Pending)
	if lost {
		if r.losses < 255 {
			r.losses++
		}
		j.retries++
		s.mix(j.retries)
	} else {
		j.requeues++
		s.mix(j.requeues)
	}
	s.mixRecord(r)
	fx.ready(h.TaskRef)
	return Accepted
}

// Lose ends at-most-once attempts whose outcome is unknown.
type Lose = List[HeldAttempt, loseOp]

type loseOp struct{ fixedSize[HeldAttempt] }

func (loseOp) kind() opKind { return 14 }

func (loseOp) fields(c *coder, h *HeldAttempt) { c.held(h) }

// apply ends an attempt whose outcome is unknown.
// Rejects: as held; WrongState unless its start is logged.
func (loseOp) apply(s *State, h HeldAttempt, fx *Effects) Reason {
	j, reason := s.held(h)
	if reason != Accepted {
		return reason
	}
	r := j.records.at(h.Index)
	if !r.marks.startLogged() {
		return WrongState
	}
	s.failTask(j, h.Index, Lost, outcomeUnknown, s.attemptNote(j, h.Index, outcomeUnknown), fx)
	return Accepted
}

// stops reports whether no new attempt of a task may start. Cleanup tasks, and
// tasks that depend on how others end, run even if the job is stopping.
func (j *job) stops(i uint32) bool { return j.stopping && !j.isCleanup(i) && !j.outlivesStop(i) }

// stopsOnFailure reports whether one failed task stops the job.
func (j *job) stopsOnFailure() bool {
	return j.header.GetOnFailure() != dtaskv1.OnFailure_ON_FAILURE_CONTINUE
}
