package api

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/zoneinfo"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/spec"
)

// nightly names the schedule of these tests.
func nightly() *dtaskv1.GetScheduleRequest { return &dtaskv1.GetScheduleRequest{Name: "nightly"} }

func TestAScheduleIsSetReplacedPausedAndDeleted(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	ctx := as(t.Context(), "submitter")
	x := r.mustSet(t, "submitter", everyTenMinutes("nightly", ""))
	if x.GetNamespace() != "etl" || x.GetVersion() != 1 || x.GetSetBy() != "ci" || x.GetOwner() != "ci" || x.GetTasks() != 1 || x.GetState() != "active" {
		t.Errorf("set: got %v", x)
	}
	if len(x.GetNext()) != 3 || x.GetNext()[0].GetAt() != 1_200_000 || x.GetNext()[2].GetAt() != 2_400_000 {
		t.Errorf("next ticks: got %v", x.GetNext())
	}
	if got := x.GetTimeZones(); got != zoneinfo.Version() {
		t.Errorf("got the time zones %q, want %q", got, zoneinfo.Version())
	}
	if again := r.mustSet(t, "submitter", everyTenMinutes("nightly", "etl")); again.GetVersion() != 2 { // the namespace is in the file now
		t.Errorf("set with its namespace: got version %d", again.GetVersion())
	}
	if again := r.mustSet(t, "submitter", everyTenMinutes("nightly", "etl")); again.GetVersion() != 2 {
		t.Errorf("set again: got version %d, want 2", again.GetVersion())
	}
	other := everyTenMinutes("nightly", "")
	other.IfVersion = 7
	_, err := r.sendSchedule(ctx, other)
	wantConflict(t, err, codes.FailedPrecondition, `schedule "nightly" has version 2, and the request expects version 7`)

	for i := range 2 {
		got, err := r.schedules.PauseSchedule(ctx, &dtaskv1.PauseScheduleRequest{Name: "nightly", Reason: "new disk"})
		if x := got.GetSchedule(); err != nil || got.GetAlready() != (i > 0) || x.GetState() != "paused" || len(x.GetNext()) != 0 || x.GetPausedBy() != "ci" ||
			!strings.Contains(strings.Join(x.GetWhy(), "\n"), "by ci: new disk") {
			t.Errorf("pause %d: got %v, %v", i, got, err)
		}
	}
	for i := range 2 {
		got, err := r.schedules.ResumeSchedule(ctx, &dtaskv1.ResumeScheduleRequest{Name: "nightly"})
		if x := got.GetSchedule(); err != nil || got.GetAlready() != (i > 0) || x.GetState() != "active" || len(x.GetNext()) != 3 {
			t.Errorf("resume %d: got %v, %v", i, got, err)
		}
	}
	_, err = r.schedules.DeleteSchedule(ctx, &dtaskv1.DeleteScheduleRequest{Name: "nightly", IfVersion: 1})
	wantConflict(t, err, codes.FailedPrecondition, "has version 2")
	if _, err = r.schedules.DeleteSchedule(ctx, &dtaskv1.DeleteScheduleRequest{Name: "nightly", IfVersion: 2}); err != nil {
		t.Error(err)
	}
	_, err = r.schedules.GetSchedule(ctx, nightly())
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
}

func TestASchedulesShowsWhatHappenedToItsTicks(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	m := everyTenMinutes("nightly", "")
	m.Definition.Overlap = dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP
	r.mustSet(t, "submitter", m)
	r.leader.op(t,
		&fsm.Fire{Schedule: 1, Version: 1, TickMS: 1_200_000, Civil: 1200, Decision: fsm.TickRuns},
		&fsm.Fire{Schedule: 1, Version: 1, TickMS: 1_800_000, Civil: 1800, Decision: fsm.TickSkippedOpen, Earlier: 2})
	got, err := r.schedules.GetSchedule(as(t.Context(), "reader"), nightly())
	if err != nil {
		t.Fatal(err)
	}
	x := got.GetSchedule()
	list := x.GetOutcomes()
	if len(list) != 2 || list[0].GetDecision() != dtaskv1.ScheduleDecision_SCHEDULE_DECISION_SKIPPED_OPEN || list[0].GetEarlier() != 2 || list[1].GetTickAt() != 1_200_000 ||
		list[1].GetState() != dtaskv1.JobState_JOB_STATE_PENDING || x.GetLast().GetTickAt() != 1_800_000 || len(x.GetOpenJobs()) != 1 || x.GetOpenJobs()[0] != list[1].GetJob() {
		t.Errorf("got %v", x)
	}
	want := []string{
		"the first tick of every 10m after 1970-01-01T00:30:00Z, the last tick that was decided",
		"job " + list[1].GetJob() + " has not ended: a tick that is due before its end is skipped (overlap: skip)",
	}
	if diff := cmp.Diff(want, x.GetWhy()); diff != "" {
		t.Error(diff)
	}
	if x.GetNext()[0].GetAt() != 2_400_000 {
		t.Errorf("next: got %v", x.GetNext())
	}
}

