package api

import (
	"context"
	"encoding/hex"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/array"
	"github.com/dtask/dtask/internal/taskbody"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxResult bounds the answer of GetResult, in bytes.
const maxResult = 32 << 20

// GetResult implements JobService. Of a job that has not ended it gives what is
// there.
func (j *jobs) GetResult(ctx context.Context, r *dtaskv1.GetResultRequest) (*dtaskv1.GetResultResponse, error) {
	id, err := jobID(r.GetJob())
	if err != nil {
		return nil, err
	}
	if err = j.allow(ctx, r.GetConsistency()); err != nil {
		return nil, err
	}
	seen := j.observed(id)
	st, job, index, err := j.fork(id)
	if err != nil {
		return nil, err
	}
	aggregated, err := j.aggregated(ctx, &job, func() (*fsm.State, error) { return st, nil })
	if err != nil {
		return nil, err
	}
	resp := &dtaskv1.GetResultResponse{Job: show(sight{job: job, running: countRunning(st, job, seen)}, aggregated)}
	resp.Job.Freshness = j.freshness(index)

	tasks, size := taskReader{st: st, job: job, seen: seen}, 0
	for i := range job.Total {
		if i%walkStride == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		ref := fsm.TaskRef{Job: id, Index: i}
		if st.Dependents(ref) > 0 {
			continue
		}
		result := tasks.result(ref)
		if size += proto.Size(result); size > maxResult {
			return nil, refused("the result of job %d is larger than %d MiB; list its tasks with their results instead", id, maxResult>>20)
		}
		resp.Results = append(resp.Results, result)
	}
	return resp, nil
}

// output is where a task publishes its output; empty if nowhere.
func (r *taskReader) output(ref fsm.TaskRef) string {
	output := taskbody.Encoded(r.st.Body(ref)).Output()
	if a, ok := r.st.ArrayTask(ref); ok && output != "" && a.Chunk == 1 {
		a.Each(func(index uint32, item []byte) {
			if expanded, err := array.Expand(output, array.Item{Index: index, JSON: item}, false); err == nil {
				output = expanded
			}
		})
	}
	return output
}

// result is what one terminal task left.
func (r *taskReader) result(ref fsm.TaskRef) *dtaskv1.TaskResult {
	t, left := r.read(ref.Index), r.st.Result(ref)
	return &dtaskv1.TaskResult{
		Task: t.GetId(), State: t.GetState(), Error: left.Error, Result: left.Data, Output: r.output(ref),
		OutputSize: left.OutputSize, OutputSha256: hex.EncodeToString(left.OutputSHA256),
	}
}
