package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// noon is the current time of all scripts.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) int64 { return noon.Add(-d).UnixMilli() }

// A fakeJob is a job with its tasks and results.
type fakeJob struct {
	job     *dtaskv1.Job
	tasks   []*dtaskv1.Task
	results []*dtaskv1.TaskResult
}

// A fakeLeader is a coordinator with four jobs. Submitted jobs complete immediately,
// unless their name is fails, hopeless, dies or slow.
type fakeLeader struct {
	dtaskv1.UnimplementedJobServiceServer
	dtaskv1.UnimplementedClusterServiceServer
	dtaskv1.UnimplementedAdminServiceServer

	addr string
	mu   sync.Mutex // guards all below
	jobs map[string]*fakeJob
	keys map[string][2]string // idempotency key → job id, digest
	last int
	runs uint64
	fakeDrain
	fakeBench
}

// A fakeFollower redirects every call to the leader, except Status and Identify.
type fakeFollower struct {
	dtaskv1.UnimplementedClusterServiceServer

	leader string
}

// serve serves a leader on a loopback port until done is called.
func (f *fakeLeader) serve() (addr string, done func(), err error) {
	s := grpc.NewServer()
	dtaskv1.RegisterJobServiceServer(s, f)
	dtaskv1.RegisterClusterServiceServer(s, f)
	dtaskv1.RegisterAdminServiceServer(s, f)
	return listenAndServe(s)
}

// serve serves a follower on a loopback port until done is called.
func (f *fakeFollower) serve() (addr string, done func(), err error) {
	s := grpc.NewServer(grpc.UnknownServiceHandler(f.redirect))
	dtaskv1.RegisterClusterServiceServer(s, f)
	return listenAndServe(s)
}

func listenAndServe(s *grpc.Server) (addr string, done func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	return l.Addr().String(), func() { s.Stop(); <-served }, nil
}

func refusal(code codes.Code, reason dtaskv1.ErrorReason, message string, faults ...string) error {
	return withDetail(code, message, &dtaskv1.ErrorDetail{Reason: reason, Faults: faults})
}

func withDetail(code codes.Code, message string, d *dtaskv1.ErrorDetail) error {
	st, err := status.New(code, message).WithDetails(d)
	if err != nil {
		return err
	}
	return st.Err()
}

