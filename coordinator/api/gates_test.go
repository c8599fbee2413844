package api

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const inTheFuture = 4_102_444_800_000 // 2100

func TestAJobShowsUntilWhenItIsScheduled(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	h := header("later")
	h.StartAtMs, h.ExpiresMs = inTheFuture, 1000
	if _, err := r.send(t.Context(), request("k", h, task("a"))); err != nil {
		t.Fatal(err)
	}
	job, err := r.get(t, "1", linearizable)
	if err != nil || job.GetScheduledUntil() != inTheFuture || job.GetTasksByState()["blocked"] != 1 || job.GetExpiresMs() != 1000 {
		t.Errorf("got %v, %v", job, err)
	}
	if _, reasons := r.explainTask(t, "a"); reasons != "job_start_time: its job starts no earlier than 2100-01-01 00:00:00Z" {
		t.Errorf("explain: got %s", reasons)
	}
	list, err := r.jobs.ListJobs(t.Context(), &dtaskv1.ListJobsRequest{})
	if err != nil || len(list.GetJobs()) != 1 || list.GetJobs()[0].GetScheduledUntil() != inTheFuture {
		t.Errorf("list: got %v, %v", list, err)
	}
	r.leader.op(t, &fsm.CancelJob{Job: 1, Reason: "not needed"})
	if job, err := r.get(t, "1", linearizable); err != nil || job.GetScheduledUntil() != 0 || job.GetStartAtMs() != inTheFuture {
		t.Errorf("cancelled: got %v, %v", job, err)
	}
}

func TestTimesOfAJobAreChecked(t *testing.T) {
	t.Parallel()
	r := setup(t)
	send := func(change func(h *dtaskv1.JobHeader)) string {
		h := header("later")
		change(h)
		_, err := r.send(t.Context(), request("k", h, task("a")))
		if err == nil {
			return ""
		}
		return err.Error()
	}
	if got := send(func(h *dtaskv1.JobHeader) { h.StartAfterMs = 1000 }); !strings.Contains(got, "start_at, start_after, expires and concurrency require 3") {
		t.Errorf("below the feature level: got %s", got)
	}
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	for field, change := range map[string]func(h *dtaskv1.JobHeader){
		"job.start_at":    func(h *dtaskv1.JobHeader) { h.StartAtMs = -1 },
		"job.start_after": func(h *dtaskv1.JobHeader) { h.StartAfterMs = 1 << 60 },
		"job.expires":     func(h *dtaskv1.JobHeader) { h.ExpiresMs = -5 },
	} {
		if got := send(change); !strings.Contains(got, "invalid job") {
			t.Errorf("%s: got %s", field, got)
		}
	}
}

