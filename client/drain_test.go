package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func (f *fake) DrainWorker(_ context.Context, r *dtaskv1.DrainWorkerRequest) (*dtaskv1.DrainWorkerResponse, error) {
	if r.GetName() != "w1" {
		return nil, refusal(codes.NotFound, "unknown worker", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND})
	}
	return &dtaskv1.DrainWorkerResponse{Worker: &dtaskv1.Worker{Name: r.GetName(), DrainUntil: r.GetDeadlineMs(), DrainReason: r.GetReason()}}, nil
}

func (f *fake) UndrainWorker(_ context.Context, r *dtaskv1.UndrainWorkerRequest) (*dtaskv1.UndrainWorkerResponse, error) {
	return &dtaskv1.UndrainWorkerResponse{Worker: &dtaskv1.Worker{Name: r.GetName()}, AlreadyUndrained: true}, nil
}

func TestAWorkerIsDrained(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{})
	w, err := c.DrainWorker(t.Context(), "w1", time.Minute, "new disk")
	if err != nil || w.GetName() != "w1" || w.GetDrainUntil() != 60_000 || w.GetDrainReason() != "new disk" {
		t.Errorf("got %v, %v", w, err)
	}
	if _, err := c.DrainWorker(t.Context(), "w2", 0, ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown worker: got %v", err)
	}
	if w, already, err := c.UndrainWorker(t.Context(), "w1"); err != nil || !already || w.GetName() != "w1" {
		t.Errorf("undrained: %v, %v, %v", w, already, err)
	}
}