// A leader with other time zones has decided the next ticks by their wall-clock times.
func TestAScheduleWhoseNextTickIsPastIsActive(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	m := everyTenMinutes("nightly", "")
	m.Definition.EveryMs, m.Definition.Cron = 0, []string{"0 0 * * *"}
	r.mustSet(t, "submitter", m)
	const day = 86_400_000
	r.leader.op(t, &fsm.Fire{Schedule: 1, Version: 1, TickMS: day, Civil: 3 * day / 1000, Decision: fsm.TickRuns})
	got, err := r.schedules.ListSchedules(as(t.Context(), "reader"), &dtaskv1.ListSchedulesRequest{})
	if err != nil || len(got.GetSchedules()) != 1 {
		t.Fatal(got, err)
	}
	if x := got.GetSchedules()[0]; x.GetState() != "active" || len(x.GetNext()) != 1 || x.GetNext()[0].GetAt() != 4*day {
		t.Errorf("got %v, want the next tick after four days", x)
	}
}

// Only the last 20 outcomes are kept, and runs by hand are among them.
func TestRunsByHandDoNotHideWhatDecidedTheNextTick(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	r.mustSet(t, "submitter", everyTenMinutes("nightly", ""))
	r.leader.op(t, &fsm.Fire{Schedule: 1, Version: 1, TickMS: 1_200_000, Civil: 1200, Decision: fsm.TickRuns})
	for i := range 20 {
		r.leader.op(t, &fsm.RunSchedule{Schedule: 1, Key: fmt.Sprint(i), KeyExpires: 1})
	}
	got, err := r.schedules.GetSchedule(as(t.Context(), "reader"), nightly())
	if err != nil || len(got.GetSchedule().GetOutcomes()) != 20 {
		t.Fatal(got, err)
	}
	if why, want := got.GetSchedule().GetWhy()[0], "after 1970-01-01T00:20:00Z, the last tick that was decided"; !strings.HasSuffix(why, want) {
		t.Errorf("got %q, want %q", why, want)
	}
}

// Schedules whose ticks are more than 20 per second stay late after an outage.
func TestAScheduleIsOverdueForAReason(t *testing.T) {
	t.Parallel()
	for missed, want := range map[dtaskv1.ScheduleMissed]string{
		dtaskv1.ScheduleMissed_SCHEDULE_MISSED_ALL:  "it is 11s overdue, and so a missed tick: those of all schedules start at 20 per second",
		dtaskv1.ScheduleMissed_SCHEDULE_MISSED_SKIP: "it is 11s overdue: the leader has no capacity",
	} {
		r := setupSchedules(t)
		m := everyTenMinutes("nightly", "")
		m.Definition.Missed = missed
		next := r.mustSet(t, "submitter", m).GetNext()[0].GetAt()
		r.leader.mu.Lock()
		r.leader.nowMS = next + 11_000
		r.leader.mu.Unlock()
		got, err := r.schedules.GetSchedule(as(t.Context(), "reader"), nightly())
		if err != nil || !strings.Contains(strings.Join(got.GetSchedule().GetWhy(), "\n"), want) {
			t.Errorf("got %v, %v, want %q", got.GetSchedule().GetWhy(), err, want)
		}
	}
}

