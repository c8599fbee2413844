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
	v := jobView{job: tasks.job, observed: countObserved(tasks.st, tasks.job, tasks.observed)}
	resp := &dtaskv1.GetResultResponse{Job: v.show(aggregated)}
	resp.Job.Freshness = j.freshness(index)
	if r.GetTask() != "" {
		err = tasks.namedResults(ctx, r, resp)
	} else {
		err = tasks.terminalResults(ctx, resp)
	}
	return resp, err
}

// terminalResults adds the results of all tasks on which no other task depends.
func (r *taskReader) terminalResults(ctx context.Context, resp *dtaskv1.GetResultResponse) error {
	size := 0
	for i := range r.job.Total {
		if err := ended(ctx, i); err != nil {
			return err
		}
		if r.st.Dependents(r.ref(i)) > 0 {
			continue
		}
		result := r.result(i)
		if size += proto.Size(result); size > maxResult {
			return refused("the result of job %d exceeds %d MiB: ask for the results of a task or an array instead",
				r.job.ID, maxResult>>20)
		}
		resp.Results = append(resp.Results, result)
	}
	return nil
}

// namedResults adds the results of the tasks that a request names, as many as fit into
// a page.
func (r *taskReader) namedResults(ctx context.Context, req *dtaskv1.GetResultRequest, resp *dtaskv1.GetResultResponse) error {
	first, end, ok := findTasks(r.st, r.job.ID, req.GetTask())
	if !ok {
		return taskNotFound(r.st, r.job.ID, req.GetTask())
	}
	size := 0
	for i := max(first, req.GetFrom()); i < end; i++ {
		if err := ended(ctx, i); err != nil {
			return err
		}
		result := r.result(i)
		if size += proto.Size(result); size > maxPageBytes && len(resp.GetResults()) > 0 {
			resp.Next = i
			return nil
		}
		resp.Results = append(resp.Results, result)
	}
	return nil
}

// result shows the result of a task.
func (r *taskReader) result(i uint32) *dtaskv1.TaskResult {
	ref := r.ref(i)
	t, result := r.read(i), r.st.Result(ref)
	output, _ := r.expand(ref, taskbody.Encoded(r.st.Body(ref)).Output(), false)
	return &dtaskv1.TaskResult{
		Task: t.GetId(), State: t.GetState(), Error: result.Error, Result: result.Data, Output: output,
		OutputSize: result.OutputSize, OutputSha256: hex.EncodeToString(result.OutputSHA256),
	}
}
