package client

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A JobSpec is a job as it was submitted, as Client.JobSpec reads it: without later updates.
// It takes about as much memory as its messages on the wire, also for a job of a million
// tasks. Submit stores it as a new job. A JobSpec is not safe for concurrent changes of its
// header.
type JobSpec struct {
	header *dtaskv1.JobHeader
	total  uint32
	parts  []*dtaskv1.JobPart // with tasks only
}

// Header returns the header of the job, with the defaults of the cluster. The caller may
// change it before submitting the job.
func (s *JobSpec) Header() *dtaskv1.JobHeader { return s.header }

// Tasks returns the number of tasks of the job, including those of its arrays.
func (s *JobSpec) Tasks() int { return int(s.total) }

// JobSpec reads a job as it was submitted, also one of the history. The error is
// ErrNotFound if the job is unknown or expired. Of the options, only Stale and Fresh
// matter.
func (c *Client) JobSpec(ctx context.Context, id string, opts ReadOptions) (*JobSpec, error) {
	var s *JobSpec
	err := c.do(ctx, operation{
		name: "reading the specification of job " + id, stale: opts.Stale,
		run: func(ctx context.Context, t try) (err error) {
			s, err = readJobSpec(ctx, t, &dtaskv1.GetJobSpecRequest{Job: id, Consistency: consistency(opts.Stale)}, opts.Fresh)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// readJobSpec reads all parts of a job from one coordinator.
func readJobSpec(ctx context.Context, t try, req *dtaskv1.GetJobSpecRequest, fresh func(*dtaskv1.Freshness)) (*JobSpec, error) {
	stream, err := t.jobs().GetJobSpec(ctx, req)
	if err != nil {
		return nil, err
	}
	s := new(JobSpec)
	for more := true; more; {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil, errCut
		} else if err != nil {
			return nil, err
		}
		t.connected()
		part := m.GetPart()
		if len(s.parts) == 0 {
			s.header, s.total = part.GetHeader(), part.GetTotal()
			report(fresh, m.GetFreshness())
		}
		more = part.GetMore()
		part.Header, part.Total = nil, 0
		s.parts = append(s.parts, part)
	}
	return s, nil
}

// next returns the next part of a job that was read, and its approximate size. The part
// shares its tasks.
func (s *JobSpec) next(head *dtaskv1.JobPart, n int) (part *dtaskv1.JobPart, size int) {
	from := s.parts[n]
	head.Tasks, head.Columns, head.More = from.GetTasks(), from.GetColumns(), n < len(s.parts)-1
	return head, partFraming + proto.Size(head)
}
