package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// ScheduleID is the number of a schedule, from 1. It is never reused.
type ScheduleID uint64

// Overlap is what happens to a run that is due while earlier runs have not ended.
type Overlap uint8

// The rules for overlaps. The zero value is never valid.
const (
	OverlapSkip    Overlap = iota + 1 // it does not run
	OverlapWait                       // it waits; at most one does
	OverlapWaitAll                    // it waits; at most 100 runs are open
	OverlapReplace                    // it waits until the earlier ones, which are cancelled, have ended
	OverlapAllow                      // it runs
	numOverlaps
)

// MissedRule is which of the ticks that were missed run later. The leader applies it.
type MissedRule uint8

// The rules for missed ticks. The zero value is never valid.
const (
	MissedOne  MissedRule = iota + 1 // the newest
	MissedAll                        // all, the oldest first
	MissedSkip                       // none
	numMissedRules
)

// Recurrence is when a schedule fires, as it was written. The state machine stores it and
// never evaluates it: it has neither a clock nor time zones. One of Cron, EveryMS and At
// is set.
type Recurrence struct {
	Cron        []string
	EveryMS     int64
	At          []string
	Zone        string // IANA name; empty = UTC
	Gap, Repeat uint8  // as in internal/calendar; 0 = default
	JitterMS    int64
	From, Until string
	Except      []string
	// Ordered means that the wall-clock times of successive ticks grow. Then no wall-clock
	// time fires twice, even if two leaders have different time zones.
	Ordered bool
}

func (r *Recurrence) fields(c *coder) {
	list(c, &r.Cron, c.str)
	c.i64(&r.EveryMS)
	list(c, &r.At, c.str)
	c.str(&r.Zone)
	number(c, &r.Gap)
	number(c, &r.Repeat)
	c.i64(&r.JitterMS)
	c.str(&r.From)
	c.str(&r.Until)
	list(c, &r.Except, c.str)
	c.bool(&r.Ordered)
}

// encoded returns the recurrence as bytes. Equal ones have equal bytes.
func (r *Recurrence) encoded() []byte {
	var e encoder
	r.fields(&coder{e: &e})
	return e.b
}

func (r *Recurrence) malformed() bool {
	kinds := 0
	for _, set := range []bool{len(r.Cron) > 0, r.EveryMS != 0, len(r.At) > 0} {
		if set {
			kinds++
		}
	}
	return kinds != 1 || r.EveryMS < 0 || r.JitterMS < 0 || len(r.encoded()) > maxRecurrence
}

// ScheduleRules are what a schedule does with runs that overlap, and with ticks that were
// missed.
type ScheduleRules struct {
	Overlap  Overlap
	Missed   MissedRule
	WithinMS int64 // how old a missed tick that runs may be; 0 with MissedSkip
}

func (r *ScheduleRules) fields(c *coder) {
	number(c, &r.Overlap)
	number(c, &r.Missed)
	c.i64(&r.WithinMS)
}

func (r *ScheduleRules) malformed() bool {
	return r.Overlap == 0 || r.Overlap >= numOverlaps || r.Missed == 0 || r.Missed >= numMissedRules ||
		r.WithinMS < 0 || (r.WithinMS == 0) != (r.Missed == MissedSkip)
}

// Decision is what a leader has decided for a tick.
type Decision uint8

// The decisions. The zero value is never valid.
const (
	TickRuns          Decision = iota + 1 // a job runs
	TickSkippedOpen                       // it is skipped because an earlier run is open
	TickSkippedMissed                     // it is skipped because it was missed
	numDecisions
)

// ScheduleOutcome is what happened to a tick, or a run that was started by hand.
type ScheduleOutcome struct {
	TickMS   int64 // 0 = a run by hand, for no tick
	AtMS     int64 // when it was decided, by the leader's clock
	Decision Decision
	Job      JobID  // 0 = skipped
	Manual   bool   // started by hand
	Earlier  uint32 // missed ticks before it that were skipped with it; at most 1,000 are counted
}

func (o *ScheduleOutcome) fields(c *coder) {
	c.i64(&o.TickMS)
	c.i64(&o.AtMS)
	number(c, &o.Decision)
	number(c, &o.Job)
	c.bool(&o.Manual)
	number(c, &o.Earlier)
}

