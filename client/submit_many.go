package client

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// manyJobs is how many jobs go in one call; coordinators take up to 1,000.
const manyJobs = 500

// A Submission is one job of many.
type Submission struct {
	Job *dtaskv1.JobSpec
	SubmitOptions
}

// SubmitResult is what became of one job of many.
type SubmitResult struct {
	Submitted
	Err error // as Submit returns it; nil: the job is stored
}

// SubmitMany stores jobs, each for itself, in as few calls as they fit into, and
// tells for each what became of it, in order. It is much faster than Submit for
// many small jobs. What is not stored for a reason that may pass is repeated as
// by Submit; large jobs are sent by Submit.
func (c *Client) SubmitMany(ctx context.Context, jobs []Submission) []SubmitResult {
	m := many{c: c, results: make([]SubmitResult, len(jobs))}
	size := 0
	for i, s := range jobs {
		p, err := request(s)
		if err != nil {
			m.results[i].Err = err
			continue
		}
		if p.r == nil {
			m.results[i].Submitted, m.results[i].Err = c.submitLarge(ctx, s.Job, s.SubmitOptions)
			continue
		}
		if len(m.left) == manyJobs || size+p.size > chunkBytes {
			m.send(ctx)
			size = 0
		}
		p.at = i
		m.left, size = append(m.left, p), size+p.size
		m.results[i].Key = p.r.GetIdempotencyKey()
	}
	m.send(ctx)
	return m.results
}

// request is all that is sent of a job, at no place yet; without a request if that is
// too much for a call that others share.
func request(s Submission) (place, error) {
	first, err := firstRequest(s.Job, s.SubmitOptions)
	if err != nil {
		return place{}, err
	}
	var whole *dtaskv1.SubmitRequest
	for m, err := range requests(first, s.Job.GetTasks()) {
		if err != nil || whole != nil || proto.Size(m) > smallBytes {
			return place{}, err
		}
		whole = m
	}
	const framing = 8
	size := proto.Size(whole) + framing
	if size > smallBytes {
		return place{}, nil
	}
	return place{r: whole, size: size}, nil
}

// many is a SubmitMany on its way.
type many struct {
	c       *Client
	results []SubmitResult
	left    []place // jobs of the next call
}

// place is a job and its number among the results.
type place struct {
	at   int
	r    *dtaskv1.SubmitRequest
	size int // in the call
}

// send submits what is left, until every job of it has its answer.
func (m *many) send(ctx context.Context) {
	if len(m.left) == 0 {
		return
	}
	err := m.c.do(ctx, operation{name: fmt.Sprintf("submitting %d jobs", len(m.left)), limit: submitLimit, run: func(ctx context.Context, t try) error {
		again, err := m.try(ctx, t)
		if err == nil {
			err = again
		}
		return err
	}})
	for _, p := range m.left {
		m.results[p.at].Err = err
	}
	m.left = m.left[:0]
}

// try is one call. What it leaves behind may be done by another one; again is the error of
// one of those.
func (m *many) try(ctx context.Context, t try) (again, err error) {
	call := &dtaskv1.SubmitManyRequest{Jobs: make([]*dtaskv1.SubmitRequest, len(m.left))}
	for i, p := range m.left {
		call.Jobs[i] = p.r
		if i > 0 && p.r.GetHeader() == m.left[i-1].r.GetHeader() {
			call.Jobs[i] = likeBefore(p.r)
		}
	}
	resp, err := t.jobs().SubmitMany(ctx, call)
	if err != nil {
		return nil, err
	}
	if len(resp.GetAnswers()) != len(m.left) {
		return nil, status.Errorf(codes.Internal, "%d answers for %d jobs", len(resp.GetAnswers()), len(m.left))
	}
	left := m.left[:0]
	for i, p := range m.left {
		err := m.take(p, resp.GetAnswers()[i])
		if err != nil {
			left, again = append(left, p), err
		}
	}
	m.left = left
	return again, nil
}

// likeBefore is a job as it goes behind one with the very same header: without it.
func likeBefore(r *dtaskv1.SubmitRequest) *dtaskv1.SubmitRequest {
	return &dtaskv1.SubmitRequest{
		IdempotencyKey: r.GetIdempotencyKey(), GeneratedKey: r.GetGeneratedKey(), Total: r.GetTotal(), Tasks: r.GetTasks(), Columns: r.GetColumns(),
	}
}

// take notes an answer, or returns why the job should be sent once more.
func (m *many) take(p place, a *dtaskv1.SubmitAnswer) error {
	result := &m.results[p.at]
	if got := a.GetStored(); got != nil {
		*result = SubmitResult{Submitted: Submitted{ID: got.GetId(), Existed: got.GetExisted(), Index: got.GetIndex(), Key: p.r.GetIdempotencyKey()}}
		return nil
	}
	err := refused(a)
	j := judge(err)
	if j.next != final {
		return err
	}
	result.Err = &Error{Kind: j.kind, Message: "submitting the job: " + j.message, Faults: j.faults, Unknown: j.unknown}
	return nil
}

// refused is the error of an answer, as if it were that of the call; nil if the job is stored.
func refused(a *dtaskv1.SubmitAnswer) error {
	if a.GetStored() != nil {
		return nil
	}
	st := status.New(codes.Code(a.GetCode()), a.GetMessage()) //nolint:gosec // a status code
	if a.GetDetail() != nil {
		if with, err := st.WithDetails(a.GetDetail()); err == nil {
			st = with
		}
	}
	return st.Err()
}