func TestAScheduleThatDoesNotFireTellsWhy(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	r.mustSet(t, "submitter", everyTenMinutes("nightly", ""))
	once := everyTenMinutes("once", "")
	once.Definition = &dtaskv1.ScheduleDefinition{At: []string{"1970-01-01T00:20"}}
	r.mustSet(t, "submitter", once)
	why := func(name, state, text string) {
		t.Helper()
		got, err := r.schedules.GetSchedule(as(t.Context(), "reader"), &dtaskv1.GetScheduleRequest{Name: name})
		if x := got.GetSchedule(); err != nil || x.GetState() != state || len(x.GetNext()) != 0 || !strings.Contains(strings.Join(x.GetWhy(), "\n"), text) {
			t.Errorf("%s: got %v, %v; want %s because %q", name, x, err, state, text)
		}
	}
	r.leader.op(t, &fsm.Fire{Schedule: 2, Version: 1, TickMS: 1_200_000, Civil: 1200, Decision: fsm.TickRuns})
	why("once", "ended", "it has ended: at 1970-01-01T00:20 has no tick after")
	r.leader.mu.Lock()
	r.leader.clockInDoubt = true
	r.leader.mu.Unlock()
	why("nightly", "held", "the wall clock of the leader is not confirmed")
	r.leader.op(t, &fsm.RevokeIdentity{IDs: []fsm.IdentityID{2}, AtMS: 1_500_000})
	why("nightly", "held", `the identity "ci", which set it, was revoked`)
	_, err := r.schedules.RunSchedule(as(t.Context(), "both"), &dtaskv1.RunScheduleRequest{Namespace: "etl", Name: "nightly", IdempotencyKey: "k"})
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
}

// A team must not learn which schedules another one has.
func TestSchedulesOfOtherNamespacesAreUnknown(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	r.mustSet(t, "submitter", everyTenMinutes("nightly", ""))
	r.mustSet(t, "ml", everyTenMinutes("train", ""))
	for who, want := range map[string]int{"submitter": 1, "reader": 1, "ml": 1, "both": 2, "admin": 2, "all": 2, "none": 0} {
		got, err := r.schedules.ListSchedules(as(t.Context(), who), &dtaskv1.ListSchedulesRequest{})
		if err != nil || len(got.GetSchedules()) != want {
			t.Errorf("%s lists %v, %v; want %d", who, got, err, want)
		}
	}
	ctx := as(t.Context(), "ml")
	calls := map[string]func(name string) error{
		"get": func(name string) error {
			_, err := r.schedules.GetSchedule(ctx, &dtaskv1.GetScheduleRequest{Namespace: "etl", Name: name})
			return err
		},
		"pause": func(name string) error {
			_, err := r.schedules.PauseSchedule(ctx, &dtaskv1.PauseScheduleRequest{Namespace: "etl", Name: name})
			return err
		},
		"resume": func(name string) error {
			_, err := r.schedules.ResumeSchedule(ctx, &dtaskv1.ResumeScheduleRequest{Namespace: "etl", Name: name})
			return err
		},
		"delete": func(name string) error {
			_, err := r.schedules.DeleteSchedule(ctx, &dtaskv1.DeleteScheduleRequest{Namespace: "etl", Name: name})
			return err
		},
		"run": func(name string) error {
			_, err := r.schedules.RunSchedule(ctx, &dtaskv1.RunScheduleRequest{Namespace: "etl", Name: name, IdempotencyKey: "k"})
			return err
		},
		"backfill": func(name string) error {
			_, err := r.schedules.BackfillSchedule(ctx, &dtaskv1.BackfillScheduleRequest{Namespace: "etl", Name: name, IdempotencyKey: "k", To: 1})
			return err
		},
	}
	for what, call := range calls {
		got, unknown := call("nightly"), call("unknown")
		wantError(t, got, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
		if strings.ReplaceAll(got.Error(), "nightly", "unknown") != unknown.Error() {
			t.Errorf("%s: got %v, and for an unknown one %v", what, got, unknown)
		}
	}
	_, err := r.sendSchedule(ctx, everyTenMinutes("nightly", "etl"))
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	_, err = r.schedules.GetSchedule(as(t.Context(), "both"), nightly())
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID) // which of its namespaces?
}

// The state finds schedules of other namespaces by keys that begin with a NUL byte.
func TestANameReachesNoOtherNamespace(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	r.mustSet(t, "ml", everyTenMinutes("train", ""))
	ctx, name := as(t.Context(), "default"), fsm.ScopedKey("ml", "train")
	_, show := r.schedules.GetSchedule(ctx, &dtaskv1.GetScheduleRequest{Name: name})
	_, pause := r.schedules.PauseSchedule(ctx, &dtaskv1.PauseScheduleRequest{Name: name})
	_, run := r.schedules.RunSchedule(ctx, &dtaskv1.RunScheduleRequest{Name: name, IdempotencyKey: "k"})
	_, fill := r.schedules.BackfillSchedule(ctx, &dtaskv1.BackfillScheduleRequest{Name: name, IdempotencyKey: "k", To: 1})
	_, remove := r.schedules.DeleteSchedule(ctx, &dtaskv1.DeleteScheduleRequest{Name: name})
	for _, err := range []error{show, pause, run, fill, remove} {
		wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	}
}