// Schedule starts jobs at the times of its recurrence. Values never change once they are
// in the state.
type Schedule struct {
	ID        ScheduleID
	Namespace string     // empty = default
	Name      string     // that of its jobs
	Version   uint32     // starts at 1; each replacement adds 1
	Owner     IdentityID // the identity that set it; 0 = none: the cluster has no identities
	By        string     // name of the one that set it
	Recurrence
	ScheduleRules
	Digest    [16]byte // of the request that set it
	CreatedMS int64
	ChangedMS int64 // when it was last replaced

	PausedMS    int64 // 0 = not paused
	PausedBy    string
	PauseReason string
	// AfterMS is the time up to which every tick is decided: it ran, was skipped, or was
	// before the schedule was set or while it was paused. Only later ones fire.
	AfterMS   int64
	LastCivil int64             // wall-clock time of the last tick that was decided, in seconds since 1970; 0 = none
	LastRunMS int64             // tick of the last run; 0 = none
	Outcomes  []ScheduleOutcome // the last 20, the oldest first
	runs      []JobID           // the runs that had not ended when the last one started, and that one

	form *job // its jobs before they start: complete, without number, records and key
}

// IsPaused reports whether the schedule does not fire until it is resumed.
func (x *Schedule) IsPaused() bool { return x.PausedMS != 0 }

// Header is the header of its jobs. Shared: never change it.
func (x *Schedule) Header() *dtaskv1.JobHeader { return x.form.header }

// Total is the number of tasks of each of its jobs.
func (x *Schedule) Total() uint32 { return x.form.total }

// Submitted returns what the schedule runs, as it was submitted.
func (x *Schedule) Submitted() (*dtaskv1.JobSpec, error) { return x.form.asSubmitted() }

// key is what the schedule is found by.
func (x *Schedule) key() string { return ScopedKey(x.Namespace, x.Name) }

// size is the length of the template in bytes.
func (x *Schedule) size() int {
	n := len(x.form.headerBytes)
	for _, c := range x.form.chunks {
		n += c.Size()
	}
	return n
}

// fields codes all but the chunks of the template.
func (x *Schedule) fields(c *coder) {
	number(c, &x.ID)
	x.definition(c)
	x.progress(c)
}

// definition codes what only a replacement changes.
func (x *Schedule) definition(c *coder) {
	number(c, &x.Version)
	number(c, &x.Owner)
	c.str(&x.By)
	x.Recurrence.fields(c)
	x.ScheduleRules.fields(c)
	c.digest(&x.Digest)
	c.i64(&x.CreatedMS)
	c.i64(&x.ChangedMS)
	c.bytes(&x.form.headerBytes)
	number(c, &x.form.total)
	c.digest(&x.form.digest)
}

// progress codes what changes when the schedule fires or is paused.
func (x *Schedule) progress(c *coder) {
	c.i64(&x.PausedMS)
	c.str(&x.PausedBy)
	c.str(&x.PauseReason)
	c.i64(&x.AfterMS)
	c.i64(&x.LastCivil)
	c.i64(&x.LastRunMS)
	list(c, &x.Outcomes, func(o *ScheduleOutcome) { o.fields(c) })
	list(c, &x.runs, func(id *JobID) { number(c, id) })
}

// record appends an outcome and forgets those that are too old.
func (x *Schedule) record(o ScheduleOutcome) {
	keep := x.Outcomes[max(0, len(x.Outcomes)+1-maxScheduleOutcomes):]
	x.Outcomes = append(slices.Clone(keep), o)
}

// schedules are all schedules.
type schedules struct {
	own   *ownership
	list  []*Schedule        // ascending by number
	names cowMap[ScheduleID] // by Schedule.key
	next  ScheduleID         // the number of the next new schedule
	bytes int                // of all templates
}

func (t *schedules) at(id ScheduleID) (at int, found bool) {
	return slices.BinarySearchFunc(t.list, id, func(x *Schedule, id ScheduleID) int { return cmp.Compare(x.ID, id) })
}

// write returns the list for changing.
func (t *schedules) write(own *ownership) []*Schedule {
	if t.own != own {
		t.list, t.own = slices.Clone(t.list), own
	}
	return t.list
}

// Schedule returns a schedule, or nil if it is unknown. Shared: never change it.
func (t *schedules) Schedule(id ScheduleID) *Schedule {
	at, found := t.at(id)
	if !found {
		return nil
	}
	return t.list[at]
}

// ScheduleByName returns the schedule of a namespace with a name, or nil; an empty
// namespace is the default one.
func (t *schedules) ScheduleByName(namespace, name string) *Schedule {
	if IsScoped(name) { // it would be one of another namespace
		return nil
	}
	id, ok := t.names.get(ScopedKey(namespace, name))
	if !ok {
		return nil
	}
	return t.Schedule(id)
}

