package client

import (
	"errors"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// tasksOf returns the tasks of a part, of which the first has an index.
func tasksOf(p *dtaskv1.JobPart, first uint32) []*dtaskv1.TaskSpec {
	tasks := p.GetTasks()
	r, err := columns.ReadTasks(p.GetColumns(), first)
	if err != nil {
		panic(err)
	}
	for r.Left() > 0 {
		row := r.Next()
		t := &dtaskv1.TaskSpec{Id: row.ID, Policy: row.Policy, Dependencies: slices.Clone(row.Dependencies), Body: &dtaskv1.TaskBody{}}
		if err := proto.Unmarshal(row.Body, t.GetBody()); err != nil {
			panic(err)
		}
		tasks = append(tasks, t)
	}
	return tasks
}

// Submit passes each complete job to f.submit, in a goroutine of its own.
func (f *fake) Submit(s grpc.BidiStreamingServer[dtaskv1.SubmitRequest, dtaskv1.SubmitResponse]) error {
	var sending sync.Mutex
	send := func(results ...*dtaskv1.SubmitResult) {
		sending.Lock()
		defer sending.Unlock()
		_ = s.Send(&dtaskv1.SubmitResponse{Results: results}) // fails if the client has gone
	}
	var running sync.WaitGroup
	defer running.Wait()
	open := make(map[uint64]*dtaskv1.JobPart)
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		answered := make(map[uint64]bool)
		if f.message != nil {
			results, err := f.message(m)
			if err != nil {
				return err
			}
			for _, r := range results {
				answered[r.GetJob()] = true
			}
			send(results...)
		}
		var header *dtaskv1.JobHeader
		for _, p := range m.GetParts() {
			if answered[p.GetJob()] {
				continue
			}
			whole := open[p.GetJob()]
			if whole == nil {
				whole = p
				whole.Tasks = tasksOf(p, 0)
				if whole.GetHeader() == nil {
					whole.Header = header
				} else if !p.GetMore() {
					header = whole.GetHeader()
				}
			} else {
				whole.Tasks = append(whole.GetTasks(), tasksOf(p, uint32(len(whole.GetTasks())))...)
			}
			open[p.GetJob()] = whole
			if p.GetMore() {
				continue
			}
			delete(open, p.GetJob())
			f.calls.Add(1)
			running.Go(func() {
				send(resultOf(whole.GetJob())(f.submit(whole.GetIdempotencyKey(), whole.GetHeader(), whole.GetTasks())))
			})
		}
	}
}

// resultOf returns the result of a job as coordinators do.
func resultOf(job uint64) func(*dtaskv1.StoredJob, error) *dtaskv1.SubmitResult {
	return func(stored *dtaskv1.StoredJob, err error) *dtaskv1.SubmitResult {
		st := status.Convert(err)
		r := &dtaskv1.SubmitResult{Job: job, Stored: stored, Code: int32(st.Code()), Message: st.Message()}
		for _, d := range st.Details() {
			if detail, ok := d.(*dtaskv1.ErrorDetail); ok {
				r.Detail = detail
			}
		}
		return r
	}
}
