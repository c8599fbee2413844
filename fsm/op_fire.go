package fsm

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Fire decides a tick of a schedule: a job runs, or the tick is skipped. It names the job by
// reference to the schedule's template, and takes some 20 bytes.
type Fire struct {
	Schedule ScheduleID
	Version  uint32 // of the schedule, as the leader has evaluated it
	TickMS   int64  // the instant that the leader has computed
	Civil    int64  // its wall-clock time, in seconds since 1970 as if it were UTC
	Decision Decision
	Earlier  uint32 // missed ticks before it that are skipped with it
}

func (*Fire) kind() opKind { return 56 }

func (o *Fire) fields(c *coder) {
	number(c, &o.Schedule)
	number(c, &o.Version)
	c.i64(&o.TickMS)
	shift := o.Civil - o.TickMS/1000 // mostly the offset of the zone
	c.i64(&shift)
	o.Civil = shift + o.TickMS/1000
	number(c, &o.Decision)
	number(c, &o.Earlier)
}

// apply decides the tick. It is the only place that decides which ticks were decided
// before: the instant must be after the last one and, if the wall-clock times of the
// schedule only grow, so must be the wall-clock time. So no tick runs twice, whatever
// happens to leaders, clocks and time zones.
// Rejects: Malformed, ScheduleNotFound, VersionMismatch, SchedulePaused, IdentityNotFound
// and IdentityRevoked if the owner is gone, TickPassed, RunOpen if an earlier run is open
// and the overlap rule forbids another one.
func (o *Fire) apply(s *State, fx *Effects) Reason {
	x := s.Schedule(o.Schedule)
	switch {
	case o.Decision == 0 || o.Decision >= numDecisions || o.TickMS <= 0:
		return Malformed
	case x == nil:
		return ScheduleNotFound
	case x.Version != o.Version:
		return VersionMismatch
	case x.IsPaused():
		return SchedulePaused
	case o.TickMS <= x.AfterMS, x.Ordered && x.LastCivil != 0 && o.Civil <= x.LastCivil:
		return TickPassed
	}
	if r := s.ownerRefusal(x.Owner); r != Accepted {
		return r
	}
	out := ScheduleOutcome{TickMS: o.TickMS, AtMS: s.now, Decision: o.Decision, Earlier: o.Earlier}
	runs := x.runs
	if o.Decision == TickRuns {
		if r := s.admit(x.RunHeader(), x.Overlap, s.nextJob, fx); r != Accepted {
			return r
		}
		out.Job = s.run(x, "", &dtaskv1.ScheduledRun{TickMs: o.TickMS, PreviousMs: x.LastRunMS}, fx)
		runs = s.runsWith(x, out.Job)
	}
	s.progress(x, func(x *Schedule) {
		x.AfterMS, x.LastCivil, x.runs = o.TickMS, o.Civil, runs
		if out.Job != 0 {
			x.LastRunMS = o.TickMS
		}
		x.record(out)
	})
	return Accepted
}

// runsWith returns the open runs of a schedule and a new one, at most maxOpenRuns.
func (s *State) runsWith(x *Schedule, id JobID) []JobID {
	open := s.OpenRuns(x)
	return append(open[max(0, len(open)+1-maxOpenRuns):], id)
}

// RunHeader is the header of the jobs of a schedule, as far as it decides which of them run at
// the same time: one without a concurrency key has the name of the schedule as its key.
func (x *Schedule) RunHeader() *dtaskv1.JobHeader {
	if h := x.form.header; h.GetConcurrency() != nil {
		return h
	}
	return &dtaskv1.JobHeader{
		Namespace: x.Namespace, Concurrency: &dtaskv1.JobConcurrency{Key: x.Name, Overlap: dtaskv1.ScheduleOverlap(x.Overlap)},
	}
}

// run creates a job from the template of a schedule.
func (s *State) run(x *Schedule, key string, run *dtaskv1.ScheduledRun, fx *Effects) JobID {
	run.Schedule, run.ScheduleId = x.Name, uint64(x.ID)
	concurrency := x.RunHeader().GetConcurrency()
	if x.form.header.GetConcurrency() != nil {
		concurrency = nil // it is in the template
	}
	encoded, header := appendRun(slices.Clip(x.form.headerBytes), run, concurrency), new(dtaskv1.JobHeader)
	if err := proto.Unmarshal(encoded, header); err != nil { // the template was decoded before, and the names are its own
		panic(fmt.Sprintf("header of schedule %d: %v", x.ID, err))
	}
	j := *x.form
	j.own, j.id, j.key, j.headerBytes, j.header, j.gate = s.own, s.nextJob, key, encoded, header, gateOf(header)
	s.nextJob++
	s.jobs.put(s.own, &j)
	w := s.jobs.write(s.own, j.id)
	for _, c := range w.chunks {
		s.addRecords(w, c)
	}
	s.mixBytes(encoded)
	s.submit(w, nil, fx)
	s.mixJob(w)
	return w.id
}