// A deadline counts from the submission: the job would fail before it starts.
func TestAJobThatStartsAfterItsDeadlineIsRefused(t *testing.T) {
	t.Parallel()
	r := setupSchedules(t) // the wall clock is that of the leader
	send := func(key string, startAt, deadline int64) error {
		h := header("later")
		h.StartAtMs, h.DeadlineMs = startAt, deadline
		_, err := r.send(as(t.Context(), "submitter"), request(key, h, task("a")))
		return err
	}
	const hour = 3_600_000
	err := send("k", inTheFuture, hour)
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	if !strings.Contains(faultsOf(err), "job.start_at: 2100-01-01T00:00:00Z is not before the deadline of 1h") {
		t.Errorf("got %v", faultsOf(err))
	}
	for key, x := range map[string][2]int64{"earlier": {hour, 2 * hour}, "at once": {1, 1}, "endless": {inTheFuture, 0}} {
		if err := send(key, x[0], x[1]); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	r.leader.mu.Lock()
	r.leader.clockInDoubt = true
	r.leader.mu.Unlock()
	if err := send("in doubt", inTheFuture, hour); err != nil {
		t.Errorf("by a clock that may be wrong: %v", err)
	}
}

// sendSharing submits a job with a concurrency key.
func (r *replica) sendSharing(t *testing.T, name string, overlap dtaskv1.ScheduleOverlap) error {
	t.Helper()
	h := header(name)
	h.Concurrency = &dtaskv1.JobConcurrency{Key: "deploy", Overlap: overlap}
	_, err := r.send(t.Context(), request(name, h, task("a")))
	return err
}

func TestAJobShowsWhichJobsItWaitsFor(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	for _, name := range []string{"first", "second"} {
		if err := r.sendSharing(t, name, dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_WAIT); err != nil {
			t.Fatal(err)
		}
	}
	explain := func(job string) string {
		e, err := r.jobs.Explain(t.Context(), &dtaskv1.ExplainRequest{Job: job, Task: "a"})
		if err != nil || len(e.GetReasons()) != 1 {
			t.Fatalf("job %s: got %v, %v", job, e, err)
		}
		return e.GetReasons()[0].GetText()
	}
	if got, want := explain("1"), "its job starts when nothing of earlier jobs with the concurrency key deploy runs any more"; got != want {
		t.Errorf("before the gate of the first job is open: got %q, want %q", got, want)
	}
	r.leader.op(t, &fsm.OpenGate{Job: 1})
	job, err := r.get(t, "2", linearizable)
	if err != nil || len(job.GetWaitsFor()) != 1 || job.GetWaitsFor()[0] != "1" || job.GetScheduledUntil() != 0 {
		t.Errorf("got %v, %v", job, err)
	}
	if got, want := explain("2"), "its job has the concurrency key deploy and waits for job 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	err = r.sendSharing(t, "third", dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_SKIP)
	wantConflict(t, err, codes.FailedPrecondition, `2 jobs with the concurrency key "deploy" have not ended (1, 2), and its rule for overlaps is skip`)
}

// The start time of a job is no reason once it has passed.
func TestAStartTimeThatHasPassedIsNotWhatAJobWaitsFor(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	for _, name := range []string{"first", "second"} {
		h := header(name)
		h.StartAtMs = 1
		h.Concurrency = &dtaskv1.JobConcurrency{Key: "deploy", Overlap: dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_WAIT}
		if _, err := r.send(t.Context(), request(name, h, task("a"))); err != nil {
			t.Fatal(err)
		}
	}
	e, err := r.jobs.Explain(t.Context(), &dtaskv1.ExplainRequest{Job: "2"})
	if err != nil || len(e.GetTasks()) != 1 || e.GetTasks()[0].GetReason().GetCode() != "waits_for_key" {
		t.Errorf("got %v, %v", e, err)
	}
}

func TestAConcurrencyIsChecked(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	for what, c := range map[string]*dtaskv1.JobConcurrency{
		"job.concurrency.key":     {},
		"job.concurrency.limit":   {Key: "deploy", Limit: 1001},
		"job.concurrency.overlap": {Key: "deploy", Overlap: 6},
	} {
		h := header("x")
		h.Concurrency = c
		results, err := r.exchange(t.Context(), numbered(1, request("k", h, task("a"))))
		if err != nil || !strings.Contains(strings.Join(results[1].GetDetail().GetFaults(), "\n"), what) {
			t.Errorf("%s: got %v, %v", what, results, err)
		}
	}
}

func TestAStartTimeThatHasComeIsNoReasonToWait(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	if err := r.sendSharing(t, "first", dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_WAIT); err != nil {
		t.Fatal(err)
	}
	r.leader.op(t, &fsm.OpenGate{Job: 1})
	h := header("second")
	h.Concurrency = &dtaskv1.JobConcurrency{Key: "deploy", Overlap: dtaskv1.ScheduleOverlap_SCHEDULE_OVERLAP_WAIT}
	h.StartAtMs = 1
	if _, err := r.send(t.Context(), request("second", h, task("a"))); err != nil {
		t.Fatal(err)
	}
	e, err := r.jobs.Explain(t.Context(), &dtaskv1.ExplainRequest{Job: "2"})
	if err != nil || len(e.GetTasks()) != 1 || e.GetTasks()[0].GetReason().GetCode() != "waits_for_key" {
		t.Errorf("got %v, %v, want waits_for_key", e, err)
	}
}