// Schedules iterates over the schedules by number.
func (t *schedules) Schedules() iter.Seq[*Schedule] { return slices.Values(t.list) }

// ScheduleCount is the number of schedules; at most 10,000.
func (t *schedules) ScheduleCount() int { return len(t.list) }

// OpenRuns returns the runs of a schedule that have not ended, the oldest first. A run that
// ended and was retried after a later one began is not among them.
func (s *State) OpenRuns(x *Schedule) []JobID {
	var open []JobID
	for _, id := range x.runs {
		if j := s.sealedJob(id); j != nil && !j.state.Terminal() {
			open = append(open, id)
		}
	}
	return open
}

// scheduleOwners returns the identities that have set a schedule.
func (s *State) scheduleOwners() map[IdentityID]struct{} {
	owners := make(map[IdentityID]struct{})
	for _, x := range s.schedules.list {
		owners[x.Owner] = struct{}{}
	}
	return owners
}

// OwnerLives reports whether the identity that set a schedule exists and is not revoked.
// Otherwise the schedule does not fire. Its credentials may have expired.
func (s *State) OwnerLives(x *Schedule) bool { return s.ownerRefusal(x.Owner) == Accepted }

func (s *State) ownerRefusal(id IdentityID) Reason {
	if id == 0 {
		return Accepted
	}
	switch i := s.Identity(id); {
	case i == nil:
		return IdentityNotFound
	case i.IsRevoked():
		return IdentityRevoked
	}
	return Accepted
}

func (d *digester) mixScheduleProgress(x *Schedule) {
	var e encoder
	x.progress(&coder{e: &e})
	d.mix(uint64(x.ID))
	d.mixBytes(e.b)
}

func (d *digester) mixSchedule(x *Schedule) {
	var e encoder
	x.definition(&coder{e: &e})
	d.mixBytes(e.b)
	d.mixScheduleProgress(x)
}

// schedules writes the frames of the schedules. A cluster that never had one has none, so
// that the form of its snapshots is that of builds without schedules.
func (f *frameWriter) schedules(s *State) {
	if s.schedules.next == 1 {
		return
	}
	number(&f.c, &s.schedules.next)
	f.frame(frameSchedules)
	for _, x := range s.schedules.list {
		chunks := uint32(len(x.form.chunks)) //nolint:gosec // ≤ total
		x.fields(&f.c)
		number(&f.c, &chunks)
		f.frame(frameSchedule)
		for _, c := range x.form.chunks {
			f.c.chunk(&c, false)
			f.frame(frameChunk)
		}
	}
}

// shareTemplates lets the runs of schedules refer to the chunks that are written before.
// Otherwise a snapshot, and the memory of a replica that reads it, would have the tasks of a
// schedule once per run.
func (f *frameWriter) shareTemplates(s *State) {
	f.holders = make(map[*Chunk]JobID)
	for _, x := range s.schedules.list {
		f.holders[x.form.chunks[0]] = 0
	}
}

// holder returns the job that was written with the chunks of a run; 0 = they are the
// template of its schedule. The template of a run may have been replaced or deleted: the
// first of its runs has the chunks then.
func (f *frameWriter) holder(j *job) (id JobID, shared bool) {
	if f.holders == nil || j.header.GetRun() == nil || j.state == JobUploading {
		return 0, false
	}
	id, shared = f.holders[j.chunks[0]]
	if !shared {
		f.holders[j.chunks[0]] = j.id
	}
	return id, shared
}

// sharedChunks reads the reference of a run to its chunks, and returns the number of their
// tasks.
func (f *frameReader) sharedChunks(j *job, _ uint32) (tasks uint32, err error) {
	d, err := f.expect(frameSharedChunks)
	if err != nil {
		return 0, err
	}
	id := JobID(0)
	number(&coder{d: d}, &id)
	if err := d.done(); err != nil {
		return 0, err
	}
	of := f.s.sealedJob(id)
	if x := f.s.Schedule(ScheduleID(j.header.GetRun().GetScheduleId())); id == 0 && x != nil {
		of = x.form
	}
	if of == nil {
		return 0, fmt.Errorf("unknown job %d has its tasks", id)
	}
	for _, c := range of.chunks {
		if !j.include(c) {
			return 0, errors.New("tasks without policy or out of order")
		}
		tasks += uint32(c.Len()) //nolint:gosec // ≤ total of the other job
		j.chunks = append(j.chunks, c)
	}
	j.chunks, j.succ, j.sum = slices.Clip(of.chunks), of.succ, of.sum
	return tasks, nil
}

