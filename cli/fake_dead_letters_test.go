package cli

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Retry resumes a failed job, which then completes unless its name is hopeless.
func (f *fakeLeader) Retry(_ context.Context, r *dtaskv1.RetryRequest) (*dtaskv1.RetryResponse, error) {
	j, err := f.find(r.GetJob())
	if err != nil {
		return nil, err
	}
	if err := j.has(r.GetTasks()); err != nil {
		return nil, err
	}
	if err := checkVersion(r.GetJob(), r.GetIfVersion()); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if j.job.GetState() != dtaskv1.JobState_JOB_STATE_FAILED {
		return nil, refusal(codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, "job "+r.GetJob()+" has no failed tasks: nothing to retry")
	}
	now := proto.CloneOf(j.job)
	now.State, now.CompletedAt, now.TasksFailed = dtaskv1.JobState_JOB_STATE_RUNNING, 0, 0
	now.TasksByState = map[string]uint32{"pending": 1}
	if j.job.GetName() != "hopeless" {
		j.job.State, j.job.TasksCompleted, j.job.TasksFailed, j.job.Error = dtaskv1.JobState_JOB_STATE_COMPLETED, j.job.GetTasksTotal(), 0, ""
		for _, t := range j.tasks {
			t.State, t.Worker = dtaskv1.TaskState_TASK_STATE_COMPLETED, "w1"
		}
	}
	return &dtaskv1.RetryResponse{Job: now}, nil
}

// has returns an error if an ID is not a task of the job.
func (j *fakeJob) has(ids []string) error {
	for _, id := range ids {
		if !slices.ContainsFunc(j.tasks, func(t *dtaskv1.Task) bool { return t.GetId() == id }) {
			return refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, "job "+j.job.GetId()+" has no task "+id)
		}
	}
	return nil
}

// ListDeadLetters returns pages of one dead letter.
func (f *fakeLeader) ListDeadLetters(_ context.Context, r *dtaskv1.ListDeadLettersRequest) (*dtaskv1.ListDeadLettersResponse, error) {
	if r.GetJob() != "" {
		if j, err := f.find(r.GetJob()); err != nil {
			return nil, err
		} else if err := j.has(slices.DeleteFunc([]string{r.GetTask()}, func(id string) bool { return id == "" })); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*dtaskv1.DeadLetter
	for _, j := range f.jobs {
		for _, t := range j.tasks {
			id := j.job.GetId()
			if t.GetState() != dtaskv1.TaskState_TASK_STATE_DEAD || !slices.Contains([]string{"", id}, r.GetJob()) ||
				!slices.Contains([]string{"", t.GetId()}, r.GetTask()) || !slices.Contains([]string{"", t.GetType()}, r.GetType()) {
				continue
			}
			letter := &dtaskv1.DeadLetter{
				Job: id, JobName: j.job.GetName(), Owner: j.job.GetOwner(), Task: t.GetId(), Type: t.GetType(),
				DiedAt: t.GetCompletedAt(), Attempts: t.GetAttempt(), Error: t.GetError(),
			}
			if r.GetWithHistory() {
				letter.Payload, letter.History = []byte(`{"url": "http://x/?a=1&b=2"}`), t.GetHistory()
			}
			all = append(all, letter)
		}
	}
	slices.SortFunc(all, func(a, b *dtaskv1.DeadLetter) int {
		return cmp.Or(cmp.Compare(len(b.GetJob()), len(a.GetJob())), cmp.Compare(b.GetJob(), a.GetJob()), cmp.Compare(a.GetTask(), b.GetTask()))
	})
	out := &dtaskv1.ListDeadLettersResponse{Freshness: fresh()}
	if at := len(r.GetPageToken()); at < len(all) { // the length of the token is the number of dead letters sent
		out.DeadLetters = all[at : at+1]
		out.NextPageToken = r.GetPageToken() + "x"
	}
	return out, nil
}

func (f *fakeLeader) PurgeDeadLetters(_ context.Context, r *dtaskv1.PurgeDeadLettersRequest) (*dtaskv1.PurgeDeadLettersResponse, error) {
	j, err := f.find(r.GetJob())
	if err != nil {
		return nil, err
	}
	if err := j.has(r.GetTasks()); err != nil {
		return nil, err
	}
	if err := checkVersion(r.GetJob(), r.GetIfVersion()); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &dtaskv1.PurgeDeadLettersResponse{}
	if r.GetIdempotencyKey() == "again" { // an earlier call with it purged three
		out.Purged, out.Existed = 3, true
		return out, nil
	}
	for _, t := range j.tasks {
		if t.GetState() == dtaskv1.TaskState_TASK_STATE_DEAD && (len(r.GetTasks()) == 0 || slices.Contains(r.GetTasks(), t.GetId())) {
			t.State = dtaskv1.TaskState_TASK_STATE_FAILED
			out.Purged++
		}
	}
	return out, nil
}
