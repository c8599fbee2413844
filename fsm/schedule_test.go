package fsm

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// setOf returns the operations that set a schedule whose jobs are a plan.
func setOf(id JobID, p *jobPlan, change func(*SetSchedule)) []Op {
	ops := p.submit(id, "set", 1)
	o := &SetSchedule{
		Upload: id, Sum: p.sum(), Digest: [16]byte{7}, Recurrence: Recurrence{Cron: []string{"30 2 * * *"}, Zone: "Europe/Berlin", Ordered: true},
		ScheduleRules: ScheduleRules{Overlap: OverlapSkip, Missed: MissedOne, WithinMS: 1000}, By: "alice", AtMS: 1000,
	}
	if change != nil {
		change(o)
	}
	return append(ops[:len(ops)-1], o) // in place of the seal
}

// scheduled returns a state with a schedule whose jobs are a plan.
func scheduled(t *testing.T, p *jobPlan, change func(*SetSchedule)) *State {
	t.Helper()
	s := New()
	s.level.current = 3
	if r := s.Apply(Entry{NowMS: 1000, Ops: append([]Op{worker(1)}, setOf(1, p, change)...)}, nil); r != Accepted {
		t.Fatal(r)
	}
	return s
}

// at returns a fire of schedule 1 for a tick.
func fireAt(tickMS, civil int64) *Fire {
	return &Fire{Schedule: 1, Version: 1, TickMS: tickMS, Civil: civil, Decision: TickRuns}
}