func TestARunOfAScheduleStartsOncePerKey(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	r.mustSet(t, "submitter", everyTenMinutes("nightly", ""))
	r.mustSet(t, "submitter", everyTenMinutes("other", ""))
	run := func(name, key string) (*dtaskv1.RunScheduleResponse, error) {
		return r.schedules.RunSchedule(as(t.Context(), "submitter"), &dtaskv1.RunScheduleRequest{Name: name, IdempotencyKey: key})
	}
	first, err := run("nightly", "monday")
	if err != nil || first.GetExisted() || first.GetTasks() != 1 {
		t.Fatalf("got %v, %v", first, err)
	}
	if again, err := run("nightly", "monday"); err != nil || !again.GetExisted() || again.GetJob() != first.GetJob() {
		t.Errorf("again: got %v, %v", again, err)
	}
	if next, err := run("nightly", "tuesday"); err != nil || next.GetExisted() || next.GetJob() == first.GetJob() {
		t.Errorf("with another key: got %v, %v", next, err)
	}
	_, err = run("other", "monday")
	wantConflict(t, err, codes.AlreadyExists, "the idempotency key was used for another request")
	if _, err := r.schedules.DeleteSchedule(as(t.Context(), "submitter"), &dtaskv1.DeleteScheduleRequest{Name: "nightly"}); err != nil {
		t.Fatal(err)
	}
	if again, err := run("nightly", "monday"); err != nil || !again.GetExisted() || again.GetJob() != first.GetJob() {
		t.Errorf("again after the schedule was deleted: got %v, %v", again, err)
	}
	_, err = run("nightly", "wednesday")
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
}

func TestABackfillStartsEachTickOnce(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	r.mustSet(t, "submitter", everyTenMinutes("nightly", ""))
	r.leader.op(t, &fsm.Fire{Schedule: 1, Version: 1, TickMS: 1_200_000, Civil: 1200, Decision: fsm.TickRuns})
	fill := func(from, to int64, key string) (*dtaskv1.BackfillScheduleResponse, error) {
		return r.schedules.BackfillSchedule(as(t.Context(), "submitter"), &dtaskv1.BackfillScheduleRequest{Name: "nightly", From: from, To: to, IdempotencyKey: key})
	}
	first, err := fill(600_000, 1_200_000, "k")
	if err != nil || len(first.GetRuns()) != 2 || first.GetRuns()[0].GetTickAt() != 600_000 || first.GetRuns()[0].GetExisted() {
		t.Fatalf("got %v, %v", first, err)
	}
	again, err := fill(600_000, 1_200_000, "k")
	for i, run := range again.GetRuns() {
		run.Existed = false
		if !proto.Equal(run, first.GetRuns()[i]) {
			t.Errorf("again: got %v, want %v", run, first.GetRuns()[i])
		}
	}
	if err != nil || len(again.GetRuns()) != 2 {
		t.Errorf("again: got %v, %v", again, err)
	}
	st, _ := r.machine.Fork()
	for i, run := range first.GetRuns() {
		id, _ := parseJobID(run.GetJob())
		job, _ := st.Job(id)
		if got := job.Header.GetRun(); got.GetTickMs() != run.GetTickAt() || !got.GetManual() || got.GetPreviousMs() != int64(i)*600_000 {
			t.Errorf("job %d knows %v", id, got)
		}
	}
	for text, period := range map[string][2]int64{
		"the tick after 1970-01-01T00:20:00Z is not decided yet": {600_000, 1_800_000},
		"from must be the first instant of a period":             {1_200_000, 600_000},
		"has no tick from":                      {600_001, 600_002},
		"has no tick from 1970-01-01T00:00:00Z": {0, 599_999}, // a run of that tick would have none
	} {
		_, err := fill(period[0], period[1], "other")
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		if !strings.Contains(faultsOf(err), text) {
			t.Errorf("%v: got %v, want %q", period, faultsOf(err), text)
		}
	}
}

