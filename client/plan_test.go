package client

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func (f *fake) Plan(_ context.Context, r *dtaskv1.PlanRequest) (*dtaskv1.PlanResponse, error) {
	p := &dtaskv1.PlanResponse{Workers: uint32(len(r.GetTasks()))}
	switch {
	case r.GetHeader().GetName() == "":
		return nil, refusal(codes.InvalidArgument, "invalid job", &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_INVALID})
	case r.GetFitOnly():
		p.Classes = []*dtaskv1.PlanClass{{Task: r.GetTasks()[0].GetId()}}
	case r.GetConsistency() == dtaskv1.Consistency_CONSISTENCY_STALE:
		p.Freshness = &dtaskv1.Freshness{Replica: "a"}
	}
	return p, nil
}

func TestAJobIsPlanned(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1"}})
	n.serve(t, "a:1", &fake{})
	h, tasks := &dtaskv1.JobHeader{Name: "x"}, []*dtaskv1.PlanTask{{Id: "a"}, {Id: "b"}}
	if p, err := c.Plan(t.Context(), h, tasks, ReadOptions{}); err != nil || p.GetWorkers() != 2 || p.GetFreshness() != nil {
		t.Errorf("got %v, %v", p, err)
	}
	replica := ""
	stale := ReadOptions{Stale: true, Fresh: func(f *dtaskv1.Freshness) { replica = f.GetReplica() }}
	if _, err := c.Plan(t.Context(), h, tasks, stale); err != nil || replica != "a" {
		t.Errorf("got a stale plan of %q, %v", replica, err)
	}
	if classes, err := c.Fitting(t.Context(), h, tasks); err != nil || len(classes) != 1 || classes[0].GetTask() != "a" {
		t.Errorf("got the classes %v, %v", classes, err)
	}
	if _, err := c.Plan(t.Context(), &dtaskv1.JobHeader{}, tasks, ReadOptions{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("invalid job: got %v", err)
	}
	// What no coordinator would receive is refused before it is sent.
	tasks[0].Id = strings.Repeat("a", maxPlanBytes)
	if _, err := c.Plan(t.Context(), h, tasks, ReadOptions{}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "use arrays") {
		t.Errorf("too large: got %v", err)
	}
}
