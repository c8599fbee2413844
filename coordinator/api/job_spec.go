package api

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// specPartBytes closes a part of GetJobSpec. A client sends parts on as they are, and
	// Submit takes messages of up to 1 MiB.
	specPartBytes = 512 << 10
	// specTaskBytes is more than the entries of a task without dependencies in all
	// columns, and specNumberBytes than one entry.
	specTaskBytes, specNumberBytes = 16, 4
)

// GetJobSpec implements JobService.
func (j *jobs) GetJobSpec(r *dtaskv1.GetJobSpecRequest, stream grpc.ServerStreamingServer[dtaskv1.GetJobSpecResponse]) error {
	id, err := jobID(r.GetJob())
	if err != nil {
		return err
	}
	st, job, index, err := j.forkJob(id)
	if err != nil {
		return err
	}
	parts := &specParts{
		ctx: stream.Context(), freshness: j.freshness(index), send: stream.Send,
		part: &dtaskv1.JobPart{Header: job.Header, Total: job.Total}, size: proto.Size(job.Header),
	}
	if err := st.EachSubmitted(id, parts.addTask, parts.addArray); err != nil {
		return err
	}
	return parts.flush(false)
}

// specParts sends a job part by part. A part has tasks in columns, or arrays.
type specParts struct {
	ctx       context.Context //nolint:containedctx // it lives within one call
	send      func(*dtaskv1.GetJobSpecResponse) error
	freshness *dtaskv1.Freshness // until it has been sent
	part      *dtaskv1.JobPart
	size      int                  // of part, approximately
	previous  *dtaskv1.TaskColumns // of the last part with tasks
}

// addTask adds a listed task. The columns of a job are those of columns.Task: a field that
// tasks get beside their dependencies is copied here.
func (p *specParts) addTask(t *fsm.SubmittedTask) error {
	if err := ended(p.ctx, t.Index); err != nil {
		return err
	}
	size := len(t.Name) + len(t.Body) + specTaskBytes + len(t.Dependencies)*specNumberBytes
	if err := p.reserve(size, len(p.part.GetTasks()) > 0); err != nil {
		return err
	}
	if p.part.GetColumns() == nil {
		p.part.Columns = columns.NewTasks(p.previous)
	}
	columns.AddTask(p.part.GetColumns(), t.Index, &columns.Task{
		ID: string(t.Name), Policy: t.Policy, Dependencies: t.Dependencies, Conditions: fsm.ProtoConditions(t.Conditions), Body: t.Body,
	})
	return nil
}

// addArray adds an array, or further items of one.
func (p *specParts) addArray(t *dtaskv1.TaskSpec) error {
	if err := p.reserve(proto.Size(t)+specTaskBytes, p.part.GetColumns() != nil); err != nil {
		return err
	}
	p.part.Tasks = append(p.part.Tasks, t)
	return nil
}

// reserve sends the part if the next task does not fit, or must not be in it.
func (p *specParts) reserve(size int, other bool) error {
	if other || p.size+size > specPartBytes && p.size > 0 {
		if err := p.flush(true); err != nil {
			return err
		}
	}
	p.size += size
	return nil
}

// flush sends the part and begins the next one.
func (p *specParts) flush(more bool) error {
	p.part.More = more
	err := p.send(&dtaskv1.GetJobSpecResponse{Part: p.part, Freshness: p.freshness})
	if p.part.GetColumns() != nil {
		p.previous = p.part.GetColumns()
	}
	p.part, p.size, p.freshness = &dtaskv1.JobPart{}, 0, nil
	return err
}
