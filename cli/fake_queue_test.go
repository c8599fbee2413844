package cli

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// fakeQueues are the queues of the fake cluster; mu of the leader guards them.
type fakeQueues struct{ queues []*dtaskv1.Queue }

func newFakeQueues() fakeQueues {
	return fakeQueues{queues: []*dtaskv1.Queue{
		{Name: "default", Settings: &dtaskv1.QueueSettings{Weight: 1}, Waiting: 12_345, Running: 64, OldestWaitUs: 90_000_000, WaitP50Us: 1_500_000, WaitP99Us: 80_000_000},
		{
			Name: "etl", Version: 3, SetBy: "alice", CreatedAt: noon.UnixMilli(), ChangedAt: noon.UnixMilli(),
			Settings: &dtaskv1.QueueSettings{
				Weight: 3, MaxRunning: 200, Max: map[string]int64{"gpu": 4000}, Require: map[string]string{"pool": "etl"}, SubmitRate: 150, SubmitPeriodMs: 60_000, SubmitBurst: 10,
			},
			Running: 7, WaitP99Us: 12_000, // half of the tasks were assigned at once
		},
	}}
}

func (f *fakeLeader) queueNamed(name string) (*dtaskv1.Queue, error) {
	i := slices.IndexFunc(f.queues, func(q *dtaskv1.Queue) bool { return q.GetName() == name })
	if i < 0 {
		meant := ""
		if name == "elt" {
			meant = `; did you mean "etl"?`
		}
		return nil, refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, fmt.Sprintf("queue %q not found%s", name, meant))
	}
	return f.queues[i], nil
}

func checkQueueVersion(q *dtaskv1.Queue, version uint32) error {
	if version == 0 || q.GetVersion() == version {
		return nil
	}
	return refusal(codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT,
		fmt.Sprintf("queue %q has version %d, and the request expects version %d: read the queue again", q.GetName(), q.GetVersion(), version))
}

func (f *fakeLeader) SetQueue(_ context.Context, r *dtaskv1.SetQueueRequest) (*dtaskv1.SetQueueResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q, err := f.queueNamed(r.GetName())
	if err != nil {
		q = &dtaskv1.Queue{Name: r.GetName(), CreatedAt: noon.UnixMilli()}
	}
	if err := checkQueueVersion(q, r.GetIfVersion()); err != nil {
		return nil, err
	}
	if err != nil {
		f.queues = append(f.queues, q)
	}
	q.Version++
	q.Settings, q.ChangedAt, q.SetBy = r.GetSettings(), noon.UnixMilli(), "alice"
	return &dtaskv1.SetQueueResponse{Queue: q}, nil
}

func (f *fakeLeader) ListQueues(_ context.Context, r *dtaskv1.ListQueuesRequest) (*dtaskv1.ListQueuesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.GetName() == "" {
		return &dtaskv1.ListQueuesResponse{Queues: f.queues}, nil
	}
	q, err := f.queueNamed(r.GetName())
	return &dtaskv1.ListQueuesResponse{Queues: []*dtaskv1.Queue{q}}, err
}

func (f *fakeLeader) PauseQueue(_ context.Context, r *dtaskv1.PauseQueueRequest) (*dtaskv1.PauseQueueResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q, err := f.queueNamed(r.GetName())
	if err != nil {
		return nil, err
	}
	already := q.GetPausedAt() != 0
	if !already {
		q.PausedAt, q.PausedBy, q.PauseReason = noon.UnixMilli(), "alice", r.GetReason()
	}
	return &dtaskv1.PauseQueueResponse{Queue: q, Already: already}, nil
}

func (f *fakeLeader) ResumeQueue(_ context.Context, r *dtaskv1.ResumeQueueRequest) (*dtaskv1.ResumeQueueResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q, err := f.queueNamed(r.GetName())
	if err != nil {
		return nil, err
	}
	already := q.GetPausedAt() == 0
	q.PausedAt, q.PausedBy, q.PauseReason = 0, "", ""
	return &dtaskv1.ResumeQueueResponse{Queue: q, Already: already}, nil
}

func (f *fakeLeader) DeleteQueue(_ context.Context, r *dtaskv1.DeleteQueueRequest) (*dtaskv1.DeleteQueueResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q, err := f.queueNamed(r.GetName())
	if err == nil {
		err = checkQueueVersion(q, r.GetIfVersion())
	}
	if err != nil {
		return nil, err
	}
	if q.GetRunning() > 0 && r.GetName() != "default" { // that one is only reset
		return nil, refusal(codes.FailedPrecondition, dtaskv1.ErrorReason_ERROR_REASON_CONFLICT, fmt.Sprintf("queue %q is named by jobs that have not ended (12): move the jobs, or wait for their end", r.GetName()))
	}
	f.queues = slices.DeleteFunc(f.queues, func(other *dtaskv1.Queue) bool { return other == q })
	return &dtaskv1.DeleteQueueResponse{}, nil
}
