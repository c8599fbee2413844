package cli

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A fakeDrain is the drain of worker w1. Its attempt finishes at the second read,
// unless the deadline is at least a day away.
type fakeDrain struct {
	until  time.Duration // from noon; 0 = not draining
	reason string
	reads  int
}

// firstWorker returns w1.
func (f *fakeLeader) firstWorker() *dtaskv1.Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &dtaskv1.Worker{Id: "1", Name: "w1", State: "up", Slots: 8, Running: 1, Labels: map[string]string{"zone": "eu", "gpu": "no"}, Resources: map[string]int64{"cpu": 8000, "memory": 64 << 30}, UpSince: ago(5 * time.Hour)}
	if f.until == 0 {
		return w
	}
	w.State, w.DrainUntil, w.DrainReason = "draining", ago(-f.until), f.reason
	if f.reads++; f.reads > 2 && f.until < 24*time.Hour {
		w.State, w.Running = "drained", 0
	}
	return w
}

func (f *fakeLeader) DrainWorker(_ context.Context, r *dtaskv1.DrainWorkerRequest) (*dtaskv1.DrainWorkerResponse, error) {
	if r.GetName() != "w1" {
		return nil, refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, "unknown worker "+r.GetName())
	}
	f.mu.Lock()
	f.fakeDrain = fakeDrain{until: time.Duration(r.GetDeadlineMs()) * time.Millisecond, reason: r.GetReason()}
	f.mu.Unlock()
	return &dtaskv1.DrainWorkerResponse{Worker: f.firstWorker()}, nil
}

func (f *fakeLeader) UndrainWorker(_ context.Context, r *dtaskv1.UndrainWorkerRequest) (*dtaskv1.UndrainWorkerResponse, error) {
	if r.GetName() != "w1" {
		return nil, refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, "unknown worker "+r.GetName())
	}
	f.mu.Lock()
	already := f.until == 0
	f.fakeDrain = fakeDrain{}
	f.mu.Unlock()
	return &dtaskv1.UndrainWorkerResponse{Worker: f.firstWorker(), AlreadyUndrained: already}, nil
}
