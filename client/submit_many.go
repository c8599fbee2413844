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
		r, err := request(s)
		if err != nil {
			m.results[i].Err = err
			continue
		}
		n := proto.Size(r)
		if r == nil || n > chunkBytes/4 {
			m.results[i].Submitted, m.results[i].Err = c.Submit(ctx, s.Job, SubmitOptions{Key: s.Key})
			continue
		}
		if len(m.left) == manyJobs || size+n > chunkBytes {
			m.send(ctx)
			size = 0
		}
		m.left, size = append(m.left, place{at: i, r: r}), size+n+8
		m.results[i].Key = r.GetIdempotencyKey()
	}
	m.send(ctx)
	return m.results
}

// request is all that is sent of a job; nil if that does not fit into one message.
func request(s Submission) (*dtaskv1.SubmitRequest, error) {
	first, err := firstRequest(s.Job, s.SubmitOptions)
	if err != nil {
		return nil, err
	}
	var whole *dtaskv1.SubmitRequest
	for m, err := range requests(first, s.Job.GetTasks()) {
		if err != nil || whole != nil {
			return nil, err
		}
		whole = m
	}
	return whole, nil
}

// many is a SubmitMany on its way.
type many struct {
	c       *Client
	results []SubmitResult
	left    []place // jobs of the next call
}

// place is a job and its number among the results.
type place struct {
	at int
	r  *dtaskv1.SubmitRequest
}

// send submits what is left, until every job of it has its answer.
func (m *many) send(ctx context.Context) {
	if len(m.left) == 0 {
		return
	}
	err := m.c.do(ctx, operation{name: fmt.Sprintf("submitting %d jobs", len(m.left)), limit: submitLimit, run: m.try})
	for _, p := range m.left {
		m.results[p.at].Err = err
	}
	m.left = m.left[:0]
}

// try is one call. What it leaves behind may be done by another one; the error is
// that of one of those.
func (m *many) try(ctx context.Context, t try) error {
	call := &dtaskv1.SubmitManyRequest{}
	for _, p := range m.left {
		call.Jobs = append(call.Jobs, p.r)
	}
	resp, err := t.jobs().SubmitMany(ctx, call)
	if err != nil {
		return err
	}
	if len(resp.GetAnswers()) != len(m.left) {
		return status.Errorf(codes.Internal, "%d answers for %d jobs", len(resp.GetAnswers()), len(m.left))
	}
	var again error
	left := m.left[:0]
	for i, p := range m.left {
		err := m.take(p, resp.GetAnswers()[i])
		if err != nil {
			left, again = append(left, p), err
		}
	}
	m.left = left
	return again
}

// take notes an answer, or returns why the job should be sent once more.
func (m *many) take(p place, a *dtaskv1.SubmitAnswer) error {
	result := &m.results[p.at]
	if got := a.GetStored(); got != nil {
		*result = SubmitResult{Submitted: Submitted{ID: got.GetId(), Existed: got.GetExisted(), Index: got.GetIndex(), Key: p.r.GetIdempotencyKey()}}
		return nil
	}
	st := status.New(codes.Code(a.GetCode()), a.GetMessage()) //nolint:gosec // a status code
	if a.GetDetail() != nil {
		if with, err := st.WithDetails(a.GetDetail()); err == nil {
			st = with
		}
	}
	j := judge(st.Err())
	if j.next != final {
		return st.Err()
	}
	result.Err = &Error{Kind: j.kind, Message: "submitting the job: " + j.message, Faults: j.faults, Unknown: j.unknown}
	return nil
}
