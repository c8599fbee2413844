package cli

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

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
		var header *dtaskv1.JobHeader // of a job in one part
		for _, p := range m.GetParts() {
			if p.GetHeader().GetName() == "revoked" {
				return refusal(codes.Unauthenticated, dtaskv1.ErrorReason_ERROR_REASON_REFUSED, "the access of ci was revoked during the call, which may have had its effect")
			}
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

// result stores a received job and returns the outcome.
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

// sentTasks returns the tasks of a part; of tasks in columns only the IDs.
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
		return nil, busy("too many pending requests")
	case "odd":
		return nil, refusal(codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID, "invalid job", "job.deadline: must be in the future", "job.env: exceeds 64 KiB")
	}
	if source := whole.GetRerunOf(); source != "" && whole.GetHeader().GetName() == "scheduled-once" {
		return nil, refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, "job "+source+" not found: unknown or expired") // it has expired since it was read
	}
	if err := checkNames(whole.GetHeader()); err != nil {
		return nil, err
	}
	r := f.store(whole)
	if r == nil {
		return nil, refusal(codes.AlreadyExists, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, "idempotency key belongs to another job")
	}
	return r, nil
}

// checkNames refuses a job with a queue or a limit that the fake cluster doesn't know.
func checkNames(h *dtaskv1.JobHeader) error {
	if h.GetQueue() == "elt" {
		return refusal(codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID, "invalid job", `job.queue: unknown queue "elt"; did you mean "etl"?`)
	}
	for _, p := range h.GetPolicies() {
		if slices.Contains(p.GetUses(), "tenants/acme") {
			return refusal(codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID, "invalid job", `uses: unknown limit "tenants/*", which "tenants/acme" needs; did you mean "tenant/*"?`)
		}
	}
	return nil
}

// store stores a job. It returns nil if the key belongs to another job.
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

// finished returns a submitted job after it has finished.
func finished(id string, m *dtaskv1.JobPart) *fakeJob {
	tasks := expanded(m.GetTasks())
	n := uint32(len(tasks)) //nolint:gosec // a few
	j := &fakeJob{spec: m, job: &dtaskv1.Job{
		Id: id, Name: m.GetHeader().GetName(), Owner: m.GetHeader().GetOwner(), Namespace: m.GetHeader().GetNamespace(), Priority: m.GetHeader().GetPriority(),
		State: dtaskv1.JobState_JOB_STATE_COMPLETED, SubmittedAt: ago(10 * time.Second), StartedAt: ago(9 * time.Second), CompletedAt: ago(200 * time.Millisecond),
		TasksTotal: n, TasksCompleted: n, Retries: 1, TasksByState: map[string]uint32{"completed": n},
	}}
	if source, err := strconv.ParseUint(m.GetRerunOf(), 10, 64); err == nil {
		j.job.Run = proto.CloneOf(m.GetHeader().GetRun())
		j.job.Run.Manual, j.job.Run.RerunOf = true, source
	}
	for i, t := range tasks {
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
	case "slow", "races", "expires":
		j.job.State, j.job.TasksCompleted, j.job.CompletedAt = dtaskv1.JobState_JOB_STATE_RUNNING, 0, 0
	default:
		j.endAs(j.job.GetName())
	}
	return j
}
