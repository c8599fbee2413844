package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func newFakeLeader() *fakeLeader {
	f := &fakeLeader{keys: make(map[string][2]string), last: 100, jobs: make(map[string]*fakeJob), fakeAccess: newFakeAccess(), fakeSchedules: newFakeSchedules(), fakeQueues: newFakeQueues(), fakeLimits: newFakeLimits()}
	f.jobs["41"] = &fakeJob{
		job: &dtaskv1.Job{
			Id: "41", Name: "nightly", Owner: "data-team", Priority: dtaskv1.Priority_PRIORITY_HIGH, State: dtaskv1.JobState_JOB_STATE_FAILED,
			SubmittedAt: ago(10 * time.Minute), StartedAt: ago(10*time.Minute - 5*time.Millisecond), CompletedAt: ago(8 * time.Minute),
			TasksTotal: 2, TasksCompleted: 0, TasksFailed: 1, Retries: 3, Error: "task fetch dead", Levels: []uint32{1, 1},
			TasksByState: map[string]uint32{"dead": 1, "cancelled": 1},
		},
		tasks: []*dtaskv1.Task{
			{
				Id: "fetch", Index: 0, State: dtaskv1.TaskState_TASK_STATE_DEAD, Attempt: 4, Worker: "w1", Error: "exit 22: \x1b[31mnot found\x1b[0m", StartedAt: ago(9 * time.Minute), CompletedAt: ago(8 * time.Minute), Retries: 3,
				Type: "command", History: []*dtaskv1.AttemptRecord{
					{Number: 1, Worker: "w2", StartedAt: ago(10 * time.Minute), EndedAt: ago(10*time.Minute - 1200*time.Millisecond), Error: "exit 22\n  \x1b[31mlast\x1b[0m output\n"},
					{Number: 3, EndedAt: ago(9 * time.Minute), Error: "worker lost during the attempt"},
					{Number: 4, Worker: "w1", StartedAt: ago(9 * time.Minute), EndedAt: ago(8 * time.Minute), Error: "exit 22: \x1b[31mnot found\x1b[0m"},
				},
			},
			{Id: "count", Index: 1, State: dtaskv1.TaskState_TASK_STATE_CANCELLED, Error: "dependency fetch failed", CompletedAt: ago(8 * time.Minute)},
		},
		results: []*dtaskv1.TaskResult{{Task: "count", State: dtaskv1.TaskState_TASK_STATE_CANCELLED, Error: "dependency fetch failed"}},
	}
	f.jobs["42"] = &fakeJob{
		job: &dtaskv1.Job{
			Id: "42", Name: "wordcount", Owner: "ada", Priority: dtaskv1.Priority_PRIORITY_NORMAL, State: dtaskv1.JobState_JOB_STATE_RUNNING,
			Labels: map[string]string{"team": "data"}, SubmittedAt: ago(3 * time.Minute), StartedAt: ago(3 * time.Minute),
			TasksTotal: 3, TasksCompleted: 1, Levels: []uint32{2, 1}, TasksByState: map[string]uint32{"completed": 1, "running": 1, "blocked": 1},
		},
		tasks: []*dtaskv1.Task{
			{Id: "map-a", Index: 0, State: dtaskv1.TaskState_TASK_STATE_COMPLETED, Attempt: 1, Worker: "w1", StartedAt: ago(3 * time.Minute), CompletedAt: ago(3*time.Minute - 1300*time.Millisecond)},
			{Id: "map-b", Index: 1, State: dtaskv1.TaskState_TASK_STATE_RUNNING, Attempt: 1, Worker: "w2", StartedAt: ago(time.Minute), ProgressPermille: 420, ProgressText: "half"},
			{Id: "reduce", Index: 2, State: dtaskv1.TaskState_TASK_STATE_BLOCKED},
		},
	}
	f.jobs["43"] = &fakeJob{
		job: &dtaskv1.Job{Id: "43", Name: "two", State: dtaskv1.JobState_JOB_STATE_COMPLETED, Priority: dtaskv1.Priority_PRIORITY_LOW, SubmittedAt: ago(time.Hour), StartedAt: ago(time.Hour), CompletedAt: ago(time.Hour - 2*time.Second), TasksTotal: 2, TasksCompleted: 2},
		results: []*dtaskv1.TaskResult{
			{Task: "a", State: dtaskv1.TaskState_TASK_STATE_COMPLETED, Result: []byte(`{"prime": true}`)},
			{Task: "b", State: dtaskv1.TaskState_TASK_STATE_COMPLETED, Result: []byte("done"), Output: "/data/out.json", OutputSize: 12, OutputSha256: "ab12"},
		},
	}
	f.jobs["40"] = &fakeJob{
		job: &dtaskv1.Job{
			Id: "40", Name: "cleans", Priority: dtaskv1.Priority_PRIORITY_NORMAL, State: dtaskv1.JobState_JOB_STATE_RUNNING, Outcome: dtaskv1.JobState_JOB_STATE_CANCELLED,
			SubmittedAt: ago(3 * time.Minute), StartedAt: ago(3 * time.Minute), Error: "being cancelled, cleanup tasks are running", MaxFailures: 5, FailuresTolerated: 2,
			TasksTotal: 2, TasksByState: map[string]uint32{"cancelled": 1, "running": 1},
		},
		tasks: []*dtaskv1.Task{
			{Id: "work", Index: 0, State: dtaskv1.TaskState_TASK_STATE_CANCELLED, Attempt: 1},
			{Id: "known", Index: 2, State: dtaskv1.TaskState_TASK_STATE_COMPLETED, ReusedJob: "12", ReusedTask: "count"},
			{Id: "sweep", Index: 1, State: dtaskv1.TaskState_TASK_STATE_RUNNING, Attempt: 1, Worker: "w2", StartedAt: ago(time.Minute)},
		},
	}
	return f
}

