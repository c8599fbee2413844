package api

import (
	"context"
	"crypto/rand"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/coordinator/history"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// withHistory gives the server a history whose jobs have these summaries. They stay
// pending unless run starts the writer.
func withHistory(t *testing.T, run bool, summarize func(*fsm.ArchivedJob) []byte) (*history.History, func(*Config)) {
	t.Helper()
	h, err := history.Open(history.Config{
		Path: filepath.Join(t.TempDir(), "history.db"), Logger: slog.New(slog.DiscardHandler), Summarize: summarize,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	if run {
		go func() { ended <- h.Run(ctx) }()
	} else {
		ended <- nil
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !run {
			_ = h.Close()
		}
	})
	return h, func(cfg *Config) {
		cfg.Machine.ArchiveTo(h)
		cfg.History = h
	}
}

// archiveTwo archives a completed job and one with a dead task. A third job stays in
// the state.
func (r *replica) archiveTwo(t *testing.T) {
	t.Helper()
	h := header("done")
	h.Owner, h.Labels = "me", map[string]string{"team": "data"}
	if _, err := r.send(t.Context(), request("k1", h, task("a"), task("b", 0))); err != nil {
		t.Fatal(err)
	}
	r.submit(t, "dead", task("a"))
	r.submit(t, "live", task("a"))
	w := r.worker(t)
	r.complete(t, held(1, 0, 1, w), "of a")
	r.complete(t, held(1, 1, 1, w), "of b")
	r.assign(t, held(2, 0, 1, w))
	fail := fsm.FailItem{HeldAttempt: held(2, 0, 1, w), Next: fsm.NextDead, Error: "exit 7"}
	if got := r.leader.do(func(d *fsm.EntryBuilder) fsm.Reason { return d.Fail(fail) }); got != fsm.Accepted {
		t.Fatal(got)
	}
	r.leader.op(t, &fsm.Archive{Items: []fsm.JobID{1, 2}})
	r.machine.Read(func(st *fsm.State, _ uint64) {
		if _, there := st.Job(1); there {
			t.Fatal("job 1 is still in the state")
		}
	})
}

func TestArchivedJobsAreReadAsBefore(t *testing.T) {
	t.Parallel()
	for name, inFile := range map[string]bool{"pending": false, "in the file": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, change := withHistory(t, inFile, Summarize)
			r := setup(t, change)
			r.archiveTwo(t)
			if inFile {
				if err := h.Sync(t.Context(), r.machine.Index()); err != nil {
					t.Fatal(err)
				}
			}
			r.readArchived(t)
			r.refuseArchived(t)
		})
	}
}