func TestATickFiresOnce(t *testing.T) {
	t.Parallel()
	s := scheduled(t, plan(nil), func(o *SetSchedule) { o.Overlap = OverlapAllow })
	for i, x := range []struct {
		op   Op
		want Reason
	}{
		{fireAt(1000, 1), TickPassed}, // before it was set
		{fireAt(2000, 3600), Accepted},
		{fireAt(2000, 3600), TickPassed}, // the next leader, that does not know of it
		{fireAt(1999, 3700), TickPassed}, // a leader whose clock was set back
		{fireAt(3000, 3600), TickPassed}, // a leader whose zone has another offset
		{fireAt(3000, 3599), TickPassed}, // the same
		{fireAt(3000, 3601), Accepted},
		{&Fire{Schedule: 1, Version: 2, TickMS: 4000, Civil: 9000, Decision: TickRuns}, VersionMismatch},
		{&Fire{Schedule: 1, Version: 1, TickMS: 4000, Civil: 9000, Decision: TickSkippedMissed, Earlier: 4}, Accepted},
		{fireAt(4000, 9001), TickPassed}, // a tick that was skipped
		{&PauseSchedule{ID: 1, Reason: "new disk", By: "bob", AtMS: 4500}, Accepted},
		{fireAt(5000, 9100), SchedulePaused},
		{&ResumeSchedule{ID: 1, AtMS: 6000}, Accepted},
		{fireAt(5000, 9100), TickPassed}, // while it was paused
		{fireAt(7000, 9200), Accepted},
		{&DeleteSchedule{ID: 1, IfVersion: 2}, VersionMismatch},
		{&DeleteSchedule{ID: 1, IfVersion: 1}, Accepted},
		{fireAt(8000, 9300), ScheduleNotFound},
	} {
		if got := s.Apply(Entry{NowMS: 9000, Ops: []Op{x.op}}, nil); got != x.want {
			t.Errorf("operation %d %+v: got %v, want %v", i, x.op, got, x.want)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if jobs, _ := s.CountByState(); jobs[JobPending] != 3 {
		t.Errorf("got %d jobs, want 3", jobs[JobPending])
	}
}

// A schedule that is replaced keeps what was decided; another recurrence has other
// wall-clock times.
func TestAReplacedScheduleFiresNoTickAgain(t *testing.T) {
	t.Parallel()
	for what, x := range map[string]struct {
		change func(*SetSchedule)
		civil  Reason // of an earlier wall-clock time
	}{
		"other rules":      {func(o *SetSchedule) { o.Overlap = OverlapAllow }, TickPassed},
		"other recurrence": {func(o *SetSchedule) { o.Cron = []string{"0 3 * * *"} }, Accepted},
	} {
		s := scheduled(t, plan(nil), nil)
		apply := func(op Op) Reason { return s.Apply(Entry{NowMS: 5000, Ops: []Op{op}}, nil) }
		if r := apply(fireAt(2000, 3600)); r != Accepted {
			t.Fatal(r)
		}
		if r := apply(&CancelJob{Job: 2, Reason: "not needed"}); r != Accepted {
			t.Fatal(r)
		}
		old := s.Schedule(1)
		if r := s.Apply(Entry{NowMS: 5000, Ops: setOf(s.NextJob(), plan(nil), func(o *SetSchedule) { o.AtMS = 3000; o.IfVersion = 1; x.change(o) })}, nil); r != Accepted {
			t.Fatal(what, r)
		}
		now := s.Schedule(1)
		if now.Version != 2 || now.CreatedMS != old.CreatedMS || len(now.Outcomes) != 1 || now.LastRunMS != 2000 || now.AfterMS != 3000 {
			t.Errorf("%s: got %+v", what, now)
		}
		if r := apply(&Fire{Schedule: 1, Version: 2, TickMS: 3000, Civil: 9000, Decision: TickRuns}); r != TickPassed {
			t.Errorf("%s: a tick before the replacement: got %v", what, r)
		}
		if r := apply(&Fire{Schedule: 1, Version: 2, TickMS: 4000, Civil: 3600, Decision: TickRuns}); r != x.civil {
			t.Errorf("%s: an earlier wall-clock time: got %v, want %v", what, r, x.civil)
		}
	}
}

// The same request again changes nothing, so that it can be repeated.
func TestARepeatedRequestToSetAScheduleChangesNothing(t *testing.T) {
	t.Parallel()
	s := scheduled(t, plan(nil), nil)
	before := s.Schedule(1)
	if r := s.Apply(Entry{NowMS: 5000, Ops: setOf(s.NextJob(), plan(nil), func(o *SetSchedule) { o.AtMS = 3000; o.IfVersion = 7 })}, nil); r != Accepted {
		t.Fatal(r)
	}
	if s.Schedule(1) != before || slices.Collect(s.Uploads()) != nil || s.Keys() != 0 {
		t.Errorf("got %+v, want %+v, and no upload", s.Schedule(1), before)
	}
	other := setOf(s.NextJob(), plan(nil), func(o *SetSchedule) { o.Overlap = OverlapWait; o.IfVersion = 7 })
	if r := s.Apply(Entry{NowMS: 5000, Ops: other}, nil); r != VersionMismatch {
		t.Errorf("another version: got %v", r)
	}
}

// What a leader writes for a tick does not depend on the size of the job.
func TestAFireIsShortAndSharesTheTasks(t *testing.T) {
	t.Parallel()
	s := scheduled(t, chain(500), nil)
	op := &Fire{Schedule: 1, Version: 1, TickMS: 1_800_000_000_000, Civil: 1_800_007_200, Decision: TickRuns}
	empty := len(Encode(nil, Entry{NowMS: 1_800_000_000_010, After: 1 << 20}))
	if n := len(Encode(nil, Entry{NowMS: 1_800_000_000_010, After: 1 << 20, Ops: []Op{op}})); n-empty > 24 || n > 60 {
		t.Errorf("a fire takes %d bytes, %d of them for the operation", n, n-empty)
	}
	fx := new(Effects)
	if r := s.Apply(Entry{NowMS: 9000, Ops: []Op{op}}, fx); r != Accepted {
		t.Fatal(r)
	}
	x, j := s.Schedule(1), s.jobs.get(2)
	if j.chunks[0] != x.form.chunks[0] || j.succ != x.form.succ {
		t.Error("the run has a copy of the tasks")
	}
	if len(fx.Sealed) != 1 || len(fx.Gated) != 1 || len(fx.Ready) != 0 || j.total != 500 || j.submitted != 9000 {
		t.Errorf("got the effects %+v of job %+v", fx, j.view())
	}
	want := &dtaskv1.ScheduledRun{Schedule: "plan", ScheduleId: 1, TickMs: op.TickMS}
	if got := j.header.GetRun(); got.String() != want.String() {
		t.Errorf("the run is %v, want %v", got, want)
	}
}

func TestSchedulesAreInSnapshots(t *testing.T) {
	t.Parallel()
	s := scheduled(t, diamond(), func(o *SetSchedule) { o.Overlap = OverlapWaitAll })
	for i, op := range []Op{
		fireAt(2000, 3600), fireAt(3000, 3700), &RunSchedule{Schedule: 1, TickMS: 500, PreviousMS: 400, Key: "again", KeyExpires: 99},
		&PauseSchedule{ID: 1, Reason: "new disk", By: "bob", AtMS: 4500},
	} {
		if r := s.Apply(Entry{NowMS: 4000, Ops: []Op{op}}, nil); r != Accepted {
			t.Fatal(i, r)
		}
	}
	data := snapshotOf(t, s)
	again := restored(t, data)
	if !bytes.Equal(snapshotOf(t, again), data) || again.Digest() != s.Digest() {
		t.Error("writing the restored state changes it")
	}
	for _, x := range []*State{s, again} {
		e := Entry{NowMS: 5000, Ops: []Op{&ResumeSchedule{ID: 1, AtMS: 4600}, fireAt(5000, 3800)}}
		if r := x.Apply(e, nil); r != Accepted {
			t.Fatal(r)
		}
	}
	if again.Digest() != s.Digest() || !bytes.Equal(snapshotOf(t, again), snapshotOf(t, s)) {
		t.Error("the restored state fires otherwise")
	}
	if open := again.OpenRuns(again.Schedule(1)); !slices.Equal(open, []JobID{2, 3, 4, 5}) {
		t.Errorf("open runs are %v", open)
	}
}

// The tasks of a schedule are in memory and in a snapshot once, however many runs there are.
func TestTheRunsOfAScheduleShareTheirTasksAfterARestore(t *testing.T) {
	t.Parallel()
	const large, runs = 100_000, 20
	p := &jobPlan{tasks: []taskPlan{{name: "a", body: append([]byte{0x2a, 0xa0, 0x8d, 0x06}, make([]byte, large)...)}, {name: "b", deps: []uint32{0}}}}
	s := scheduled(t, p, func(o *SetSchedule) { o.Overlap = OverlapAllow; o.Ordered = false })
	tick := int64(2000)
	fire := func(version uint32) {
		for range runs {
			if r := s.Apply(Entry{NowMS: 9000, Ops: []Op{&Fire{Schedule: 1, Version: version, TickMS: tick, Decision: TickRuns}}}, nil); r != Accepted {
				t.Fatal(r)
			}
			tick++
		}
	}
	fire(1)
	if r := s.Apply(Entry{NowMS: 9000, Ops: setOf(s.NextJob(), p, func(o *SetSchedule) { o.Overlap = OverlapAllow; o.AtMS = 2500 })}, nil); r != Accepted {
		t.Fatal(r)
	}
	tick = 3000
	fire(2)
	data := snapshotOf(t, s)
	if n := len(data) / large; n != 2 {
		t.Errorf("a snapshot of %d bytes has the tasks %d times, want twice: before and after the replacement", len(data), n)
	}
	again := restored(t, data)
	sameState(t, "after a restore", again, s)
	x, distinct := again.Schedule(1), map[*Chunk]int{}
	for j := range again.jobs.all() {
		distinct[j.chunks[0]]++
		if (j.chunks[0] == x.form.chunks[0]) != (j.succ == x.form.succ) || j.succ == nil {
			t.Errorf("job %d does not share its edges", j.id)
		}
	}
	if len(distinct) != 2 || distinct[x.form.chunks[0]] != runs {
		t.Errorf("the runs have %d lists of tasks, and %d have that of the schedule", len(distinct), distinct[x.form.chunks[0]])
	}
	if err := again.Check(); err != nil {
		t.Error(err)
	}
	for _, state := range []*State{s, again} { // without the template
		if r := state.Apply(Entry{NowMS: 9000, Ops: []Op{&DeleteSchedule{ID: 1}}}, nil); r != Accepted {
			t.Fatal(r)
		}
	}
	sameState(t, "after another restore", restored(t, snapshotOf(t, again)), s)
}

// The header of a rerun has the run of another job, and the schedule does not know of it.
func TestARerunHasItsOwnTasksInASnapshot(t *testing.T) {
	t.Parallel()
	s := scheduled(t, diamond(), func(o *SetSchedule) { o.Overlap = OverlapAllow })
	if r := s.Apply(Entry{NowMS: 3000, Ops: []Op{fireAt(2000, 3600)}}, nil); r != Accepted {
		t.Fatal(r)
	}
	before := s.Schedule(1)
	ops := diamond().submit(3, "rerun", 2)
	begin, ok := ops[0].(*BeginUpload)
	if !ok {
		t.Fatalf("the upload begins with %T", ops[0])
	}
	begin.Header = appendRun(begin.Header, s.jobs.get(2).header.GetRun(), nil)
	if r := s.Apply(Entry{NowMS: 4000, Ops: ops}, nil); r != Accepted {
		t.Fatal(r)
	}
	if x := s.Schedule(1); x != before || !slices.Equal(s.OpenRuns(x), []JobID{2}) || s.jobs.get(3).header.GetRun().GetTickMs() != 2000 {
		t.Errorf("got %+v, want %+v", x, before)
	}
	sameState(t, "after a restore", restored(t, snapshotOf(t, s)), s)
	if r := s.Apply(Entry{NowMS: 5000, Ops: []Op{fireAt(2000, 3600)}}, nil); r != TickPassed {
		t.Errorf("the tick again: got %v", r)
	}
}

// ofTemplate returns what a template has of a run: the time zone, or nothing.
func ofTemplate(run *dtaskv1.ScheduledRun) *dtaskv1.ScheduledRun {
	if run.GetTimezone() == "" {
		return nil
	}
	return &dtaskv1.ScheduledRun{Timezone: run.GetTimezone()}
}

func TestTheHeaderOfARunIsThatOfItsMessage(t *testing.T) {
	t.Parallel()
	for _, run := range []*dtaskv1.ScheduledRun{
		{Schedule: "nightly", ScheduleId: 300, TickMs: 1_800_000_000_000, PreviousMs: 1_799_000_000_000},
		{Schedule: "nightly", ScheduleId: 1, Manual: true},
		{Schedule: "nightly", ScheduleId: 1, TickMs: 1_800_000_000_000, Timezone: "Europe/Berlin"},
	} {
		for _, concurrency := range []*dtaskv1.JobConcurrency{nil, {Key: "nightly", Overlap: dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_WAIT}} {
			h := &dtaskv1.JobHeader{Name: "nightly", Run: run, Concurrency: concurrency}
			template, err := proto.Marshal(&dtaskv1.JobHeader{Name: "nightly", Run: ofTemplate(run)})
			if err != nil {
				t.Fatal(err)
			}
			got := new(dtaskv1.JobHeader)
			if err := proto.Unmarshal(appendRun(template, run, concurrency), got); err != nil || !proto.Equal(got, h) {
				t.Errorf("got %v, %v, want %v", got, err, h)
			}
		}
	}
}

// The token of the user who has set a schedule may expire. The schedule fires on, however long
// ago that was.
func TestTheOwnerOfAScheduleIsNotForgotten(t *testing.T) {
	t.Parallel()
	s := New()
	s.level.current = 3
	for id := range byte(2) {
		o := &CreateIdentity{Name: string('a' + rune(id)), Grant: Grant{Role: RoleSubmitter}, Credential: Credential{Kind: TokenCredential, Hash: [32]byte{id + 1}, ExpiresMS: 2000}, CreatedMS: 500}
		if r := s.Apply(Entry{NowMS: 500, Ops: []Op{o}}, nil); r != Accepted {
			t.Fatal(r)
		}
	}
	if r := s.Apply(Entry{NowMS: 1000, Ops: setOf(1, plan(nil), func(o *SetSchedule) { o.Owner = 1 })}, nil); r != Accepted {
		t.Fatal(r)
	}
	forget := func() Reason {
		return s.Apply(Entry{NowMS: 9000, Ops: []Op{&ForgetIdentities{BeforeMS: 8000, Max: 9}}}, nil)
	}
	if r := forget(); r != Accepted || s.Identity(2) != nil || !s.OwnerLives(s.Schedule(1)) {
		t.Errorf("got %v, identities %v and %v", r, s.Identity(1), s.Identity(2))
	}
	if s.HasEndedIdentities(8000) {
		t.Error("an identity is to be forgotten, again and again")
	}
	if r := forget(); r != AlreadyEnded {
		t.Errorf("again: got %v", r)
	}
	if r := s.Apply(Entry{NowMS: 9000, Ops: []Op{fireAt(5000, 3600), &DeleteSchedule{ID: 1}}}, nil); r != Accepted {
		t.Fatal(r)
	}
	if r := forget(); r != Accepted || s.Identity(1) != nil {
		t.Errorf("without the schedule: got %v", r)
	}
}

func TestScheduleLimits(t *testing.T) {
	t.Parallel()
	s := scheduled(t, plan(nil), func(o *SetSchedule) { o.Overlap = OverlapWaitAll; o.Ordered = false })
	for i := range int64(maxOpenRuns) {
		if r := s.Apply(Entry{NowMS: 1, Ops: []Op{fireAt(2000+i, 0)}}, nil); r != Accepted {
			t.Fatal(i, r)
		}
	}
	if r := s.Apply(Entry{NowMS: 1, Ops: []Op{fireAt(9000, 0)}}, nil); r != RunOpen {
		t.Errorf("with %d open runs: got %v", maxOpenRuns, r)
	}
	if n := len(s.Schedule(1).Outcomes); n != maxScheduleOutcomes {
		t.Errorf("%d outcomes are kept", n)
	}
	for what, change := range map[string]func(*SetSchedule){
		"no recurrence":      func(o *SetSchedule) { o.Cron = nil },
		"two recurrences":    func(o *SetSchedule) { o.EveryMS = 1000 },
		"no rule":            func(o *SetSchedule) { o.Overlap = 0 },
		"a long recurrence":  func(o *SetSchedule) { o.From = strings.Repeat("x", maxRecurrence) },
		"missed, but no age": func(o *SetSchedule) { o.WithinMS = 0 },
	} {
		if r := s.Fork().Apply(Entry{NowMS: 1, Ops: setOf(s.NextJob(), plan(nil), change)}, nil); r != Malformed {
			t.Errorf("%s: got %v", what, r)
		}
	}
	if r := s.Fork().Apply(Entry{NowMS: 1, Ops: setOf(s.NextJob(), needing(plan(nil), need(2)), nil)}, nil); r != Malformed {
		t.Errorf("a job that needs another: got %v", r)
	}
}

// A run that waits is cancelled: the next one still waits for the one that runs.
func TestAWaitingRunWaitsForAllRunsBeforeIt(t *testing.T) {
	t.Parallel()
	s := scheduled(t, plan(nil), func(o *SetSchedule) { o.Overlap = OverlapWaitAll })
	for i, op := range []Op{fireAt(2000, 3600), &OpenGate{Job: 2}, fireAt(3000, 3700), fireAt(4000, 3800), &CancelJob{Job: 3, Reason: "not needed"}} {
		if r := s.Apply(Entry{NowMS: 4000, Ops: []Op{op}}, nil); r != Accepted {
			t.Fatal(i, r)
		}
	}
	open := func() Reason { return s.Apply(Entry{NowMS: 5000, Ops: []Op{&OpenGate{Job: 4}}}, nil) }
	if j, _ := s.Job(4); !slices.Equal(j.WaitsFor, []JobID{2}) || open() != RunOpen {
		t.Errorf("the third run does not wait for the first: %+v", j)
	}
	if r := s.Apply(Entry{NowMS: 5000, Ops: []Op{&CancelJob{Job: 2, Reason: "not needed"}}}, nil); r != Accepted {
		t.Fatal(r)
	}
	if r := open(); r != Accepted {
		t.Errorf("the third run still waits: %v", r)
	}
	if j, _ := s.Job(4); j.Gated || len(j.WaitsFor) > 0 || j.Counts[Pending] != 1 {
		t.Errorf("the third run still waits: %+v", j)
	}
}
