package fsm

import "slices"

// SetQueue sets a queue, or replaces the one of its name, also whether it is paused.
type SetQueue struct {
	Name string
	QueueSettings
	Pause     QueuePause
	By        string // name of the one that asks for it
	IfVersion uint32 // the queue must have this version; 0 = any, or none
	AtMS      int64  // by the leader's clock
}

func (*SetQueue) kind() opKind { return 62 }

func (o *SetQueue) fields(c *coder) {
	c.str(&o.Name)
	o.QueueSettings.fields(c)
	o.Pause.fields(c)
	c.str(&o.By)
	number(c, &o.IfVersion)
	c.i64(&o.AtMS)
}

// apply sets the queue. If it has these settings already, nothing changes, so that a
// repeated request has no effect.
// Rejects: Malformed, VersionMismatch, LimitExceeded.
func (o *SetQueue) apply(s *State, _ *Effects) Reason {
	old := s.Queue(o.Name)
	q := &Queue{Name: o.Name, Version: 1, QueueSettings: o.QueueSettings, Pause: o.Pause, By: o.By, CreatedMS: o.AtMS, ChangedMS: o.AtMS}
	if old != nil {
		q.Version, q.CreatedMS = old.Version+1, old.CreatedMS
	}
	switch {
	case q.malformed():
		return Malformed
	case old != nil && o.changesNothing(old):
		return Accepted
	case o.IfVersion != 0 && (old == nil || old.Version != o.IfVersion):
		return VersionMismatch
	case old == nil && len(s.queues.list) >= maxQueues:
		return LimitExceeded
	}
	q.Max, q.Require = slices.Clone(q.Max), slices.Clone(q.Require)
	s.mixQueue(old)
	s.queues.put(q)
	s.mixQueue(q)
	return Accepted
}

func (o *SetQueue) changesNothing(q *Queue) bool {
	a, b := o.QueueSettings, q.QueueSettings
	return o.Pause == q.Pause && slices.Equal(a.Max, b.Max) && slices.Equal(a.Require, b.Require) && a.Weight == b.Weight &&
		a.MaxRunning == b.MaxRunning && a.Rate == b.Rate && a.PeriodMS == b.PeriodMS && a.Burst == b.Burst
}

// DeleteQueue removes a queue. The default one returns to its initial settings.
type DeleteQueue struct {
	Name      string
	IfVersion uint32 // it must have this version; 0 = any
}

func (*DeleteQueue) kind() opKind { return 63 }

func (o *DeleteQueue) fields(c *coder) {
	c.str(&o.Name)
	number(c, &o.IfVersion)
}

// apply removes the queue. Jobs that name it have ended. If one of them is retried, it has
// the settings of a queue that was not set.
// Rejects: QueueNotFound, VersionMismatch, WrongState while a job that has not ended, or a
// schedule, names it, unless it is the default one.
func (o *DeleteQueue) apply(s *State, _ *Effects) Reason {
	at, found := s.queues.at(o.Name)
	switch {
	case !found:
		return QueueNotFound
	case o.IfVersion != 0 && s.queues.list[at].Version != o.IfVersion:
		return VersionMismatch
	case o.Name != DefaultQueue && s.queueInUse(o.Name):
		return WrongState
	}
	s.mixQueue(s.queues.list[at])
	s.queues.list = slices.Delete(slices.Clone(s.queues.list), at, at+1)
	return Accepted
}

// MoveJob moves a job to another queue. Its running tasks continue, and count in the new
// queue.
type MoveJob struct {
	Job JobID
	Precondition
	Queue string
}

func (*MoveJob) kind() opKind { return 64 }

func (o *MoveJob) fields(c *coder) {
	number(c, &o.Job)
	o.Precondition.fields(c)
	c.str(&o.Queue)
}

// apply moves a job: its header names the queue from then on.
// Rejects: JobNotFound, Malformed, QueueNotFound, KeyConflict if the key is known,
// VersionMismatch, AlreadyEnded if the job has ended.
func (o *MoveJob) apply(s *State, fx *Effects) Reason {
	j := s.sealedJob(o.Job)
	switch {
	case j == nil:
		return JobNotFound
	case !isName(o.Queue):
		return Malformed
	case !s.hasQueue(o.Queue):
		return QueueNotFound
	}
	if r := o.check(s, j); r != Accepted {
		return r
	}
	if j.state.Terminal() {
		return AlreadyEnded
	}
	h, err := withQueue(j.headerBytes, o.Queue)
	if err != nil {
		return Malformed
	}
	j = s.jobs.write(s.own, o.Job)
	s.mixJob(j)
	j.headerBytes, j.header = h.encoded, h.decoded
	s.mixBytes(j.headerBytes)
	fx.movedJob(j.id)
	o.changed(s, j, 0)
	s.mixJob(j)
	return Accepted
}
