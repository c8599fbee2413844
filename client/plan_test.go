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

// refusing is a coordinator that refuses plans, as older ones that do not lead.
type refusing struct {
	*fake

	hint string
}

func (r *refusing) Plan(context.Context, *dtaskv1.PlanRequest) (*dtaskv1.PlanResponse, error) {
	return nil, notLeader(r.hint)
}

func TestAPlanSparesTheLeader(t *testing.T) {
	t.Parallel()
	n, c := setup(t, Config{Addrs: []string{"a:1", "b:1", "c:1"}})
	leader, follower := &fake{}, &fake{follows: true}
	n.serve(t, "a:1", leader)
	n.serve(t, "b:1", follower)
	h, tasks := &dtaskv1.JobHeader{Name: "x"}, []*dtaskv1.PlanTask{{Id: "a"}}
	for plans := int64(1); plans <= 2; plans++ {
		if _, err := c.Plan(t.Context(), h, tasks, ReadOptions{}); err != nil {
			t.Fatal(err)
		}
		if leader.calls.Load() != plans-1 || follower.calls.Load() != plans {
			t.Fatalf("plan %d: the leader got %d calls, the follower %d", plans, leader.calls.Load(), follower.calls.Load())
		}
		// Other calls go to the leader, as if there had been no plan.
		if _, err := c.Fitting(t.Context(), h, tasks); err != nil || leader.calls.Load() != plans {
			t.Fatalf("another call: got %v, the leader has %d calls", err, leader.calls.Load())
		}
	}
}

func TestTheLeaderPlansIfNoOtherCoordinatorDoes(t *testing.T) {
	t.Parallel()
	h, tasks := &dtaskv1.JobHeader{Name: "x"}, []*dtaskv1.PlanTask{{Id: "a"}}
	for name, others := range map[string][]string{
		"alone": nil, "unreachable": {"b:1"}, "refusing": {"c:1"}, "both": {"b:1", "c:1"},
	} {
		n, c := setup(t, Config{Addrs: append([]string{"a:1"}, others...)})
		leader, older := &fake{}, &fake{follows: true}
		n.serve(t, "a:1", leader)
		n.serveAs(t, "c:1", older, &refusing{older, "a:1"})
		if _, err := c.Plan(t.Context(), h, tasks, ReadOptions{}); err != nil || leader.calls.Load() != 1 {
			t.Errorf("%s: got %v, the leader has %d calls", name, err, leader.calls.Load())
		}
	}
}
