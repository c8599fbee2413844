package api

import (
	"crypto/rand"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// submitNeeding submits a job of one task that needs others.
func (r *replica) submitNeeding(t *testing.T, key string, needs ...*dtaskv1.JobNeed) (*dtaskv1.StoredJob, error) {
	t.Helper()
	h := header(key)
	h.Needs = needs
	return r.send(t.Context(), request(key, h, task("a")))
}

func TestAJobShowsWhatItNeedsAndHowThatEnded(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "first", task("a"))
	failed := dtaskv1.Condition_CONDITION_FAILED
	// Whatever a caller says of the end of a job, the coordinators know better.
	lie := &dtaskv1.JobNeed{Job: 1, Condition: failed, EndedAs: dtaskv1.JobState_JOB_STATE_FAILED}
	if _, err := r.submitNeeding(t, "second", lie); err != nil {
		t.Fatal(err)
	}
	job, err := r.get(t, "2", linearizable)
	if err != nil || !job.GetWaiting() || job.GetState() != dtaskv1.JobState_JOB_STATE_PENDING || job.GetTasksByState()["blocked"] != 1 {
		t.Fatalf("waiting: got %v, %v", job, err)
	}
	if want := (&dtaskv1.JobNeed{Job: 1, Condition: failed}); !proto.Equal(job.GetNeeds()[0], want) {
		t.Errorf("waiting: needs %v, want %v", job.GetNeeds(), want)
	}
	r.complete(t, held(1, 0, 1, r.worker(t)), "")
	job, err = r.get(t, "2", linearizable)
	if err != nil || job.GetWaiting() || job.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED || job.GetError() != "skipped: needed job 1 completed" {
		t.Fatalf("skipped: got %v, %v", job, err)
	}
	if got := job.GetNeeds()[0].GetEndedAs(); got != dtaskv1.JobState_JOB_STATE_COMPLETED {
		t.Errorf("skipped: needed job ended as %v", got)
	}
}

func TestANeededJobMayBeInHistory(t *testing.T) {
	t.Parallel()
	h, change := withHistory(t, true, Summarize)
	r := setup(t, change)
	r.archiveTwo(t) // job 1 completed, job 2 failed
	if err := h.Sync(t.Context(), r.machine.Index()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key  string
		job  uint64
		when dtaskv1.Condition
		want dtaskv1.JobState
	}{
		{"4", 1, 0, dtaskv1.JobState_JOB_STATE_PENDING},
		{"5", 2, 0, dtaskv1.JobState_JOB_STATE_FAILED},
		{"6", 2, dtaskv1.Condition_CONDITION_FAILED, dtaskv1.JobState_JOB_STATE_PENDING},
	} {
		need := &dtaskv1.JobNeed{Job: c.job, Condition: c.when}
		if _, err := r.submitNeeding(t, c.key, need); err != nil {
			t.Fatal(err)
		}
		if job, err := r.get(t, c.key, linearizable); err != nil || job.GetState() != c.want || job.GetWaiting() {
			t.Errorf("job %s, which needs job %d: got %v, %v; want %v", c.key, c.job, job, err, c.want)
		}
		// Repeated under its key, it is the same job.
		if again, err := r.submitNeeding(t, c.key, &dtaskv1.JobNeed{Job: c.job, Condition: c.when}); err != nil || !again.GetExisted() {
			t.Errorf("job %s again: got %v, %v", c.key, again, err)
		}
	}
	r.leader.op(t, &fsm.Archive{Items: []fsm.JobID{5}})
	if err := h.Sync(t.Context(), r.machine.Index()); err != nil {
		t.Fatal(err)
	}
	job, err := r.get(t, "5", stale)
	if err != nil || len(job.GetNeeds()) != 1 || job.GetNeeds()[0].GetEndedAs() != dtaskv1.JobState_JOB_STATE_FAILED {
		t.Errorf("from history: got needs %v, %v", job.GetNeeds(), err)
	}
}

func TestAnInvalidNeedIsExplained(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "first", task("a"))
	for want, c := range map[string]struct {
		need   *dtaskv1.JobNeed
		code   codes.Code
		reason dtaskv1.ErrorReason
	}{
		"job 77 not found":                     {&dtaskv1.JobNeed{Job: 77}, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND},
		"job 2 not found":                      {&dtaskv1.JobNeed{Job: 2}, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND}, // itself
		"job.needs[0].job: is missing":         {&dtaskv1.JobNeed{}, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID},
		"job.needs[0].condition: CONDITION_TO": {&dtaskv1.JobNeed{Job: 1, Condition: dtaskv1.Condition_CONDITION_TOLERATED}, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID},
	} {
		_, err := r.submitNeeding(t, rand.Text(), c.need)
		detail := wantError(t, err, c.code, c.reason)
		if text := err.Error() + strings.Join(detail.GetFaults(), "\n"); !strings.Contains(text, want) {
			t.Errorf("got %s, want it to contain %q", text, want)
		}
	}
	if list, err := r.jobs.ListJobs(t.Context(), &dtaskv1.ListJobsRequest{}); err != nil || len(list.GetJobs()) != 1 {
		t.Errorf("got jobs %v, %v; want only job 1", list, err)
	}
}

func TestARetryOfAJobWhoseNeedFailedIsExplained(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "first", task("a"))
	if _, err := r.submitNeeding(t, "second", &dtaskv1.JobNeed{Job: 1}); err != nil {
		t.Fatal(err)
	}
	r.fails(t, held(1, 0, 1, r.worker(t)), fsm.NextDead, "exit 1")
	retry := func(job string) error {
		_, err := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: job, IdempotencyKey: rand.Text()})
		return err
	}
	err := retry("2")
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	if want := "job 2 needs job 1, which has failed: retry that one first"; !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := retry("1"); err != nil {
		t.Fatal(err)
	}
	if err := retry("2"); err != nil {
		t.Fatal(err)
	}
	if job, err := r.get(t, "2", linearizable); err != nil || !job.GetWaiting() {
		t.Errorf("both retried: got %v, %v", job, err)
	}
}
