package api

import (
	"context"
	"encoding/hex"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxResult bounds the response of GetResult, in bytes.
const maxResult = 32 << 20

// GetResult implements JobService. For a job that has not finished it returns the
// results so far.
func (j *jobs) GetResult(ctx context.Context, r *dtaskv1.GetResultRequest) (*dtaskv1.GetResultResponse, error) {
	tasks, index, err := j.openTasks(r.GetJob())
	if err != nil {
		return nil, err
	}
	aggregated, err := j.aggregated(tasks.st, &tasks.job)
	if err != nil {
		return nil, err
	}
	v := jobView{job: tasks.job, running: countRunning(tasks.st, tasks.job, tasks.observed)}
	resp, size := &dtaskv1.GetResultResponse{Job: v.show(aggregated)}, 0
	resp.Job.Freshness = j.freshness(index)
	for i := range tasks.job.Total {
		if err := ended(ctx, i); err != nil {
			return nil, err
		}
		if tasks.st.Dependents(tasks.ref(i)) > 0 {
			continue
		}
		result := tasks.result(i)
		if size += proto.Size(result); size > maxResult {
			return nil, refused("the result of job %d exceeds %d MiB: list its tasks with their results instead",
				tasks.job.ID, maxResult>>20)
		}
		resp.Results = append(resp.Results, result)
	}
	return resp, nil
}

// result shows the result of a terminal task.
func (r *taskReader) result(i uint32) *dtaskv1.TaskResult {
	ref := r.ref(i)
	t, result := r.read(i), r.st.Result(ref)
	output, _ := r.expand(ref, taskbody.Encoded(r.st.Body(ref)).Output(), false)
	return &dtaskv1.TaskResult{
		Task: t.GetId(), State: t.GetState(), Error: result.Error, Result: result.Data, Output: output,
		OutputSize: result.OutputSize, OutputSha256: hex.EncodeToString(result.OutputSHA256),
	}
}
