package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	"github.com/dtask/dtask/internal/sendqueue"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxParts bounds the parts of one message, and the jobs of a stream that wait
	// for their result: a stream that reaches it is not read, which slows its
	// client down.
	maxParts = 1000
	// resultBytes closes a message of results; a larger result has a message of
	// its own.
	resultBytes = 256 << 10
	// uploadRetry is the retry delay when the memory for submissions is used up.
	uploadRetry = 200 * time.Millisecond
)

// submitStream is a call of Submit. One goroutine receives parts and checks
// them, others wait for the leader, and the handler sends results.
type submitStream struct {
	*jobs
	caller  *auth.Principal
	leader  Leader // of the whole stream
	results *sendqueue.Queue[*dtaskv1.SubmitResult, struct{}, dtaskv1.SubmitResponse]
	pending *semaphore.Weighted // jobs that wait for their result, of maxParts
	last    uint64              // highest job number
	single  *upload             // reused for all jobs of one part

	mu   sync.Mutex
	open map[uint64]*upload // jobs whose last part has not arrived
}

// Submit implements JobService.
func (j *jobs) Submit(stream grpc.BidiStreamingServer[dtaskv1.SubmitRequest, dtaskv1.SubmitResponse]) error {
	const method = dtaskv1.JobService_Submit_FullMethodName
	leader := j.cfg.Leader()
	if leader == nil && j.awaitLeader(stream.Context(), methods[method], errNotLeader) {
		leader = j.cfg.Leader()
	}
	if leader == nil {
		return j.status(stream.Context(), method, errNotLeader)
	}
	p := caller(stream.Context())
	s := &submitStream{
		jobs: j, caller: p, leader: leader, single: &upload{Server: j.Server, caller: p}, open: make(map[uint64]*upload), pending: semaphore.NewWeighted(maxParts),
		results: sendqueue.New[*dtaskv1.SubmitResult, struct{}, dtaskv1.SubmitResponse](),
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	j.streams.Go(func() { cancel(s.receive(ctx, stream)) })
	j.streams.Go(func() {
		select {
		case <-j.stopping:
			_ = s.settle(ctx)
			cancel(errStopping)
		case <-ctx.Done():
		}
	})
	if err := s.results.Run(ctx, packResults, stream.Send); err != nil {
		return err
	}
	if err := s.results.Drain(packResults, stream.Send); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, io.EOF) {
		return cause
	}
	return nil
}

// packResults builds a message from the first results of the queue.
func packResults(queued []*dtaskv1.SubmitResult, _ []struct{}) (*dtaskv1.SubmitResponse, int) {
	n, size := 0, 0
	for n < len(queued) && size < resultBytes {
		size += proto.Size(queued[n])
		n++
	}
	return &dtaskv1.SubmitResponse{Results: append([]*dtaskv1.SubmitResult(nil), queued[:n]...)}, n
}

// settle waits until all jobs that arrived have a result, and keeps further
// jobs from being submitted.
func (s *submitStream) settle(ctx context.Context) error { return s.pending.Acquire(ctx, maxParts) }

// receive handles messages until the stream or the term ends. It returns
// io.EOF if the client has closed the stream and all jobs have a result.
func (s *submitStream) receive(ctx context.Context, stream grpc.BidiStreamingServer[dtaskv1.SubmitRequest, dtaskv1.SubmitResponse]) error {
	defer s.dropAll()
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			for _, number := range s.dropAll() {
				s.fail(ctx, number, invalid("more: the stream ended before the last part"))
			}
			return errors.Join(s.settle(ctx), io.EOF)
		case err != nil:
			return err
		case s.cfg.Leader() != s.leader:
			return errors.Join(s.settle(ctx), errNotLeader)
		}
		_, err = s.guard(ctx, dtaskv1.JobService_Submit_FullMethodName, func() error { return s.take(ctx, m) })
		if err != nil {
			return err
		}
	}
}

// checked are jobs that may be stored.
type checked struct {
	numbers     []uint64
	submissions []sequencer.Submission
	held        int64 // bytes of Server.uploads
}

// take checks the parts of a message and submits the jobs that are complete.
// Jobs of one part share a call.
func (s *submitStream) take(ctx context.Context, m *dtaskv1.SubmitRequest) error {
	tooLarge := error(nil)
	if n, size := len(m.GetParts()), proto.Size(m); n > maxParts || size > maxMessage {
		tooLarge = invalid("message: has %d parts and %d bytes; send at most %d parts and %d bytes", n, size, maxParts, maxMessage)
	}
	s.single.header = nil
	var group checked
	for _, p := range m.GetParts() {
		u := s.uploadOf(p)
		if u == nil {
			continue // the job has failed before
		}
		err := tooLarge
		if err == nil {
			err = u.take(partCost(p))
		}
		if err == nil {
			err = u.add(p)
		}
		if err == nil && p.GetMore() {
			s.keep(ctx, p.GetJob(), u)
			continue
		}
		var sealed sequencer.Submission
		if err == nil {
			sealed, err = u.seal()
		}
		switch {
		case err != nil:
			u.release()
			s.fail(ctx, p.GetJob(), err)
		case u != s.single:
			if err := s.submit(ctx, checked{[]uint64{p.GetJob()}, []sequencer.Submission{sealed}, u.held}); err != nil {
				s.uploads.Release(group.held)
				return err
			}
		default:
			group.numbers, group.submissions = append(group.numbers, p.GetJob()), append(group.submissions, sealed)
			group.held += u.held
			u.held = 0
		}
	}
	return s.submit(ctx, group)
}

