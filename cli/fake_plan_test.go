package cli

import (
	"context"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Plan knows three runs of the first task, and that no worker has a gpu, or what the queue etl
// requires, and that the queue small has a quota of 2 cpu. Job "unknown" has no run times, and no
// earlier job.
func (f *fakeLeader) Plan(_ context.Context, r *dtaskv1.PlanRequest) (*dtaskv1.PlanResponse, error) {
	if r.GetHeader().GetName() == "refused" {
		return nil, refusal(codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID, "invalid job")
	}
	if err := checkNames(r.GetHeader()); err != nil {
		return nil, err
	}
	p := &dtaskv1.PlanResponse{Workers: 3, Slots: 12, SlotsInUse: 5, Freshness: fresh()}
	if r.GetHeader().GetName() == "unknown" {
		p.SlotsInUse = 0
	}
	var rare *dtaskv1.PlanClass
	all := &dtaskv1.PlanClass{Task: r.GetTasks()[0].GetId(), Type: "command", Workers: 3, AtOnce: 12}
	if r.GetHeader().GetName() == "nightly" {
		all.AtOnce, all.Uses = 8, []string{"export-api"}
	}
	for i, t := range r.GetTasks() {
		policy := r.GetHeader().GetPolicies()[t.GetPolicy()]
		low, high, samples := policy.GetExpectMs(), policy.GetExpectMs(), uint32(0)
		if i == 0 && r.GetHeader().GetName() != "unknown" {
			low, high, samples = 60_000, 90_000, 17
		}
		p.LowMs, p.HighMs, p.Samples = append(p.LowMs, low), append(p.HighMs, high), append(p.Samples, samples)
		if policy.GetResources()["gpu"] > 0 {
			rare = &dtaskv1.PlanClass{Task: t.GetId(), Type: "command", Resources: policy.GetResources(), Require: policy.GetRequire(), Reason: "no worker that is up has 2 gpu", Tasks: 1}
			continue
		}
		if policy.GetResources()["cpu"] > 2000 && r.GetHeader().GetQueue() == "small" {
			rare = &dtaskv1.PlanClass{Task: t.GetId(), Type: "command", Resources: policy.GetResources(), Workers: 3, Reason: "queue small has a quota of 2 cpu, and 3 cpu are needed", Tasks: 1}
			continue
		}
		if policy.GetType() == "nosuch" {
			rare = &dtaskv1.PlanClass{Task: t.GetId(), Type: "nosuch", Reason: `no worker that is up handles tasks of type "nosuch"`, Tasks: 1}
			continue
		}
		if r.GetHeader().GetQueue() == "etl" {
			rare = &dtaskv1.PlanClass{Task: t.GetId(), Type: "command", Reason: "no worker that is up has the label pool=etl, which queue etl requires", Tasks: 1}
			continue
		}
		all.Tasks += uint64(max(t.GetTasks(), 1))
	}
	p.Classes = []*dtaskv1.PlanClass{all}
	switch {
	case rare != nil:
		p.Classes = []*dtaskv1.PlanClass{rare, all}
	case r.GetHeader().GetName() == "unknown":
		p.Makespan = &dtaskv1.PlanTime{}
	default:
		p.Makespan = &dtaskv1.PlanTime{LowMs: 360_000, HighMs: 400_000, Bounded: true}
		p.Bounds = []*dtaskv1.PlanBound{
			{Code: "slots", Time: &dtaskv1.PlanTime{LowMs: 330_000, HighMs: 350_000, Bounded: true}},
			{Code: "critical_path", Time: &dtaskv1.PlanTime{LowMs: 180_000, HighMs: 210_000, Bounded: true}},
			{Code: "max_parallel", Name: "ma\x1b[31mp", Time: &dtaskv1.PlanTime{LowMs: 100_000, HighMs: 100_000, Bounded: true}},
			{Code: "resource", Name: "cpu", Time: &dtaskv1.PlanTime{LowMs: 90_000, HighMs: 90_000, Bounded: true}},
			{Code: "limit", Name: "export-api", Time: &dtaskv1.PlanTime{LowMs: 80_000, HighMs: 80_000, Bounded: true}},
		}
		p.Runs, p.LastJob, p.ChangesTotal = 17, "42", 3
		p.Changes = []*dtaskv1.PlanChange{
			{Kind: "changed", Fields: []string{"deadline"}}, {Task: "map", Kind: "changed", Fields: []string{"array", "body"}}, {Task: "old", Kind: "removed"},
		}
	}
	return p, nil
}