// A backfill that can't start all of its runs starts none.
func TestABackfillOfTooManyTicksStartsNoRun(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	m := everyTenMinutes("nightly", "")
	m.Definition.Overlap = dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_WAIT
	r.mustSet(t, "submitter", m)
	last := int64(maxBackfill * 600_000)
	r.leader.op(t, &fsm.Fire{Schedule: 1, Version: 1, TickMS: last, Civil: last / 1000, Decision: fsm.TickRuns})
	fill := func(from int64) (*dtaskv1.BackfillScheduleResponse, error) {
		return r.schedules.BackfillSchedule(as(t.Context(), "submitter"), &dtaskv1.BackfillScheduleRequest{Name: "nightly", From: from, To: last, IdempotencyKey: "k"})
	}
	before, _ := r.machine.Fork()
	_, err := fill(600_000)
	wantConflict(t, err, codes.FailedPrecondition, "1 runs of schedule \"nightly\" have not ended, and the period has 100 more ticks")
	if after, _ := r.machine.Fork(); after.NextJob() != before.NextJob() {
		t.Errorf("%d runs started", after.NextJob()-before.NextJob())
	}
	for range 2 { // all of them are known the second time
		if got, err := fill(1_200_000); err != nil || len(got.GetRuns()) != maxBackfill-1 {
			t.Errorf("a shorter period: got %d runs, %v", len(got.GetRuns()), err)
		}
	}
}

// A leader whose clock is behind may resume the schedule, and fires what is later then.
func TestABackfillDuringAPauseLeavesOutTheLastTicks(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	r.mustSet(t, "submitter", everyTenMinutes("nightly", ""))
	ctx := as(t.Context(), "submitter")
	if _, err := r.schedules.PauseSchedule(ctx, &dtaskv1.PauseScheduleRequest{Name: "nightly"}); err != nil {
		t.Fatal(err)
	}
	fill := func(nowMS int64, inDoubt bool) error {
		r.leader.mu.Lock()
		r.leader.nowMS, r.leader.clockInDoubt = nowMS, inDoubt
		r.leader.mu.Unlock()
		_, err := r.schedules.BackfillSchedule(ctx, &dtaskv1.BackfillScheduleRequest{Name: "nightly", From: 1_200_000, To: 1_200_000, IdempotencyKey: "k"})
		return err
	}
	for _, err := range []error{fill(1_215_000, false), fill(1_225_000, true)} {
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		if !strings.Contains(faultsOf(err), "is not decided yet") {
			t.Errorf("got %v", faultsOf(err))
		}
	}
	if err := fill(1_225_000, false); err != nil {
		t.Error(err)
	}
}

// Runs by hand are new jobs of the identity that asks for them.
func TestRunsByHandCountAgainstTheSubmissionRate(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t, func(cfg *Config) { cfg.SubmitRate, cfg.SubmitBurst = 0.001, 2 })
	r.mustSet(t, "submitter", everyTenMinutes("nightly", "")) // the first token
	run := func(who, key string) error {
		_, err := r.schedules.RunSchedule(as(t.Context(), who), &dtaskv1.RunScheduleRequest{Namespace: "etl", Name: "nightly", IdempotencyKey: key})
		return err
	}
	for range 2 {
		if err := run("submitter", "monday"); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, run("submitter", "tuesday"), codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
	if err := run("both", "tuesday"); err != nil {
		t.Errorf("another identity: got %v", err)
	}
}

// faultsOf returns the faults of an invalid request.
func faultsOf(err error) string { return strings.Join(detailOf(err).GetFaults(), "\n") }