// partCost is about what a part holds in memory, in bytes, until its job is
// stored.
func partCost(p *dtaskv1.JobPart) int64 { return int64(proto.Size(p) + taskCost + tasksCost(p)) }

// uploadOf returns the upload that a part belongs to, which is removed from
// those that wait for a part; nil if its job has a result.
func (s *submitStream) uploadOf(p *dtaskv1.JobPart) *upload {
	if p.GetJob() > s.last {
		s.last = p.GetJob()
		if !p.GetMore() {
			s.single.started = false
			return s.single
		}
		return &upload{Server: s.Server, caller: s.caller}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.open[p.GetJob()]
	delete(s.open, p.GetJob())
	if u != nil {
		u.idle.Stop()
	}
	return u
}

// keep waits for the next part of a job for at most Config.UploadPause.
func (s *submitStream) keep(ctx context.Context, number uint64, u *upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[number] = u
	u.idle = time.AfterFunc(s.cfg.UploadPause, func() {
		s.drop(number, u, func() {
			s.fail(ctx, number, &Error{Kind: KindBusy, Message: fmt.Sprintf("submission stalled: no part of the job arrived for %s", s.cfg.UploadPause)})
		})
	})
}

// drop forgets a job that waits for a part, after fail has queued its result: the stream may
// end as soon as no job waits.
func (s *submitStream) drop(number uint64, u *upload, fail func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[number] != u {
		return
	}
	fail()
	delete(s.open, number)
	u.idle.Stop()
	u.release()
}

// dropAll forgets all jobs that wait for parts, and returns their numbers.
func (s *submitStream) dropAll() (numbers []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number, u := range s.open {
		numbers = append(numbers, number)
		u.idle.Stop()
		u.release()
	}
	clear(s.open)
	return numbers
}

// submit passes jobs to the leader and queues their results. It returns before
// they are stored, and waits only while too many others are pending.
func (s *submitStream) submit(ctx context.Context, c checked) error {
	n := int64(len(c.numbers))
	if n == 0 {
		return nil
	}
	if err := s.pending.Acquire(ctx, n); err != nil {
		s.uploads.Release(c.held)
		return err
	}
	s.streams.Go(func() {
		outcomes := s.leader.SubmitMany(ctx, c.submissions)
		if slices.ContainsFunc(outcomes, func(o sequencer.SubmitOutcome) bool { return errors.Is(o.Err, sequencer.ErrTermEnded) }) {
			s.awaitSuccessor(ctx, s.leader)
		}
		for i, r := range outcomes {
			switch {
			case isRejected(r.Err, fsm.RunOpen):
				r.Err = s.explainOpenKey(c.submissions[i].Header, r.Err)
			case isRejected(r.Err, fsm.QueueNotFound), isRejected(r.Err, fsm.LimitNotFound):
				r.Err = s.explainDeleted(c.submissions[i].Header, r.Err)
			}
			s.results.AddDeferred(s.result(ctx, c.numbers[i], r))
		}
		s.uploads.Release(c.held)
		s.pending.Release(n)
		s.results.Flush()
	})
	return nil
}

func (s *submitStream) result(ctx context.Context, number uint64, r sequencer.SubmitOutcome) *dtaskv1.SubmitResult {
	if isRejected(r.Err, fsm.NeedNotFound) {
		return s.failure(ctx, number, errNeedArchived)
	}
	if r.Err != nil {
		return s.failure(ctx, number, fmt.Errorf("storing job: %w", r.Err))
	}
	return &dtaskv1.SubmitResult{Job: number, Stored: &dtaskv1.StoredJob{
		Id: strconv.FormatUint(uint64(r.ID), 10), Existed: r.Existed, Index: r.Index,
	}}
}

// fail queues the result of a job that was not submitted.
func (s *submitStream) fail(ctx context.Context, number uint64, err error) {
	s.results.Add(s.failure(ctx, number, err))
}

// failure returns the result of a job that was not stored.
func (s *submitStream) failure(ctx context.Context, number uint64, err error) *dtaskv1.SubmitResult {
	s.refused.count(err)
	st := status.Convert(s.status(ctx, dtaskv1.JobService_Submit_FullMethodName, err))
	if st.Code() == codes.PermissionDenied { // without access, the stream ends, which is counted
		s.CountDenial(s.denialOf(dtaskv1.JobService_Submit_FullMethodName, err, st.Err()))
	}
	result := &dtaskv1.SubmitResult{Job: number, Code: int32(st.Code()), Message: st.Message()} //nolint:gosec // status codes are small
	for _, d := range st.Details() {
		if detail, ok := d.(*dtaskv1.ErrorDetail); ok {
			result.Detail = detail
		}
	}
	return result
}
