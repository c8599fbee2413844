package api

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// berlin is a schedule whose task has an expression of its run.
func berlin(name string) *dtaskv1.SetScheduleRequest {
	m := everyTenMinutes(name, "")
	m.Definition.Timezone = "Europe/Berlin"
	m.Part.Tasks[0].Body = &dtaskv1.TaskBody{Payload: []byte("${{ scheduled.date }} $${{ x }}"), Output: "/out/${{ scheduled.date }}", Scheduled: true}
	return m
}

// runOf returns the run that a job is.
func (r *replica) runOf(t *testing.T, id fsm.JobID) (run *dtaskv1.ScheduledRun) {
	t.Helper()
	r.machine.Read(func(st *fsm.State, _ uint64) {
		job, ok := st.Job(id)
		if !ok {
			t.Fatalf("job %d is missing", id)
		}
		run = job.Header.GetRun()
	})
	return run
}

func TestTheRunsOfAScheduleWithExpressionsKnowItsTimeZone(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	r.mustSet(t, "submitter", berlin("nightly"))
	if x := r.mustSet(t, "submitter", berlin("nightly")); x.GetVersion() != 1 {
		t.Errorf("set again: got version %d", x.GetVersion())
	}
	plain := everyTenMinutes("plain", "")
	plain.Definition.Timezone = "Europe/Berlin"
	r.mustSet(t, "submitter", plain)
	utc := berlin("utc")
	utc.Definition.Timezone = ""
	r.mustSet(t, "submitter", utc)
	const tick = 1_774_654_200_000 // 28 March in Berlin, 27 March in UTC
	for _, c := range []struct {
		schedule       fsm.ScheduleID
		zone, day, out string
	}{{1, "Europe/Berlin", "2026-03-28 ${{ x }}", "/out/2026-03-28"}, {2, "", "p", ""}, {3, "UTC", "2026-03-27 ${{ x }}", "/out/2026-03-27"}} {
		var id fsm.JobID
		r.machine.Read(func(st *fsm.State, _ uint64) { id = st.NextJob() })
		r.leader.op(t, &fsm.Fire{Schedule: c.schedule, Version: 1, TickMS: tick, Civil: tick / 1000, Decision: fsm.TickRuns})
		if got := r.runOf(t, id); got.GetTimezone() != c.zone || got.GetTickMs() != tick || got.GetDate() != "" {
			t.Errorf("schedule %d: got the run %v, want the zone %q", c.schedule, got, c.zone)
		}
		st, _ := r.machine.Fork()
		job, _ := st.Job(id)
		reader, ref := &taskReader{st: st, job: job}, fsm.TaskRef{Job: id}
		if got := reader.payload(ref); c.zone != "" && string(got) != c.day {
			t.Errorf("schedule %d: the task gets the payload %q, want %q", c.schedule, got, c.day)
		}
		if got := reader.result(0).GetOutput(); got != c.out {
			t.Errorf("schedule %d: got the output %q, want %q", c.schedule, got, c.out)
		}
	}
}

func TestAJobWithExpressionsOfARunIsSubmittedByAScheduleOnly(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t)
	part := berlin("nightly").GetPart()
	part.IdempotencyKey, part.Header.Run = "k", &dtaskv1.ScheduledRun{Schedule: "nightly", TickMs: 1} // callers cannot claim a run
	_, err := r.send(as(t.Context(), "submitter"), part)
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	if faults := strings.Join(detailOf(err).GetFaults(), "\n"); !strings.Contains(faults, `task "a": has an expression of the run of a schedule, but the job is not one; set a schedule`) {
		t.Errorf("got %s", faults)
	}
}