func TestInvalidSchedulesAreRefused(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	for text, change := range map[string]func(m *dtaskv1.SetScheduleRequest){
		"definition: missing": func(m *dtaskv1.SetScheduleRequest) { m.Definition = nil },
		"job.name: missing":   func(m *dtaskv1.SetScheduleRequest) { m.Part.Header.Name = "" },
		"part: missing":       func(m *dtaskv1.SetScheduleRequest) { m.Part = nil },
		"idempotency_key, generated_key: must be empty": func(m *dtaskv1.SetScheduleRequest) { m.Part.IdempotencyKey = "k" },
		"job.needs: must be empty":                      func(m *dtaskv1.SetScheduleRequest) { m.Part.Header.Needs = []*dtaskv1.JobNeed{{Job: 1}} },
		"part: the stream ended before the last part":   func(m *dtaskv1.SetScheduleRequest) { m.Part.More = true },
		"total: invalid number of tasks 0":              func(m *dtaskv1.SetScheduleRequest) { m.Part.Total = 0 },
		"exactly one of cron, every and at":             func(m *dtaskv1.SetScheduleRequest) { m.Definition.Cron = []string{"* * * * *"} },
		"definition.every_ms: -1 is out of range":       func(m *dtaskv1.SetScheduleRequest) { m.Definition.EveryMs = -1 },
		"1.5s is not a whole number of seconds":         func(m *dtaskv1.SetScheduleRequest) { m.Definition.EveryMs = 1500 },
		"definition.jitter_ms: -1 is out of range":      func(m *dtaskv1.SetScheduleRequest) { m.Definition.JitterMs = -1 },
		"timezone: ": func(m *dtaskv1.SetScheduleRequest) { m.Definition.Timezone = "Europe/Berlyn" },
		"never fires": func(m *dtaskv1.SetScheduleRequest) {
			m.Definition.EveryMs, m.Definition.Cron = 0, []string{"0 0 30 2 *"}
		},
		`until: "2026-01-01" is before from`: func(m *dtaskv1.SetScheduleRequest) {
			m.Definition.From, m.Definition.Until = "2026-02-01", "2026-01-01"
		},
		"definition: has ended: it has no tick after": func(m *dtaskv1.SetScheduleRequest) { m.Definition.Until = "1970-01-01T00:15" },
		"definition.overlap: unknown value 9":         func(m *dtaskv1.SetScheduleRequest) { m.Definition.Overlap = 9 },
		"definition.missed_within_ms: 1 is invalid":   func(m *dtaskv1.SetScheduleRequest) { m.Definition.Missed, m.Definition.MissedWithinMs = 3, 1 },
		"must have at most 131072":                    func(m *dtaskv1.SetScheduleRequest) { m.Definition.From = strings.Repeat("2", maxDefinition) },
	} {
		m := everyTenMinutes("nightly", "etl")
		change(m)
		_, err := r.sendSchedule(as(t.Context(), "submitter"), m)
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
		if !strings.Contains(faultsOf(err), text) {
			t.Errorf("got %q, want %q", faultsOf(err), text)
		}
	}
	if st, _ := r.machine.Fork(); st.ScheduleCount() != 0 || r.leader.requests != 0 {
		t.Errorf("%d schedules after %d requests", st.ScheduleCount(), r.leader.requests)
	}
}