// appendRun appends to an encoded header what that of a run has in addition. Fields that
// follow an encoded message are merged into it: a template may have the time zone of the run.
// The bytes are part of the digest, and those of package proto may be others in another version.
func appendRun(b []byte, run *dtaskv1.ScheduledRun, concurrency *dtaskv1.JobConcurrency) []byte {
	const ofRun, schedule, scheduleID, tick, previous, manual, ofConcurrency, concurrencyKey, overlap = 14, 1, 2, 3, 4, 5, 19, 1, 3
	varint := func(b []byte, field protowire.Number, v uint64) []byte {
		if v == 0 {
			return b
		}
		return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
	}
	message := func(b []byte, field protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
	}
	r := message(nil, schedule, []byte(run.GetSchedule()))
	r = varint(r, scheduleID, run.GetScheduleId())
	r = varint(r, tick, uint64(run.GetTickMs()))         //nolint:gosec // as int64 is encoded
	r = varint(r, previous, uint64(run.GetPreviousMs())) //nolint:gosec // the same
	r = varint(r, manual, protowire.EncodeBool(run.GetManual()))
	b = message(b, ofRun, r)
	if concurrency != nil {
		c := message(nil, concurrencyKey, []byte(concurrency.GetKey()))
		b = message(b, ofConcurrency, varint(c, overlap, uint64(concurrency.GetOverlap()))) //nolint:gosec // 1 to 5
	}
	return b
}

// RunSchedule starts a run of a schedule by hand, also of one that is paused.
type RunSchedule struct {
	Schedule   ScheduleID
	TickMS     int64 // the run is for this tick, which may have run before; 0 = none
	PreviousMS int64 // the tick before it; 0 = none
	Key        string
	KeyExpires int64    // ms; when the key may be forgotten
	Digest     [16]byte // of the request
}

func (*RunSchedule) kind() opKind { return 57 }

func (o *RunSchedule) fields(c *coder) {
	number(c, &o.Schedule)
	c.i64(&o.TickMS)
	c.i64(&o.PreviousMS)
	c.str(&o.Key)
	c.i64(&o.KeyExpires)
	c.digest(&o.Digest)
}

// apply starts the run. The overlap rule holds, but the runs of a backfill, which have a
// tick, wait for each other unless they may overlap: they neither replace nor skip one.
// Rejects: Malformed, ScheduleNotFound, KeyConflict if a request has the key,
// IdentityNotFound and IdentityRevoked if the owner is gone, RunOpen.
func (o *RunSchedule) apply(s *State, fx *Effects) Reason {
	x := s.Schedule(o.Schedule)
	switch {
	case o.Key == "" || tooLong(o.Key) || o.TickMS < 0 || o.PreviousMS < 0:
		return Malformed
	case x == nil:
		return ScheduleNotFound
	}
	if _, known := s.keys.get(o.Key); known {
		return KeyConflict
	}
	if r := s.ownerRefusal(x.Owner); r != Accepted {
		return r
	}
	rule := x.Overlap
	if o.TickMS != 0 && rule != OverlapAllow {
		rule = OverlapWaitAll
	}
	if r := s.admit(x.RunHeader(), rule, s.nextJob, fx); r != Accepted {
		return r
	}
	id := s.run(x, o.Key, &dtaskv1.ScheduledRun{TickMs: o.TickMS, PreviousMs: o.PreviousMS, Manual: true}, fx)
	k := key{job: id, expires: o.KeyExpires, version: submittedVersion, digest: o.Digest}
	s.keys.set(s.own, o.Key, k)
	s.mixKey(o.Key, k)
	runs := s.runsWith(x, id)
	s.progress(x, func(x *Schedule) {
		x.runs = runs
		x.record(ScheduleOutcome{TickMS: o.TickMS, AtMS: s.now, Decision: TickRuns, Job: id, Manual: true})
	})
	return Accepted
}