func (f *fakeLeader) find(id string) (*fakeJob, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if j, ok := f.jobs[id]; ok {
		return j, nil
	}
	return nil, refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, "job "+id+" not found: unknown or expired")
}

func (f *fakeLeader) GetJob(_ context.Context, r *dtaskv1.GetJobRequest) (*dtaskv1.Job, error) {
	j, err := f.find(r.GetId())
	if err != nil {
		return nil, err
	}
	if r.GetConsistency() == dtaskv1.Consistency_CONSISTENCY_STALE {
		job := proto.CloneOf(j.job)
		job.Freshness = fresh()
		return job, nil
	}
	return j.job, nil
}

// fresh is the freshness of all responses.
func fresh() *dtaskv1.Freshness {
	return &dtaskv1.Freshness{AppliedIndex: 120, LagMs: 1500, Replica: "n1"}
}

func (f *fakeLeader) ListJobs(_ context.Context, r *dtaskv1.ListJobsRequest) (*dtaskv1.ListJobsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &dtaskv1.ListJobsResponse{Freshness: fresh(), Incomplete: r.GetName() == "rebuilt"}
	for _, j := range f.jobs {
		if at := j.job.GetSubmittedAt(); at < r.GetSubmittedSince() || r.GetSubmittedBefore() != 0 && at >= r.GetSubmittedBefore() {
			continue
		}
		if name := r.GetName(); name != "" && name != "rebuilt" && name != j.job.GetName() {
			continue
		}
		if (len(r.GetStates()) == 0 || slices.Contains(r.GetStates(), j.job.GetState())) && (r.GetOwner() == "" || r.GetOwner() == j.job.GetOwner()) && (r.GetNamespace() == "" || r.GetNamespace() == cmp.Or(j.job.GetNamespace(), "default")) && hasLabels(j.job, r.GetLabels()) {
			out.Jobs = append(out.Jobs, j.job)
		}
	}
	slices.SortFunc(out.GetJobs(), func(a, b *dtaskv1.Job) int {
		return cmp.Or(cmp.Compare(len(b.GetId()), len(a.GetId())), cmp.Compare(b.GetId(), a.GetId()))
	})
	return out, nil
}

