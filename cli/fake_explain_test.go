package cli

import (
	"context"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Explain knows two tasks of job 42: one that runs, and one, which the job does not have
// otherwise, that is pending. Each job has the same groups of tasks.
func (f *fakeLeader) Explain(_ context.Context, r *dtaskv1.ExplainRequest) (*dtaskv1.ExplainResponse, error) {
	if _, err := f.find(r.GetJob()); err != nil {
		return nil, err
	}
	e := &dtaskv1.ExplainResponse{Job: r.GetJob(), Task: r.GetTask(), State: dtaskv1.TaskState_TASK_STATE_RUNNING, Complete: true, Index: 120}
	switch r.GetTask() {
	case "":
		e.State, e.JobState, e.Complete = 0, dtaskv1.JobState_JOB_STATE_RUNNING, false
		e.Tasks = []*dtaskv1.TaskGroup{
			{State: dtaskv1.TaskState_TASK_STATE_RUNNING, Tasks: 12, Names: []string{"map[0]", "map[1]"}, Reason: &dtaskv1.Reason{Code: "tasks_running", Text: "they run"}},
			{State: dtaskv1.TaskState_TASK_STATE_BLOCKED, Tasks: 1, Names: []string{"sum"}, Reason: &dtaskv1.Reason{
				Code: "waits_for_array", Text: "it waits for array map, of which 12 of 30 tasks have not ended: they run", Task: "map", Want: 12, Total: 30, Unit: "tasks",
				CauseCode: "running", Cause: "they run",
			}},
		}
	case "map-b":
		e.Reasons = []*dtaskv1.Reason{{Code: "running", Text: "attempt 1 runs on worker w2", Worker: "w2", Attempt: 1}}
	case "train", "hopeless":
		e.State = dtaskv1.TaskState_TASK_STATE_PENDING
		e.Reasons = []*dtaskv1.Reason{
			{Code: "no_free_capacity", Text: "no worker that could run it has a free slot with what it needs"},
			{Code: "tasks_ahead", Text: "at most 3 ready tasks before it, 1 of a higher priority", Want: 1, Total: 3, Unit: "tasks"},
			{Code: "queue_timeout", Text: "its queue timeout ends at 2026-05-01 12:10:00Z", Until: noon.UnixMilli() + 600_000},
		}
		e.Workers = []*dtaskv1.WorkerGroup{
			{Workers: 212, Names: []string{"w01", "w02", "w03", "w04", "w05", "w06", "w07", "w08", "a-worker-with-a-long-name-1", "a-worker-with-a-long-name-2"}, Obstacles: []*dtaskv1.Reason{
				{Code: "label_missing", Text: "lacks the label zone=eu", Name: "zone", Value: "eu"},
				{Code: "resource_short", Text: "2 gpu needed, 0 of 0 free", Name: "gpu", Want: 2000, Unit: "thousandths"},
			}},
			{Workers: 1, Names: []string{"w\x1b[31m9"}, Obstacles: []*dtaskv1.Reason{{Code: "worker_drains", Text: "drains"}}},
		}
		e.Changes = []*dtaskv1.StartChange{
			{Code: "undrain_worker", Text: "undrain the worker: dtaskctl worker undrain w9", Workers: 1, Names: []string{"w9"}},
			{Code: "add_worker", Text: "another worker joins, with 4 slots, 8 gpu, the label zone=eu", Worker: &dtaskv1.WorkerOffer{
				Slots: 4, Type: "command", Namespace: "default", Labels: map[string]string{"zone": "eu"}, Resources: map[string]int64{"gpu": 8000},
			}},
		}
		e.Estimate = &dtaskv1.StartEstimate{
			Code: "expected", Text: "it is expected to start in 1m30s to 2m30s, if no task of a higher priority becomes ready before",
			From: noon.UnixMilli() + 90_000, To: noon.UnixMilli() + 150_000, P50Ms: 61_000, P90Ms: 74_000,
		}
		if r.GetTask() == "hopeless" {
			e.Estimate = &dtaskv1.StartEstimate{Code: "few_samples", Text: "when it starts is unknown: fewer than 5 run times are known of a task"}
			e.Workers, e.Changes, e.Complete = nil, nil, r.GetJob() == "42"
		}
	default:
		return nil, refusal(codes.NotFound, dtaskv1.ErrorReason_ERROR_REASON_NOT_FOUND, "task \""+r.GetTask()+"\" of job "+r.GetJob()+" not found")
	}
	return e, nil
}
