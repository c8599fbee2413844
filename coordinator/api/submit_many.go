package api

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// maxJobs bounds the jobs of one call.
const maxJobs = 1000

// SubmitMany implements JobService.
func (j *jobs) SubmitMany(ctx context.Context, m *dtaskv1.SubmitManyRequest) (*dtaskv1.SubmitManyResponse, error) {
	leader := j.cfg.Leader()
	if leader == nil {
		return nil, errNotLeader
	}
	size := proto.Size(m)
	if n := len(m.GetJobs()); n < 1 || n > maxJobs || size > maxMessage {
		return nil, invalid("jobs: there are %d with %d bytes; send 1 to %d with at most %d", n, size, maxJobs, maxMessage)
	}
	all := &upload{Server: j.Server}
	defer all.release()
	if err := all.take(costOf(m, size)); err != nil {
		j.refused.count(err)
		return nil, err
	}
	b := manyAnswers{jobs: j, answers: make([]*dtaskv1.SubmitAnswer, len(m.GetJobs())), room: maxFaultBytes}
	submissions := make([]sequencer.Submission, 0, len(m.GetJobs()))
	places := make([]int, 0, len(m.GetJobs())) // of submissions, among the jobs
	one := &upload{Server: j.Server}
	for i, r := range m.GetJobs() {
		s, err := one.whole(r)
		if err != nil {
			b.refuse(ctx, i, err)
			continue
		}
		submissions, places = append(submissions, s), append(places, i)
	}
	for k, s := range leader.SubmitMany(ctx, submissions) {
		if s.Err != nil {
			b.refuse(ctx, places[k], fmt.Errorf("storing the job: %w", s.Err))
			continue
		}
		b.answers[places[k]] = &dtaskv1.SubmitAnswer{Stored: storedJob(s.SubmitResult)}
	}
	return &dtaskv1.SubmitManyResponse{Answers: b.answers}, nil
}

// costOf is what a call of so many bytes holds, about, until it is answered.
func costOf(m *dtaskv1.SubmitManyRequest, size int) int64 {
	n := size
	for _, r := range m.GetJobs() {
		n += taskCost + tasksCost(r)
	}
	return int64(n)
}

// whole makes a submission of a job that came in one message. One upload makes one after
// another.
func (u *upload) whole(r *dtaskv1.SubmitRequest) (sequencer.Submission, error) {
	u.begun = false
	if err := u.add(r); err != nil {
		return sequencer.Submission{}, err
	}
	return u.seal()
}

// manyAnswers are the answers to one call.
type manyAnswers struct {
	*jobs
	answers []*dtaskv1.SubmitAnswer
	room    int // bytes that are left for faults
}

// refuse answers for a job that was not stored, in the words of Submit. Of faults
// there are as many as one answer of Submit has room for.
func (b *manyAnswers) refuse(ctx context.Context, i int, err error) {
	b.refused.count(err)
	st := status.Convert(b.status(ctx, dtaskv1.JobService_SubmitMany_FullMethodName, err))
	answer := &dtaskv1.SubmitAnswer{Code: int32(st.Code()), Message: st.Message()} //nolint:gosec // the codes are few
	for _, d := range st.Details() {
		if detail, ok := d.(*dtaskv1.ErrorDetail); ok {
			answer.Detail = detail
		}
	}
	for k, line := range answer.GetDetail().GetFaults() {
		if b.room -= len(line); b.room < 0 {
			answer.Detail.Faults = append(answer.Detail.Faults[:k:k], "… submit this job alone to see what is wrong with it")
			break
		}
	}
	if st.Code() == codes.OK { // does not happen: there is an error
		answer.Code = int32(codes.Internal)
	}
	b.answers[i] = answer
}
