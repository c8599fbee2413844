package api

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestAJobIsShownInEveryStage(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("x")
	h.Owner, h.Labels = "me", map[string]string{"team": "data"}
	if _, err := r.send(t.Context(), request("k", h, diamond()...)); err != nil {
		t.Fatal(err)
	}
	w := r.worker(t)
	want := func(state dtaskv1.JobState, byState map[string]uint32) *dtaskv1.Job {
		t.Helper()
		job, err := r.get(t, "1", linearizable)
		if err != nil {
			t.Fatal(err)
		}
		if job.GetState() != state || !maps.Equal(job.GetTasksByState(), byState) {
			t.Errorf("got %v with %v, want %v with %v", job.GetState(), job.GetTasksByState(), state, byState)
		}
		return job
	}
	job := want(dtaskv1.JobState_JOB_STATE_PENDING, map[string]uint32{"blocked": 3, "pending": 1})
	if job.GetId() != "1" || job.GetName() != "x" || job.GetOwner() != "me" || job.GetLabels()["team"] != "data" ||
		job.GetTasksTotal() != 4 || job.GetSubmittedAt() == 0 || job.GetStartedAt() != 0 {
		t.Errorf("got %v", job)
	}
	r.assign(t, held(1, 0, 1, w))
	want(dtaskv1.JobState_JOB_STATE_RUNNING, map[string]uint32{"blocked": 3, "assigned": 1})

	// Only an observation of the live attempt makes a task running, not of an older
	// one.
	r.leader.observed = map[fsm.JobID]map[uint32]sequencer.Observation{1: {0: {Attempt: 1}, 1: {Attempt: 1}}}
	want(dtaskv1.JobState_JOB_STATE_RUNNING, map[string]uint32{"blocked": 3, "running": 1})
	r.leader.observed = map[fsm.JobID]map[uint32]sequencer.Observation{1: {0: {Attempt: 7}}}
	want(dtaskv1.JobState_JOB_STATE_RUNNING, map[string]uint32{"blocked": 3, "assigned": 1})

	if r := r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason {
		return d.Complete(fsm.CompleteItem{HeldAttempt: held(1, 0, 1, w)})
	}); r != fsm.Accepted {
		t.Fatal(r)
	}
	want(dtaskv1.JobState_JOB_STATE_RUNNING, map[string]uint32{"pending": 2, "blocked": 1, "completed": 1})
	for i := uint32(1); i < 4; i++ {
		r.complete(t, held(1, i, 1, w), "")
	}
	job = want(dtaskv1.JobState_JOB_STATE_COMPLETED, map[string]uint32{"completed": 3, "aggregated": 1})
	if job.GetTasksCompleted() != 4 || job.GetCompletedAt() == 0 {
		t.Errorf("got %v", job)
	}
}

func TestAFollowerShowsRunningTasksAsAssigned(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", task("a"))
	r.assign(t, held(1, 0, 1, r.worker(t)))
	r.leader.observed = map[fsm.JobID]map[uint32]sequencer.Observation{1: {0: {Attempt: 1}}}
	r.leading(false)
	job, err := r.get(t, "1", stale)
	if err != nil || job.GetTasksByState()["assigned"] != 1 {
		t.Errorf("got %v, %v", job, err)
	}
}

func TestLevelsCountTheLongestChains(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "x", append(diamond(), task("e"), task("f", 0, 3))...)
	job, err := r.jobs.GetJob(t.Context(), &dtaskv1.GetJobRequest{Id: "1", WithLevels: true})
	if err != nil {
		t.Fatal(err)
	}
	if want := []uint32{2, 2, 1, 1}; !slices.Equal(job.GetLevels(), want) {
		t.Errorf("got levels %v, want %v", job.GetLevels(), want)
	}
	if job, _ = r.get(t, "1", linearizable); job.GetLevels() != nil {
		t.Errorf("unrequested levels %v", job.GetLevels())
	}
}