func newFakeLeader() *fakeLeader {
	f := &fakeLeader{keys: make(map[string][2]string), last: 100, jobs: make(map[string]*fakeJob)}
	f.jobs["41"] = &fakeJob{
		job: &dtaskv1.Job{
			Id: "41", Name: "nightly", Owner: "data-team", Priority: dtaskv1.Priority_PRIORITY_HIGH, State: dtaskv1.JobState_JOB_STATE_FAILED,
			SubmittedAt: ago(10 * time.Minute), StartedAt: ago(10*time.Minute - 5*time.Millisecond), CompletedAt: ago(8 * time.Minute),
			TasksTotal: 2, TasksCompleted: 0, TasksFailed: 1, Retries: 3, Error: "task fetch dead", Levels: []uint32{1, 1}, Recovered: 3,
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

func (f *fakeLeader) Submit(s grpc.BidiStreamingServer[dtaskv1.SubmitRequest, dtaskv1.SubmitResponse]) error {
	open := make(map[uint64]*dtaskv1.JobPart)
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		resp := &dtaskv1.SubmitResponse{}
		var header *dtaskv1.JobHeader // of a job of one part
		for _, p := range m.GetParts() {
			whole := open[p.GetJob()]
			if whole == nil {
				whole = p
				if p.GetHeader() == nil {
					p.Header = proto.CloneOf(header)
				} else if !p.GetMore() {
					header = proto.CloneOf(p.GetHeader())
				}
				whole.Tasks = sentTasks(p)
			} else {
				whole.Tasks = append(whole.GetTasks(), sentTasks(p)...)
			}
			if open[p.GetJob()] = whole; !p.GetMore() {
				delete(open, p.GetJob())
				resp.Results = append(resp.Results, f.result(whole))
			}
		}
		if err := s.Send(resp); err != nil {
			return err
		}
	}
}

// result submits a job that has arrived.
func (f *fakeLeader) result(whole *dtaskv1.JobPart) *dtaskv1.SubmitResult {
	number := whole.GetJob()
	whole.Job, whole.More = 0, false // a retry has another number
	stored, err := f.submit(whole)
	result := &dtaskv1.SubmitResult{Job: number, Stored: stored}
	if st := status.Convert(err); err != nil {
		result.Code, result.Message = int32(st.Code()), st.Message()
		for _, d := range st.Details() {
			result.Detail, _ = d.(*dtaskv1.ErrorDetail)
		}
	}
	return result
}

// sentTasks returns the tasks of a part; of those in columns the ids are enough.
func sentTasks(m *dtaskv1.JobPart) []*dtaskv1.TaskSpec {
	tasks, ids := m.GetTasks(), m.GetColumns().GetIds()
	for _, n := range m.GetColumns().GetIdSizes() {
		tasks, ids = append(tasks, &dtaskv1.TaskSpec{Id: string(ids[:n])}), ids[n:]
	}
	return tasks
}

func (f *fakeLeader) submit(whole *dtaskv1.JobPart) (*dtaskv1.StoredJob, error) {
	switch whole.GetHeader().GetName() {
	case "refused":
		return nil, refusal(codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED, "the queue is closed")
	case "busy":
		return nil, refusal(codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY, "too many pending requests")
	case "odd":
		return nil, refusal(codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID, "invalid job", "job.deadline: must be in the future", "job.env: exceeds 64 KiB")
	}
	r := f.store(whole)
	if r == nil {
		return nil, refusal(codes.AlreadyExists, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, "idempotency key belongs to another job")
	}
	return r, nil
}

// store is nil if the key belongs to another job.
func (f *fakeLeader) store(m *dtaskv1.JobPart) *dtaskv1.StoredJob {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := m.GetIdempotencyKey()
	m.IdempotencyKey = ""
	body, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	digest := fmt.Sprint(sha256.Sum256(body))
	if k, ok := f.keys[key]; ok {
		if k[1] != digest {
			return nil
		}
		return &dtaskv1.StoredJob{Id: k[0], Existed: true}
	}
	f.last++
	id := strconv.Itoa(f.last)
	f.keys[key] = [2]string{id, digest}
	f.runs++
	f.jobs[id] = finished(id, m)
	f.bench(f.jobs[id], m)
	return &dtaskv1.StoredJob{Id: id, Index: 7}
}

// finished is a submitted job at its end.
func finished(id string, m *dtaskv1.JobPart) *fakeJob {
	n := uint32(len(m.GetTasks()))
	j := &fakeJob{job: &dtaskv1.Job{
		Id: id, Name: m.GetHeader().GetName(), Owner: m.GetHeader().GetOwner(), Priority: m.GetHeader().GetPriority(),
		State: dtaskv1.JobState_JOB_STATE_COMPLETED, SubmittedAt: ago(10 * time.Second), StartedAt: ago(9 * time.Second), CompletedAt: ago(200 * time.Millisecond),
		TasksTotal: n, TasksCompleted: n, Retries: 1, Recovered: 1, TasksByState: map[string]uint32{"completed": n},
	}}
	for i, t := range m.GetTasks() {
		j.tasks = append(j.tasks, &dtaskv1.Task{Id: t.GetId(), Index: uint32(i), State: dtaskv1.TaskState_TASK_STATE_COMPLETED, Attempt: 1, Worker: fmt.Sprintf("w%d", i%2+1)})
	}
	switch j.job.GetName() {
	case "fails", "hopeless":
		j.job.State, j.job.TasksFailed, j.job.TasksCompleted = dtaskv1.JobState_JOB_STATE_FAILED, 1, n-1
		j.tasks[0].State, j.tasks[0].Error = dtaskv1.TaskState_TASK_STATE_FAILED, "exit 1"
	case "dies":
		j.job.State, j.job.TasksFailed, j.job.TasksCompleted = dtaskv1.JobState_JOB_STATE_FAILED, n, 0
		for _, t := range j.tasks {
			t.State, t.Attempt, t.Type, t.Error = dtaskv1.TaskState_TASK_STATE_DEAD, 2, m.GetHeader().GetPolicies()[0].GetType(), "exit 3\nlast words"
			t.CompletedAt = ago(time.Minute)
		}
	case "slow":
		j.job.State, j.job.TasksCompleted, j.job.CompletedAt = dtaskv1.JobState_JOB_STATE_RUNNING, 0, 0
	}
	return j
}

func (f *fakeLeader) GetJob(_ context.Context, r *dtaskv1.GetJobRequest) (*dtaskv1.Job, error) {
	j, err := f.find(r.GetId())
	if err != nil {
		return nil, err
	}
	return j.job, nil
}

func (f *fakeLeader) ListJobs(_ context.Context, r *dtaskv1.ListJobsRequest) (*dtaskv1.ListJobsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &dtaskv1.ListJobsResponse{Incomplete: r.GetName() == "rebuilt"}
	for _, j := range f.jobs {
		if at := j.job.GetSubmittedAt(); at < r.GetSubmittedSince() || r.GetSubmittedBefore() != 0 && at >= r.GetSubmittedBefore() {
			continue
		}
		if (len(r.GetStates()) == 0 || slices.Contains(r.GetStates(), j.job.GetState())) && (r.GetOwner() == "" || r.GetOwner() == j.job.GetOwner()) && hasLabels(j.job, r.GetLabels()) {
			out.Jobs = append(out.Jobs, j.job)
		}
	}
	slices.SortFunc(out.GetJobs(), func(a, b *dtaskv1.Job) int { return cmp.Compare(b.GetId(), a.GetId()) })
	return out, nil
}

func (f *fakeLeader) ListTasks(r *dtaskv1.ListTasksRequest, s grpc.ServerStreamingServer[dtaskv1.ListTasksResponse]) error {
	j, err := f.find(r.GetJob())
	if err != nil {
		return err
	}
	out := &dtaskv1.ListTasksResponse{}
	for _, t := range j.tasks {
		if r.GetTask() == "" || r.GetTask() == t.GetId() {
			out.Tasks = append(out.Tasks, t)
		}
	}
	if len(out.GetTasks()) == 0 && r.GetTask() != "" {
		return refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, "job "+r.GetJob()+" has no task "+r.GetTask())
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
	if j.job.GetState() != dtaskv1.JobState_JOB_STATE_RUNNING {
		return nil, refusal(codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, "job "+r.GetJob()+" has finished: failed")
	}
	f.noteCancelled(r.GetJob())
	return &dtaskv1.CancelResponse{AlreadyCancelled: r.GetReason() == "again" && !r.GetNow()}, nil
}

func (f *fakeLeader) GetResult(_ context.Context, r *dtaskv1.GetResultRequest) (*dtaskv1.GetResultResponse, error) {
	j, err := f.find(r.GetJob())
	if err != nil {
		return nil, err
	}
	if j.results == nil && len(j.tasks) == 1 {
		return &dtaskv1.GetResultResponse{Job: j.job, Results: []*dtaskv1.TaskResult{{Task: j.tasks[0].GetId(), State: dtaskv1.TaskState_TASK_STATE_COMPLETED, Result: []byte("hello")}}}, nil
	}
	return &dtaskv1.GetResultResponse{Job: j.job, Results: j.results}, nil
}

func (f *fakeLeader) Logs(r *dtaskv1.LogsRequest, s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
	if r.GetAttempt() > 4 {
		return refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, "the log has expired")
	}
	for _, m := range []*dtaskv1.LogsResponse{
		{Stream: dtaskv1.LogStream_LOG_STREAM_STDOUT, Data: fmt.Appendf(nil, "attempt %d\n", r.GetAttempt())},
		{Stream: dtaskv1.LogStream_LOG_STREAM_STDERR, Data: []byte("curl: 404\n")},
	} {
		if r.GetStream() != dtaskv1.LogStream_LOG_STREAM_UNSPECIFIED && r.GetStream() != m.GetStream() {
			continue
		}
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeLeader) Status(context.Context, *dtaskv1.StatusRequest) (*dtaskv1.StatusResponse, error) {
	return &dtaskv1.StatusResponse{Leader: "n1", Term: 3, Replica: "n1", Members: []*dtaskv1.Member{
		{Id: "n1", Address: f.addr, State: "leader", Applied: 120, Version: "v1", Voter: true},
		{Id: "n2", Address: "10.0.0.2:7460", State: "unreachable", Applied: 100, Lag: 20},
	}}, nil
}

func (f *fakeLeader) AddMember(_ context.Context, r *dtaskv1.AddMemberRequest) (*dtaskv1.AddMemberResponse, error) {
	if r.GetServerId() == "gone" {
		return nil, refusal(codes.PermissionDenied, dtaskv1.ErrorReason_ERROR_REASON_REFUSED, "server ID gone was removed")
	}
	return &dtaskv1.AddMemberResponse{}, nil
}

func (f *fakeLeader) RemoveMember(_ context.Context, r *dtaskv1.RemoveMemberRequest) (*dtaskv1.RemoveMemberResponse, error) {
	return &dtaskv1.RemoveMemberResponse{AlreadyRemoved: r.GetServerId() == "gone"}, nil
}

func (f *fakeLeader) TransferLeadership(context.Context, *dtaskv1.TransferLeadershipRequest) (*dtaskv1.TransferLeadershipResponse, error) {
	return &dtaskv1.TransferLeadershipResponse{}, nil
}

func (f *fakeLeader) ListWorkers(_ context.Context, r *dtaskv1.ListWorkersRequest) (*dtaskv1.ListWorkersResponse, error) {
	if f.hasNoWorker() {
		return &dtaskv1.ListWorkersResponse{Workers: []*dtaskv1.Worker{{Id: "1", Name: "w1", State: "down", Slots: 8}}}, nil
	}
	resp := &dtaskv1.ListWorkersResponse{}
	for _, w := range []*dtaskv1.Worker{
		f.firstWorker(),
		{Id: "2", Name: "w2\x1b[2J", State: "down", Slots: 4, UpSince: ago(5 * time.Hour), DownSince: ago(90 * time.Second)},
	} {
		if (r.GetName() == "" || r.GetName() == w.GetName()) && w.GetId() > r.GetPageToken() {
			resp.Workers = append(resp.Workers, w)
		}
	}
	if n := int(r.GetLimit()); n > 0 && len(resp.GetWorkers()) > n {
		resp.Workers, resp.NextPageToken = resp.GetWorkers()[:n], resp.GetWorkers()[n-1].GetId()
	}
	return resp, nil
}

func (f *fakeLeader) Stats(context.Context, *dtaskv1.StatsRequest) (*dtaskv1.StatsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &dtaskv1.StatsResponse{Entries: 10 + 2*f.runs, Operations: 100 + 50*f.runs, Bytes: 1000 * f.runs, Syncs: 3 * f.runs}, nil
}

func (f *fakeLeader) Identify(context.Context, *dtaskv1.IdentifyRequest) (*dtaskv1.IdentifyResponse, error) {
	return &dtaskv1.IdentifyResponse{ServerId: "n1", State: "leader", LeaderId: "n1", Version: "v0.1.0"}, nil
}

func (f *fakeFollower) Status(context.Context, *dtaskv1.StatusRequest) (*dtaskv1.StatusResponse, error) {
	return &dtaskv1.StatusResponse{Term: 4, Replica: "n2", Members: []*dtaskv1.Member{{Id: "n2", Address: "x:1", State: "candidate"}}}, nil
}

func (f *fakeFollower) Identify(context.Context, *dtaskv1.IdentifyRequest) (*dtaskv1.IdentifyResponse, error) {
	return &dtaskv1.IdentifyResponse{ServerId: "n2", State: "follower", LeaderId: "n1"}, nil
}

// redirect answers the methods that the follower doesn't implement.
func (f *fakeFollower) redirect(any, grpc.ServerStream) error {
	return withDetail(codes.FailedPrecondition, "not the leader", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER, LeaderAddress: f.leader})
}

// closedPort returns an address at which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return addr
}

// fields splits a command line of a script into arguments and standard input.
func fields(args []string) (rest []string, stdin string) {
	for _, a := range args {
		if s, ok := strings.CutPrefix(a, "<"); ok {
			stdin = s
			continue
		}
		rest = append(rest, a)
	}
	return rest, stdin
}