func TestSchedulesAreRefusedBelowTheirLevel(t *testing.T) {
	t.Parallel()
	r := setupIdentities(t)
	_, err := r.sendSchedule(as(t.Context(), "submitter"), everyTenMinutes("nightly", ""))
	wantError(t, err, codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if !strings.Contains(err.Error(), "feature level 2, and schedules require 3: finish the upgrade") {
		t.Errorf("got %v", err)
	}
	if got, err := r.schedules.ListSchedules(as(t.Context(), "submitter"), &dtaskv1.ListSchedulesRequest{}); err != nil || len(got.GetSchedules()) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// What a follower or a deposed leader says is not about the schedule.
func TestOnlyTheLeaderChangesSchedules(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	r.mustSet(t, "submitter", everyTenMinutes("nightly", ""))
	ctx := as(t.Context(), "submitter")
	calls := func() []error {
		_, set := r.sendSchedule(ctx, everyTenMinutes("weekly", ""))
		_, pause := r.schedules.PauseSchedule(ctx, &dtaskv1.PauseScheduleRequest{Name: "nightly"})
		_, run := r.schedules.RunSchedule(ctx, &dtaskv1.RunScheduleRequest{Name: "nightly", IdempotencyKey: "k"})
		return []error{set, pause, run}
	}
	r.leader.fail = sequencer.ErrOutcomeUnknown
	for _, err := range calls() {
		wantError(t, err, codes.Unavailable, dtaskv1.ErrorReason_ERROR_REASON_OUTCOME_UNKNOWN)
	}
	r.leading(false)
	r.raft.set(func(raft *fakeRaft) { raft.state, raft.id, raft.address = "follower", "n2", "n2:1" })
	for _, err := range calls() {
		wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER)
	}
	stale := nightly()
	stale.Consistency = dtaskv1.Consistency_CONSISTENCY_STALE
	if got, err := r.schedules.GetSchedule(ctx, stale); err != nil || got.GetSchedule().GetName() != "nightly" {
		t.Errorf("a stale read: got %v, %v", got, err)
	}
}

func TestSchedulesAreListedPageByPage(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	for _, name := range []string{"a", "b", "c"} {
		r.mustSet(t, "submitter", everyTenMinutes(name, ""))
		r.mustSet(t, "ml", everyTenMinutes(name, ""))
	}
	req, names := &dtaskv1.ListSchedulesRequest{Limit: 2}, ""
	for pages := 0; ; pages++ {
		got, err := r.schedules.ListSchedules(as(t.Context(), "reader"), req)
		if err != nil || pages > 2 {
			t.Fatalf("page %d: %v", pages, err)
		}
		for _, x := range got.GetSchedules() {
			names += x.GetName()
		}
		if req.PageToken = got.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	if names != "abc" {
		t.Errorf("got %s", names)
	}
}

// The cluster makes its calendar of what the file says, sent as a message.
func TestADefinitionFiresWhenItsFileDoes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../spec/testdata/schedules/*.[jy]*")
	if err != nil || len(files) < 4 {
		t.Fatalf("got %v, %v", files, err)
	}
	begin := time.Date(2026, 3, 27, 0, 0, 0, 0, time.UTC)
	for _, file := range append(files, "../../examples/schedule.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.ParseSchedule(file, text, spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		sent, err := proto.Marshal(s.Definition())
		if err != nil {
			t.Fatal(err)
		}
		d := new(dtaskv1.ScheduleDefinition)
		if err := proto.Unmarshal(sent, d); err != nil {
			t.Fatal(err)
		}
		r := RecurrenceOf(d)
		c, err := sequencer.Calendar(s.Job.GetHeader().GetName(), &r)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		want, got := s.Calendar.Preview(begin, 300), c.Preview(begin, 300)
		if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 || c.InOrder() != s.Calendar.InOrder() {
			t.Errorf("%s has %d ticks: %s", file, len(want), diff)
		}
		rules, err := rulesOf(d)
		if err != nil || rules != (fsm.ScheduleRules{Overlap: fsm.Overlap(s.Overlap), Missed: fsm.MissedRule(s.Missed), WithinMS: s.MissedWithin.Milliseconds()}) {
			t.Errorf("%s has the rules %+v, %v", file, rules, err)
		}
	}
}

// A concurrency key is shared with jobs that no schedule has started: they count, and are named.
func TestARunThatAJobOfAUserBlocksNamesIt(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	m := everyTenMinutes("nightly", "")
	m.Definition.Overlap = dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP
	h := m.GetPart().GetHeader()
	h.Concurrency = &dtaskv1.JobConcurrency{Key: "deploy", Overlap: dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP}
	r.mustSet(t, "submitter", m)
	own := header("own")
	own.Namespace, own.Concurrency = h.GetNamespace(), h.GetConcurrency()
	job, err := r.send(as(t.Context(), "submitter"), request("own", own, task("a")))
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.schedules.RunSchedule(as(t.Context(), "submitter"), &dtaskv1.RunScheduleRequest{Name: "nightly", IdempotencyKey: "k"})
	wantConflict(t, err, codes.FailedPrecondition, `earlier jobs with the concurrency key "deploy" (`+job.GetId()+`) have not ended, and the rule for overlaps of the schedule is skip`)
}

// The jobs of users that have the key of a schedule count, and more than one may run.
func TestAScheduleExplainsWhatTheJobsWithItsKeyDoToTheNextRun(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	ctx, m := as(t.Context(), "submitter"), everyTenMinutes("nightly", "")
	m.Definition.Overlap = 0
	h := m.GetPart().GetHeader()
	h.Concurrency = &dtaskv1.JobConcurrency{Key: "deploy", Limit: 2}
	r.mustSet(t, "submitter", m)
	for i, want := range []string{
		"job 2 has not ended: the next run starts all the same, because 2 may run",
		`2 jobs with the concurrency key "deploy", the oldest of which is job 2, have not ended: a tick that is due before its end is skipped (overlap: skip)`,
	} {
		own := header(fmt.Sprint("own", i))
		own.Namespace, own.Concurrency = h.GetNamespace(), h.GetConcurrency()
		if _, err := r.send(ctx, request(own.GetName(), own, task("a"))); err != nil {
			t.Fatal(err)
		}
		got, err := r.schedules.GetSchedule(ctx, nightly())
		if why := got.GetSchedule().GetWhy(); err != nil || why[len(why)-1] != want {
			t.Errorf("got %q, %v, want %q", why, err, want)
		}
	}
}
