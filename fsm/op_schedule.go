package fsm

import (
	"crypto/sha256"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// SetSchedule makes an upload that is complete the template of a schedule: of a new one,
// or in place of that of the schedule with the job's name and namespace. The upload and its
// key are gone then.
type SetSchedule struct {
	Upload JobID
	Sum    uint32   // CRC-32C of the blobs of all chunks
	Digest [16]byte // of header and tasks
	Recurrence
	ScheduleRules
	Owner     IdentityID // 0 = none
	By        string     // name of the one that asks for it
	IfVersion uint32     // the schedule must have this version; 0 = any, or none
	AtMS      int64      // by the leader's clock
}

func (*SetSchedule) kind() opKind { return 52 }

func (o *SetSchedule) fields(c *coder) {
	number(c, &o.Upload)
	number(c, &o.Sum)
	c.digest(&o.Digest)
	o.request(c)
	number(c, &o.IfVersion)
	c.i64(&o.AtMS)
}

// request codes what a request to set the schedule has beyond header and tasks.
func (o *SetSchedule) request(c *coder) {
	o.Recurrence.fields(c)
	o.ScheduleRules.fields(c)
	number(c, &o.Owner)
	c.str(&o.By)
}

// requestDigest is the digest of all that a replacement would change.
func (o *SetSchedule) requestDigest() [16]byte {
	var e encoder
	c := coder{e: &e}
	c.digest(&o.Digest)
	o.request(&c)
	sum := sha256.Sum256(e.b)
	return [16]byte(sum[:16])
}

func (o *SetSchedule) malformed() bool {
	return o.Recurrence.malformed() || o.ScheduleRules.malformed() || len(o.By) > maxIdentityText || o.AtMS <= 0
}

// fits reports whether the rules of the schedule are those of its jobs.
func (o *SetSchedule) fits(h *dtaskv1.JobHeader) bool {
	return h.GetConcurrency() == nil || overlapOf(h) == o.Overlap
}

// apply sets the schedule. The ticks until now don't fire. A replaced schedule keeps its
// number, its outcomes, its open runs and whether it is paused. If the same request has set
// it before, only the upload goes.
// Rejects: JobNotFound, AlreadyEnded and OutOfOrder as SealUpload; Malformed, also if the
// job needs other jobs; QueueNotFound, LimitNotFound, IdentityNotFound, IdentityRevoked, VersionMismatch, LimitExceeded.
func (o *SetSchedule) apply(s *State, _ *Effects) Reason {
	j := s.jobs.get(o.Upload)
	switch {
	case j == nil:
		return JobNotFound
	case j.state != JobUploading:
		return AlreadyEnded
	case j.records.n != j.total:
		return OutOfOrder
	case !s.hasQueue(j.header.GetQueue()):
		return QueueNotFound
	case j.sum != o.Sum || j.ordinary == 0 || j.needs() > 0 || !isName(j.header.GetName()) || !checkGate(j.header) || !o.fits(j.header) || o.malformed():
		return Malformed
	case !s.knowsUses(j.header):
		return LimitNotFound
	}
	if r := s.ownerRefusal(o.Owner); r != Accepted {
		return r
	}
	t, digest := &s.schedules, o.requestDigest()
	old := t.ScheduleByName(j.header.GetNamespace(), j.header.GetName())
	if old == nil || old.Digest != digest {
		x := o.schedule(j, old, digest)
		if r := t.refusal(x, old, o.IfVersion); r != Accepted {
			return r
		}
		s.putSchedule(x, old)
	}
	s.keys.delete(s.own, j.key)
	s.jobs.remove(s.own, j.id)
	s.mix(uint64(o.Upload))
	return Accepted
}

// schedule returns the schedule that replaces old, which may be nil.
func (o *SetSchedule) schedule(j *job, old *Schedule, digest [16]byte) *Schedule {
	x := &Schedule{Version: 1, CreatedMS: o.AtMS}
	if old != nil {
		*x = *old
		x.Version++
	}
	if old != nil && !slices.Equal(old.Recurrence.encoded(), o.Recurrence.encoded()) {
		x.LastCivil = 0 // wall-clock times of other recurrences are not comparable
	}
	x.Namespace, x.Name = j.header.GetNamespace(), j.header.GetName()
	x.Owner, x.By, x.Recurrence, x.ScheduleRules, x.Digest = o.Owner, o.By, o.Recurrence, o.ScheduleRules, digest
	x.ChangedMS, x.AfterMS = o.AtMS, max(x.AfterMS, o.AtMS)
	x.form = &job{
		headerBytes: j.headerBytes, header: j.header, total: j.total, chunks: slices.Clip(j.chunks), succ: j.makeSuccessors(),
		sum: j.sum, digest: o.Digest, arrays: slices.Clip(j.arrays), ends: slices.Clone(j.ends), ordinary: j.ordinary,
	}
	return x
}

// refusal returns why a schedule can't be set in place of old, which may be nil.
func (t *schedules) refusal(x, old *Schedule, version uint32) Reason {
	bytes := t.bytes + x.size()
	if old != nil {
		bytes -= old.size()
	}
	switch {
	case version != 0 && (old == nil || old.Version != version):
		return VersionMismatch
	case bytes > maxTemplates || old == nil && len(t.list) >= maxSchedules:
		return LimitExceeded
	}
	return Accepted
}

// putSchedule adds a schedule, or replaces old by it.
func (s *State) putSchedule(x, old *Schedule) {
	t := &s.schedules
	if old == nil {
		x.ID = t.next
		t.next++
		t.list = append(t.write(s.own), x) // new numbers are the highest
		t.names.set(s.own, x.key(), x.ID)
	} else {
		at, _ := t.at(x.ID)
		t.write(s.own)[at] = x
		t.bytes -= old.size()
		s.mixSchedule(old)
	}
	t.bytes += x.size()
	s.mixSchedule(x)
}

// progress replaces a schedule by a copy whose progress is changed.
func (s *State) progress(old *Schedule, change func(*Schedule)) {
	at, _ := s.schedules.at(old.ID)
	x := *old
	change(&x)
	s.schedules.write(s.own)[at] = &x
	s.mixScheduleProgress(old)
	s.mixScheduleProgress(&x)
}

// DeleteSchedule removes a schedule. Its jobs continue.
type DeleteSchedule struct {
	ID        ScheduleID
	IfVersion uint32 // it must have this version; 0 = any
}

func (*DeleteSchedule) kind() opKind { return 53 }

func (o *DeleteSchedule) fields(c *coder) {
	number(c, &o.ID)
	number(c, &o.IfVersion)
}

// apply removes a schedule.
// Rejects: ScheduleNotFound, VersionMismatch.
func (o *DeleteSchedule) apply(s *State, _ *Effects) Reason {
	t := &s.schedules
	at, found := t.at(o.ID)
	switch {
	case !found:
		return ScheduleNotFound
	case o.IfVersion != 0 && t.list[at].Version != o.IfVersion:
		return VersionMismatch
	}
	x := t.list[at]
	t.bytes -= x.size()
	t.names.delete(s.own, x.key())
	t.list = slices.Delete(t.write(s.own), at, at+1)
	s.mixSchedule(x)
	return Accepted
}

// PauseSchedule keeps a schedule from firing.
type PauseSchedule struct {
	ID     ScheduleID
	Reason string
	By     string // name of the one that asks for it
	AtMS   int64  // by the leader's clock
}

func (*PauseSchedule) kind() opKind { return 54 }

func (o *PauseSchedule) fields(c *coder) {
	number(c, &o.ID)
	c.str(&o.Reason)
	c.str(&o.By)
	c.i64(&o.AtMS)
}

// apply pauses a schedule. One that is paused stays as it is, and the operation is
// accepted.
// Rejects: Malformed, ScheduleNotFound.
func (o *PauseSchedule) apply(s *State, _ *Effects) Reason {
	x := s.Schedule(o.ID)
	switch {
	case o.AtMS <= 0 || tooLong(o.Reason) || len(o.By) > maxIdentityText:
		return Malformed
	case x == nil:
		return ScheduleNotFound
	case !x.IsPaused():
		s.progress(x, func(x *Schedule) { x.PausedMS, x.PausedBy, x.PauseReason = o.AtMS, o.By, o.Reason })
	}
	return Accepted
}

// ResumeSchedule lets a paused schedule fire again.
type ResumeSchedule struct {
	ID   ScheduleID
	AtMS int64 // by the leader's clock
}

func (*ResumeSchedule) kind() opKind { return 55 }

func (o *ResumeSchedule) fields(c *coder) {
	number(c, &o.ID)
	c.i64(&o.AtMS)
}

// apply resumes a schedule. The ticks while it was paused don't fire, and are not missed.
// Rejects: Malformed, ScheduleNotFound.
// A schedule that is not paused stays as it is, and the operation is accepted.
func (o *ResumeSchedule) apply(s *State, _ *Effects) Reason {
	x := s.Schedule(o.ID)
	switch {
	case o.AtMS <= 0:
		return Malformed
	case x == nil:
		return ScheduleNotFound
	case x.IsPaused():
		s.progress(x, func(x *Schedule) {
			x.PausedMS, x.PausedBy, x.PauseReason, x.AfterMS = 0, "", "", max(x.AfterMS, o.AtMS)
		})
	}
	return Accepted
}
