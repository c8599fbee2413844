package api

import (
	"context"
	"encoding/hex"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxResult bounds the response of GetResult, in bytes.
const maxResult = 32 << 20

// GetResult implements JobService. For a job that has not finished it returns the
// results so far.
func (j *jobs) GetResult(ctx context.Context, r *dtaskv1.GetResultRequest) (*dtaskv1.GetResultResponse, error) {
	id, err := jobID(r.GetJob())
	if err != nil {
		return nil, err
	}
	observed := j.observed(id)
	st, job, index, err := j.forkJob(id)
	if err != nil {
		return nil, err
	}
	aggregated, err := j.aggregated(ctx, &job, func() (*fsm.State, error) { return st, nil })
	if err != nil {
		return nil, err
	}
	v := jobView{job: job, running: countRunning(st, job, observed)}
	resp := &dtaskv1.GetResultResponse{Job: v.show(aggregated)}
	resp.Job.Freshness = j.freshness(index)

	tasks, size := taskReader{st: st, job: job, observed: observed}, 0
	for i := range job.Total {
		if err := ended(ctx, i); err != nil {
			return nil, err
		}
		if st.Dependents(tasks.ref(i)) > 0 {
			continue
		}
		result := tasks.result(i)
		if size += proto.Size(result); size > maxResult {
			return nil, refused("the result of job %d exceeds %d MiB: list its tasks with their results instead", id, maxResult>>20)
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
