package client

import (
	"context"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// DialExample connects to a coordinator in this process, which the examples
// use.
func DialExample() (dial func(context.Context, string) (net.Conn, error), stop func()) {
	n := &network{listeners: make(map[string]*bufconn.Listener)}
	f := &fake{
		getJob: func(id string) (*dtaskv1.Job, error) {
			if id != "1" {
				return nil, refusal(codes.NotFound, "job "+id+" not found: unknown or expired", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND})
			}
			return exampleJob(dtaskv1.JobState_JOB_STATE_COMPLETED, 2), nil
		},
		watch: func(s grpc.ServerStreamingServer[dtaskv1.WatchJobResponse]) error {
			for done := range uint32(3) {
				state := dtaskv1.JobState_JOB_STATE_RUNNING
				if done == 2 {
					state = dtaskv1.JobState_JOB_STATE_COMPLETED
				}
				if err := s.Send(&dtaskv1.WatchJobResponse{Job: exampleJob(state, done), Index: uint64(7 + done)}); err != nil {
					return err
				}
			}
			return nil
		},
		wait: func(r *dtaskv1.WaitJobsRequest, s grpc.ServerStreamingServer[dtaskv1.WaitJobsResponse]) error {
			resp := &dtaskv1.WaitJobsResponse{Freshness: &dtaskv1.Freshness{AppliedIndex: 9}}
			for _, id := range r.GetJobs() {
				resp.Finished = append(resp.GetFinished(), &dtaskv1.Job{Id: id, State: dtaskv1.JobState_JOB_STATE_COMPLETED})
			}
			return s.Send(resp)
		},
		list: func(*dtaskv1.ListJobsRequest) (*dtaskv1.ListJobsResponse, error) {
			return &dtaskv1.ListJobsResponse{Jobs: []*dtaskv1.Job{exampleJob(dtaskv1.JobState_JOB_STATE_FAILED, 1)}}, nil
		},
		logs: func(s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
			return s.Send(&dtaskv1.LogsResponse{Pieces: []*dtaskv1.LogPiece{{Stream: dtaskv1.LogStream_LOG_STREAM_STDOUT, Data: []byte("999999937 is prime\n")}}})
		},
		retry: func(*dtaskv1.RetryRequest) (*dtaskv1.RetryResponse, error) {
			return &dtaskv1.RetryResponse{Job: exampleJob(dtaskv1.JobState_JOB_STATE_RUNNING, 1)}, nil
		},
		dead: func(*dtaskv1.ListDeadLettersRequest) (*dtaskv1.ListDeadLettersResponse, error) {
			return &dtaskv1.ListDeadLettersResponse{DeadLetters: []*dtaskv1.DeadLetter{{Job: "1", Task: "check", Attempts: 4, Error: "exit code 3"}}}, nil
		},
		purge: func(*dtaskv1.PurgeDeadLettersRequest) (*dtaskv1.PurgeDeadLettersResponse, error) {
			return &dtaskv1.PurgeDeadLettersResponse{Purged: 1}, nil
		},
		status: func() (*dtaskv1.StatusResponse, error) {
			return &dtaskv1.StatusResponse{Leader: "n1", Term: 4, Replica: "n1", Members: []*dtaskv1.Member{
				{Id: "n1", State: "leader"}, {Id: "n2", State: "follower"}, {Id: "n3", State: "follower"},
			}}, nil
		},
	}
	var mu sync.Mutex
	keys := map[string]bool{}
	f.submit = func(key string, h *dtaskv1.JobHeader, _ []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error) {
		if h.GetName() == "" || strings.Contains(h.GetName(), " ") {
			return nil, refusal(codes.InvalidArgument, "invalid job", &dtaskv1.ErrorDetail{
				Reason: dtaskv1.ErrorReason_ERROR_REASON_INVALID, Faults: []string{`job.name: "a b" contains the character ' '`},
			})
		}
		mu.Lock()
		defer mu.Unlock()
		existed := keys[key]
		keys[key] = true
		return &dtaskv1.StoredJob{Id: "1", Existed: existed, Index: 7}, nil
	}
	e := exampleCoordinator{fake: f}
	return n.dial, n.start("127.0.0.1:7460", f, e, e)
}

func exampleJob(state dtaskv1.JobState, completed uint32) *dtaskv1.Job {
	return &dtaskv1.Job{Id: "1", Name: "primes", State: state, TasksTotal: 2, TasksCompleted: completed, Version: 2}
}

// exampleCoordinator has methods that fake lacks.
type exampleCoordinator struct{ *fake }

func (exampleCoordinator) Cancel(_ context.Context, r *dtaskv1.CancelRequest) (*dtaskv1.CancelResponse, error) {
	if r.GetTask() == "check" {
		return nil, refusal(codes.FailedPrecondition, "task has ended", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_CONFLICT})
	}
	return &dtaskv1.CancelResponse{}, nil
}

func (exampleCoordinator) Update(context.Context, *dtaskv1.UpdateRequest) (*dtaskv1.UpdateResponse, error) {
	return &dtaskv1.UpdateResponse{Job: exampleJob(dtaskv1.JobState_JOB_STATE_RUNNING, 0), Version: 2}, nil
}

func (exampleCoordinator) GetResult(context.Context, *dtaskv1.GetResultRequest) (*dtaskv1.GetResultResponse, error) {
	return &dtaskv1.GetResultResponse{Job: exampleJob(dtaskv1.JobState_JOB_STATE_COMPLETED, 2), Results: []*dtaskv1.TaskResult{
		{Task: "check", State: dtaskv1.TaskState_TASK_STATE_COMPLETED, Result: []byte("prime")},
	}}, nil
}

func (exampleCoordinator) ListWorkers(context.Context, *dtaskv1.ListWorkersRequest) (*dtaskv1.ListWorkersResponse, error) {
	return &dtaskv1.ListWorkersResponse{Workers: []*dtaskv1.Worker{{Id: "1", Name: "w1", State: "up", Slots: 8, Running: 3}, {Id: "2", Name: "w2", State: "draining", Slots: 8}}}, nil
}

func (exampleCoordinator) DrainWorker(context.Context, *dtaskv1.DrainWorkerRequest) (*dtaskv1.DrainWorkerResponse, error) {
	return &dtaskv1.DrainWorkerResponse{Worker: &dtaskv1.Worker{Id: "1", Name: "w1", State: "draining"}}, nil
}