// list reads all pages and returns the ids in each.
func (r *replica) list(t *testing.T, req *dtaskv1.ListJobsRequest) [][]string {
	t.Helper()
	var pages [][]string
	for {
		resp, err := r.jobs.ListJobs(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, job := range resp.GetJobs() {
			ids = append(ids, job.GetId())
		}
		pages = append(pages, ids)
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return pages
		}
	}
}

func TestJobsAreListedNewestFirstInPages(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for i := range 5 {
		r.submit(t, fmt.Sprint("x", i), task("a"))
	}
	for _, c := range []struct {
		limit uint32
		want  [][]string
	}{
		{0, [][]string{{"5", "4", "3", "2", "1"}}},
		{2, [][]string{{"5", "4"}, {"3", "2"}, {"1"}}},
		{5, [][]string{{"5", "4", "3", "2", "1"}}},
	} {
		if diff := cmp.Diff(c.want, r.list(t, &dtaskv1.ListJobsRequest{Limit: c.limit})); diff != "" {
			t.Errorf("limit %d: %s", c.limit, diff)
		}
	}
}

func TestANewJobDoesNotDisturbAListing(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for i := range 3 {
		r.submit(t, fmt.Sprint("x", i), task("a"))
	}
	first, err := r.jobs.ListJobs(t.Context(), &dtaskv1.ListJobsRequest{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	r.submit(t, "later", task("a"))
	got := r.list(t, &dtaskv1.ListJobsRequest{PageToken: first.GetNextPageToken()})
	if diff := cmp.Diff([][]string{{"1"}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestJobsAreFiltered(t *testing.T) {
	t.Parallel()
	r := setup(t)
	start := r.leader.nowMS
	for i, owner := range []string{"me", "you", "me"} {
		r.leader.nowMS = start + int64(i)*1000
		h := header(fmt.Sprint("x", i))
		h.Owner, h.Labels = owner, map[string]string{"n": fmt.Sprint(i), "all": "yes"}
		if _, err := r.send(t.Context(), request(h.GetName(), h, task("a"))); err != nil {
			t.Fatal(err)
		}
	}
	r.leader.op(t, &fsm.CancelJob{Job: 3, Reason: "r"})
	cancelled, pending := dtaskv1.JobState_JOB_STATE_CANCELLED, dtaskv1.JobState_JOB_STATE_PENDING
	for _, c := range []struct {
		name string
		req  *dtaskv1.ListJobsRequest
		want []string
	}{
		{"state", &dtaskv1.ListJobsRequest{States: []dtaskv1.JobState{cancelled}}, []string{"3"}},
		{"states", &dtaskv1.ListJobsRequest{States: []dtaskv1.JobState{cancelled, pending}}, []string{"3", "2", "1"}},
		{"name", &dtaskv1.ListJobsRequest{Name: "x1"}, []string{"2"}},
		{"owner", &dtaskv1.ListJobsRequest{Owner: "me"}, []string{"3", "1"}},
		{"label", &dtaskv1.ListJobsRequest{Labels: map[string]string{"n": "1"}}, []string{"2"}},
		{"labels", &dtaskv1.ListJobsRequest{Labels: map[string]string{"n": "1", "all": "no"}}, nil},
		{"absent label", &dtaskv1.ListJobsRequest{Labels: map[string]string{"z": ""}}, nil},
		{"since", &dtaskv1.ListJobsRequest{SubmittedSince: start + 1000}, []string{"3", "2"}},
		{"before", &dtaskv1.ListJobsRequest{SubmittedBefore: start + 2000}, []string{"2", "1"}},
		{"since, before and owner", &dtaskv1.ListJobsRequest{SubmittedSince: start, SubmittedBefore: start + 3000, Owner: "you"}, []string{"2"}},
		{"all together", &dtaskv1.ListJobsRequest{Owner: "me", States: []dtaskv1.JobState{pending}}, []string{"1"}},
	} {
		if got := r.list(t, c.req); !slices.Equal(slices.Concat(got...), c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAListingScansABoundedNumberOfJobs(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h, err := deterministic.Marshal(header("x"))
	if err != nil {
		t.Fatal(err)
	}
	c := fsm.NewChunkBuilder(0)
	c.Add("a", 0, nil, nil)
	chunk := c.Chunk()
	for from := 1; from <= maxScannedJobs+10; from += 1000 {
		r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason {
			for id := from; id < min(from+1000, maxScannedJobs+11); id++ {
				d.Do(&fsm.BeginUpload{ID: fsm.JobID(id), Key: fmt.Sprint(id), KeyExpires: 1, Header: h, Total: 1})
				d.Do(&fsm.AddChunk{Job: fsm.JobID(id), Chunk: chunk})
				d.Do(&fsm.SealUpload{Job: fsm.JobID(id), Sum: chunk.Sum(0)})
			}
			return fsm.Accepted
		})
	}
	r.leader.op(t, &fsm.CancelJob{Job: 3, Reason: "r"})
	got := r.list(t, &dtaskv1.ListJobsRequest{States: []dtaskv1.JobState{dtaskv1.JobState_JOB_STATE_CANCELLED}})
	if diff := cmp.Diff([][]string{nil, {"3"}}, got); diff != "" {
		t.Errorf("want the only match on the second page: %s", diff)
	}
}

func TestAPageOfJobsIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("x")
	h.Labels = make(map[string]string)
	for i := range 60 {
		h.Labels[fmt.Sprint("label", i)] = strings.Repeat("v", 255)
	}
	for i := range 150 {
		if _, err := r.send(t.Context(), request(fmt.Sprint(i), h, task("a"))); err != nil {
			t.Fatal(err)
		}
	}
	got := r.list(t, &dtaskv1.ListJobsRequest{Limit: maxLimit})
	if len(got) < 2 || len(slices.Concat(got...)) != 150 {
		t.Errorf("got %d pages of 150 jobs of 16 KiB", len(got))
	}
}

func TestAnInvalidListingIsRejected(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for _, req := range []*dtaskv1.ListJobsRequest{
		{Limit: maxLimit + 1},
		{PageToken: "x"},
		{States: []dtaskv1.JobState{99}},
		{States: []dtaskv1.JobState{0}},
		{Consistency: 7},
		{SubmittedSince: -1},
		{SubmittedBefore: -1},
	} {
		_, err := r.jobs.ListJobs(t.Context(), req)
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	}
}

func TestCancelInEveryState(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.submit(t, "done", task("a"))
	r.complete(t, held(1, 0, 1, r.worker(t)), "")
	r.submit(t, "open", diamond()...)
	cancel := func(job, task string) (*dtaskv1.CancelResponse, error) {
		return r.jobs.Cancel(t.Context(), &dtaskv1.CancelRequest{Job: job, Task: task, Reason: "because"})
	}
	_, err := cancel("1", "")
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	_, err = cancel("1", "a")
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	_, err = cancel("9", "")
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	_, err = cancel("9", "a")
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	_, err = cancel("2", "z")
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)

	for _, c := range []struct {
		task    string
		already bool
	}{{"b", false}, {"b", true}, {"d", true}, {"", false}, {"", true}} {
		resp, err := cancel("2", c.task)
		if err != nil || resp.GetAlreadyCancelled() != c.already {
			t.Errorf("cancelling %q: got %v, %v; want already %v", c.task, resp, err, c.already)
		}
	}
	job, err := r.get(t, "2", linearizable)
	if err != nil || job.GetState() != dtaskv1.JobState_JOB_STATE_CANCELLED || job.GetError() != "because" {
		t.Errorf("got %v, %v", job, err)
	}
	_, err = r.jobs.Cancel(t.Context(), &dtaskv1.CancelRequest{Job: "2", Reason: strings.Repeat("x", 257)})
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
}

func TestAJobThatCleansUpIsShownAndCancelledAsSuch(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("cleans")
	h.Policies = append(h.Policies, proto.CloneOf(h.GetPolicies()[0]))
	h.Policies[1].Finally = true
	sweep := task("sweep")
	sweep.Policy = 1
	for i := range 3 {
		if _, err := r.send(t.Context(), request(fmt.Sprint(i), h, task("a"), sweep)); err != nil {
			t.Fatal(err)
		}
	}
	cancel := func(job string, now bool) (bool, error) {
		resp, err := r.jobs.Cancel(t.Context(), &dtaskv1.CancelRequest{Job: job, Reason: "because", Now: now})
		return resp.GetAlreadyCancelled(), err
	}
	w := r.worker(t)
	for _, want := range []bool{false, true} {
		if already, err := cancel("1", false); already != want || err != nil {
			t.Errorf("cancel: got %v, %v", already, err)
		}
	}
	job, err := r.get(t, "1", linearizable)
	if err != nil || job.GetState() != dtaskv1.JobState_JOB_STATE_PENDING || job.GetOutcome() != dtaskv1.JobState_JOB_STATE_CANCELLED ||
		job.GetError() != "being cancelled, cleanup tasks are running: because" {
		t.Errorf("being cancelled: got %v, %v", job, err)
	}
	r.assign(t, held(1, 1, 1, w))
	if job, _ = r.get(t, "1", linearizable); job.GetState() != dtaskv1.JobState_JOB_STATE_RUNNING {
		t.Errorf("cleaning up: got %v", job)
	}
	_, err = r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "1", IdempotencyKey: rand.Text()})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	r.leader.op(t, &fsm.Complete{Items: []fsm.CompleteItem{{HeldAttempt: held(1, 1, 1, w)}}})
	if job, _ = r.get(t, "1", linearizable); job.GetState() != dtaskv1.JobState_JOB_STATE_CANCELLED || job.GetError() != "because" || job.GetOutcome() != 0 {
		t.Errorf("cleaned up: got %v", job)
	}
	// A job whose cleanup tasks run after success can only be cancelled with now.
	r.complete(t, held(2, 0, 1, w), "")
	_, err = cancel("2", false)
	if wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT); !strings.Contains(err.Error(), "cleanup tasks") {
		t.Errorf("got rejection %v", err)
	}
	if already, err := cancel("2", true); already || err != nil {
		t.Errorf("cancel with cleanup: got %v, %v", already, err)
	}
	if already, err := cancel("3", true); already || err != nil {
		t.Errorf("cancel with cleanup: got %v, %v", already, err)
	}
	for _, id := range []string{"2", "3"} {
		if job, _ = r.get(t, id, linearizable); job.GetState() != dtaskv1.JobState_JOB_STATE_CANCELLED {
			t.Errorf("cancelled with cleanup: got %v", job)
		}
	}
	_, err = r.jobs.Cancel(t.Context(), &dtaskv1.CancelRequest{Job: "2", Task: "a", Now: true})
	wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
}

func TestToleratedFailuresAreShown(t *testing.T) {
	t.Parallel()
	r := setup(t)
	h := header("tolerates")
	h.MaxFailures = 1
	if _, err := r.send(t.Context(), request("k", h, task("a"), task("b"), task("c"))); err != nil {
		t.Fatal(err)
	}
	for i, tolerated := range []uint32{1, 0} {
		r.leader.op(t, &fsm.FailTask{Task: fsm.TaskRef{Job: 1, Index: uint32(i)}, Error: "late"})
		job, err := r.get(t, "1", linearizable)
		if err != nil || job.GetMaxFailures() != 1 || job.GetFailuresTolerated() != tolerated || job.GetTasksFailed() != uint32(i+1) {
			t.Errorf("after %d failures: got %v, %v", i+1, job, err)
		}
	}
}