func (f *fakeLeader) ListTasks(r *dtaskv1.ListTasksRequest, s grpc.ServerStreamingServer[dtaskv1.ListTasksResponse]) error {
	j, err := f.find(r.GetJob())
	if err != nil {
		return err
	}
	out := &dtaskv1.ListTasksResponse{Freshness: fresh()}
	for _, t := range j.tasks {
		if (r.GetTask() == "" || r.GetTask() == t.GetId()) && (len(r.GetStates()) == 0 || slices.Contains(r.GetStates(), t.GetState())) {
			out.Tasks = append(out.Tasks, t)
		}
	}
	if r.GetTask() == "train" || r.GetTask() == "mute" || slices.Equal(r.GetStates(), []dtaskv1.TaskState{dtaskv1.TaskState_TASK_STATE_PENDING}) {
		out.Tasks = append(out.Tasks, &dtaskv1.Task{Id: cmp.Or(r.GetTask(), "train"), Index: 3, State: dtaskv1.TaskState_TASK_STATE_PENDING, Type: "command"}) // see Explain
	}
	if len(out.GetTasks()) == 0 && r.GetTask() != "" {
		return refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, "job "+r.GetJob()+" has no task "+r.GetTask())
	}
	if r.GetMostUrgent() > 0 {
		out.Selected = uint32(len(out.GetTasks())) //nolint:gosec // a few
		out.Tasks = out.GetTasks()[:min(len(out.GetTasks()), int(r.GetMostUrgent()))]
	}
	return s.Send(out)
}

func (f *fakeLeader) WatchJob(r *dtaskv1.WatchJobRequest, s grpc.ServerStreamingServer[dtaskv1.WatchJobResponse]) error {
	j, err := f.find(r.GetId())
	if err != nil {
		return err
	}
	first := proto.CloneOf(j.job)
	first.State, first.TasksCompleted = dtaskv1.JobState_JOB_STATE_RUNNING, 0
	first.TasksByState = map[string]uint32{"running": 1, "scheduled": 1}
	if r.GetWithTasks() {
		return watchTasks(r, s, first, j)
	}
	if err := s.Send(&dtaskv1.WatchJobResponse{Job: first}); err != nil {
		return err
	}
	if j.job.GetState() == dtaskv1.JobState_JOB_STATE_RUNNING {
		<-s.Context().Done()
		return nil
	}
	return s.Send(&dtaskv1.WatchJobResponse{Job: j.job})
}

func (f *fakeLeader) WaitJobs(r *dtaskv1.WaitJobsRequest, s grpc.ServerStreamingServer[dtaskv1.WaitJobsResponse]) error {
	m := &dtaskv1.WaitJobsResponse{}
	for _, id := range r.GetJobs() {
		j, err := f.find(id)
		switch {
		case err != nil:
			m.Unknown = append(m.Unknown, id)
		case j.job.GetState() == dtaskv1.JobState_JOB_STATE_RUNNING:
			m.Remaining++
			m.TasksCompleted += uint64(j.job.GetTasksCompleted())
		default:
			m.Finished = append(m.Finished, j.job)
		}
	}
	err := s.Send(m)
	if m.GetRemaining() > 0 {
		<-s.Context().Done()
	}
	return err
}

func (f *fakeLeader) Cancel(_ context.Context, r *dtaskv1.CancelRequest) (*dtaskv1.CancelResponse, error) {
	j, err := f.find(r.GetJob())
	if err != nil {
		return nil, err
	}
	f.race(j)
	if j.job.GetState() != dtaskv1.JobState_JOB_STATE_RUNNING {
		return nil, refusal(codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, "job "+r.GetJob()+" has finished: failed")
	}
	f.noteCancelled(r.GetJob())
	return &dtaskv1.CancelResponse{AlreadyCancelled: r.GetReason() == "again" && !r.GetNow()}, nil
}