// readArchived reads the two jobs in every way.
func (r *replica) readArchived(t *testing.T) {
	t.Helper()
	job, err := r.jobs.GetJob(t.Context(), &dtaskv1.GetJobRequest{Id: "1", WithLevels: true})
	if err != nil || job.GetState() != dtaskv1.JobState_JOB_STATE_COMPLETED || job.GetOwner() != "me" || job.GetTasksCompleted() != 2 ||
		!slices.Equal(job.GetLevels(), []uint32{1, 1}) || job.GetTasksByState()["aggregated"] != 1 {
		t.Errorf("status: %v, %v", job, err)
	}
	for _, c := range []dtaskv1.Consistency{linearizable, stale} {
		if job, err := r.get(t, "2", c); err != nil || job.GetState() != dtaskv1.JobState_JOB_STATE_FAILED {
			t.Errorf("status, %v: %v, %v", c, job, err)
		}
	}
	for _, q := range []struct {
		req  *dtaskv1.ListJobsRequest
		want []string
	}{
		{&dtaskv1.ListJobsRequest{}, []string{"3", "2", "1"}},
		{&dtaskv1.ListJobsRequest{Owner: "me"}, []string{"1"}},
		{&dtaskv1.ListJobsRequest{Changeable: true}, []string{"3"}},
		{&dtaskv1.ListJobsRequest{Labels: map[string]string{"team": "data"}}, []string{"1"}},
		{&dtaskv1.ListJobsRequest{Name: "dead"}, []string{"2"}},
		{&dtaskv1.ListJobsRequest{SubmittedSince: 1}, []string{"3", "2", "1"}},
		{&dtaskv1.ListJobsRequest{SubmittedSince: r.leader.nowMS + 1}, nil},
		{&dtaskv1.ListJobsRequest{SubmittedBefore: 1}, nil},
		{&dtaskv1.ListJobsRequest{States: []dtaskv1.JobState{dtaskv1.JobState_JOB_STATE_FAILED}}, []string{"2"}},
		{&dtaskv1.ListJobsRequest{States: []dtaskv1.JobState{dtaskv1.JobState_JOB_STATE_PENDING}}, []string{"3"}},
	} {
		if got := slices.Concat(r.list(t, q.req)...); !slices.Equal(got, q.want) {
			t.Errorf("list %v: %v, want %v", q.req, got, q.want)
		}
	}
	pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1", WithResults: true})
	if err != nil || len(pages) != 1 || len(pages[0].GetTasks()) != 2 || string(pages[0].GetTasks()[0].GetResult()) != "of a" || pages[0].GetTasks()[0].GetWorker() != "w1" {
		t.Errorf("tasks: %v, %v", pages, err)
	}
	result, err := r.jobs.GetResult(t.Context(), &dtaskv1.GetResultRequest{Job: "1"})
	if err != nil || len(result.GetResults()) != 1 || string(result.GetResults()[0].GetResult()) != "of b" {
		t.Errorf("result: %v, %v", result, err)
	}
	if text, err := r.readLogs(t, &dtaskv1.LogsRequest{Job: "1", Task: "b"}); err != nil || text != "hello\n" {
		t.Errorf("logs: %q, %v", text, err)
	}
	letters, err := r.jobs.ListDeadLetters(t.Context(), &dtaskv1.ListDeadLettersRequest{Job: "2"})
	if err != nil || len(letters.GetDeadLetters()) != 0 {
		t.Errorf("dead letters of an archived job: got %v, %v", letters, err)
	}
}

// refuseArchived tries all changes of the two jobs.
func (r *replica) refuseArchived(t *testing.T) {
	t.Helper()
	_, err := r.jobs.Retry(t.Context(), &dtaskv1.RetryRequest{Job: "2", IdempotencyKey: rand.Text()})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	_, err = r.jobs.Cancel(t.Context(), &dtaskv1.CancelRequest{Job: "1"})
	wantError(t, err, codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT)
	_, err = r.get(t, "4", linearizable)
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	_, err = r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1", Task: "nobody"})
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
}

// While history is being fetched, an unknown job may be in the missing part.
func TestAnIncompleteHistoryIsReported(t *testing.T) {
	t.Parallel()
	h, change := withHistory(t, false, Summarize)
	r := setup(t, change)
	r.archiveTwo(t)
	h.Restored(r.machine.Index() + 10) // jobs that left before are missing
	if _, err := r.get(t, "1", linearizable); err != nil {
		t.Errorf("an existing job: got %v", err)
	}
	r.leader.op(t, &fsm.CancelJob{Job: 3, Reason: "enough"}, &fsm.Archive{Items: []fsm.JobID{3}})
	_, err := r.get(t, "3", linearizable)
	if detail := wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY); detail.GetRetryAfterMs() == 0 {
		t.Errorf("missing retry delay: got %v", detail)
	}
	_, err = r.get(t, "9", linearizable)
	wantError(t, err, codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND)
	got, err := r.jobs.ListJobs(t.Context(), &dtaskv1.ListJobsRequest{})
	if err != nil || !got.GetIncomplete() || len(got.GetJobs()) != 2 {
		t.Errorf("list: %v, %v", got, err)
	}
}