// schedules reads the first of these frames.
func (f *frameReader) schedules(d *decoder) {
	t := &f.s.schedules
	again := t.next > 1
	number(&coder{d: d}, &t.next)
	if d.err == nil && (again || t.next < 2) {
		d.fail(fmt.Errorf("second frame of schedules, or next schedule %d is out of range", t.next))
	}
}

// schedule reads a schedule with the frames of its template.
func (f *frameReader) schedule(d *decoder) error {
	x, chunks := &Schedule{form: new(job)}, uint32(0)
	c := coder{d: d}
	x.fields(&c)
	number(&c, &chunks)
	if err := d.done(); err != nil {
		return err
	}
	h, err := f.s.headers.decode(x.form.headerBytes)
	if err != nil {
		return fmt.Errorf("schedule %d: %w", x.ID, err)
	}
	x.form.headerBytes, x.form.header = h.encoded, h.decoded
	x.Namespace, x.Name = h.decoded.GetNamespace(), h.decoded.GetName()
	tasks, err := f.chunks(x.form, chunks)
	if err != nil || tasks != x.form.total || x.form.ordinary == 0 || x.form.needs() > 0 {
		return fmt.Errorf("schedule %d: invalid template of %d tasks, want %d: %w", x.ID, tasks, x.form.total, cmp.Or(err, errNoTemplate))
	}
	x.form.succ = x.form.makeSuccessors()
	t := &f.s.schedules
	t.own = f.s.own
	t.list = append(t.list, x)
	t.names.set(f.s.own, x.key(), x.ID)
	t.bytes += x.size()
	return nil
}

var errNoTemplate = errors.New("missing or unfit tasks")

// check checks each schedule, and that it is found by its name.
func (t *schedules) check(nextJob JobID) error {
	last, bytes := ScheduleID(0), 0
	for _, x := range t.list {
		switch {
		case x.ID <= last || x.ID >= t.next:
			return fmt.Errorf("schedule %d follows schedule %d, next is %d", x.ID, last, t.next)
		case x.malformed():
			return fmt.Errorf("schedule %d is malformed", x.ID)
		case t.ScheduleByName(x.Namespace, x.Name) != x:
			return fmt.Errorf("schedule %d is not found by its name %q", x.ID, x.Name)
		}
		if err := x.checkRuns(nextJob); err != nil {
			return fmt.Errorf("schedule %d: %w", x.ID, err)
		}
		last = x.ID
		bytes += x.size()
	}
	if len(t.list) > maxSchedules || t.names.n != len(t.list) || bytes != t.bytes || bytes > maxTemplates {
		return fmt.Errorf("%d schedules have %d names and %d bytes, counted %d", len(t.list), t.names.n, t.bytes, bytes)
	}
	return nil
}

func (x *Schedule) malformed() bool {
	return x.Version == 0 || !isName(x.Name) || x.Recurrence.malformed() || x.ScheduleRules.malformed() ||
		len(x.By) > maxIdentityText || len(x.PausedBy) > maxIdentityText || tooLong(x.PauseReason) ||
		x.CreatedMS <= 0 || x.ChangedMS < x.CreatedMS && x.Version == 1 || x.AfterMS <= 0 || x.PausedMS < 0 ||
		!x.IsPaused() && (x.PausedBy != "" || x.PauseReason != "") ||
		len(x.Outcomes) > maxScheduleOutcomes || len(x.runs) > maxOpenRuns
}

// checkRuns checks that no tick ran twice, and that its jobs exist or have left.
func (x *Schedule) checkRuns(next JobID) error {
	last := int64(0)
	for _, o := range x.Outcomes {
		if o.Decision == 0 || o.Decision >= numDecisions || (o.Job == 0) != (o.Decision != TickRuns) || o.Job >= next {
			return fmt.Errorf("invalid outcome of tick %d with job %d", o.TickMS, o.Job)
		}
		if o.Manual {
			continue
		}
		if o.TickMS <= last || o.TickMS > x.AfterMS {
			return fmt.Errorf("tick %d follows tick %d, decided up to %d", o.TickMS, last, x.AfterMS)
		}
		last = o.TickMS
	}
	for k, id := range x.runs {
		if id == 0 || id >= next || k > 0 && x.runs[k-1] >= id {
			return fmt.Errorf("run %d is unsorted or out of range", id)
		}
	}
	return nil
}
