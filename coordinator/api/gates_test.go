package api

import (
	"strings"
	"testing"

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
	if got := send(func(h *dtaskv1.JobHeader) { h.StartAfterMs = 1000 }); !strings.Contains(got, "start_at, start_after and expires require 3") {
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