// race ends a job named races, and removes one named expires, as soon as it is to be changed.
func (f *fakeLeader) race(j *fakeJob) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch j.job.GetName() {
	case "races":
		j.job.State = dtaskv1.JobState_JOB_STATE_COMPLETED
	case "expires":
		j.job.State = dtaskv1.JobState_JOB_STATE_COMPLETED
		delete(f.jobs, j.job.GetId())
	}
}

// GetJobSpec streams a job in two parts.
func (f *fakeLeader) GetJobSpec(r *dtaskv1.GetJobSpecRequest, s grpc.ServerStreamingServer[dtaskv1.GetJobSpecResponse]) error {
	j, err := f.find(r.GetJob())
	if err != nil {
		return err
	}
	head, rest := &dtaskv1.JobPart{Header: &dtaskv1.JobHeader{Name: j.job.GetName(), Policies: []*dtaskv1.TaskPolicy{{}}}}, &dtaskv1.JobPart{}
	if j.spec != nil {
		head.Header, head.Total, rest.Tasks = j.spec.GetHeader(), j.spec.GetTotal(), j.spec.GetTasks()
	} else {
		head.Total = uint32(len(j.tasks)) //nolint:gosec // a few
		for _, t := range j.tasks {
			rest.Tasks = append(rest.Tasks, &dtaskv1.TaskSpec{Id: t.GetId()})
		}
	}
	if strings.HasPrefix(j.job.GetName(), "scheduled") {
		head.Header.Run = &dtaskv1.ScheduledRun{Schedule: "scheduled", TickMs: noon.UnixMilli(), Timezone: "UTC"}
	}
	head.More = true
	if err := s.Send(&dtaskv1.GetJobSpecResponse{Part: head}); err != nil {
		return err
	}
	return s.Send(&dtaskv1.GetJobSpecResponse{Part: rest})
}

func (f *fakeLeader) GetResult(_ context.Context, r *dtaskv1.GetResultRequest) (*dtaskv1.GetResultResponse, error) {
	j, err := f.find(r.GetJob())
	if err != nil {
		return nil, err
	}
	copied := *j
	copied.job = proto.CloneOf(j.job)
	copied.job.Freshness = fresh()
	j = &copied
	if j.results == nil && len(j.tasks) == 1 {
		return &dtaskv1.GetResultResponse{Job: j.job, Results: []*dtaskv1.TaskResult{{Task: j.tasks[0].GetId(), State: dtaskv1.TaskState_TASK_STATE_COMPLETED, Result: []byte("hello")}}}, nil
	}
	if r.GetTask() == "" {
		return &dtaskv1.GetResultResponse{Job: j.job, Results: j.results}, nil
	}
	// Each page has one task; "each" names all tasks, as an array does.
	for i, one := range j.results {
		if i >= int(r.GetFrom()) && (r.GetTask() == "each" || r.GetTask() == one.GetTask()) {
			resp := &dtaskv1.GetResultResponse{Job: j.job, Results: []*dtaskv1.TaskResult{one}}
			if r.GetTask() == "each" && i+1 < len(j.results) {
				resp.Next = uint32(i + 1)
			}
			return resp, nil
		}
	}
	return nil, refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, "task "+r.GetTask()+" not found")
}

func (f *fakeLeader) Logs(r *dtaskv1.LogsRequest, s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
	if j, err := f.find(r.GetJob()); err == nil && j.output != nil {
		return j.output(r, s)
	}
	if r.GetAttempt() > 4 {
		return refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, "the log has expired")
	}
	first := fmt.Appendf(nil, "attempt %d\n::progress 0.5\n", r.GetAttempt())
	return s.Send(&dtaskv1.LogsResponse{Pieces: []*dtaskv1.LogPiece{
		{Stream: dtaskv1.LogStream_LOG_STREAM_STDOUT, Data: first},
		{Stream: dtaskv1.LogStream_LOG_STREAM_STDERR, Offset: uint64(len(first)), Data: []byte("curl: 404\n")},
	}})
}
