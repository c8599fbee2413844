package api

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// watchPause is the least time between two looks at a watched job, and so
	// between two messages.
	watchPause = 100 * time.Millisecond
	// watchRepeat is the longest time between two messages: who hears nothing
	// for longer watches a server that hangs.
	watchRepeat = time.Second
)

// errStopping ends a stream of a server that stops: the watch goes on at
// another replica.
var errStopping = &Error{Kind: KindNotLeader, Message: "this replica stops"}

// WatchJob implements JobService. The first message is as fresh as was asked
// for; the following ones come from this replica's state whether it leads or
// not, so that a watch outlives a change of leader.
func (j *jobs) WatchJob(r *dtaskv1.WatchJobRequest, stream grpc.ServerStreamingServer[dtaskv1.WatchJobResponse]) error {
	ctx := stream.Context()
	id, err := jobID(r.GetId())
	if err != nil {
		return err
	}
	if err = j.allow(ctx, r.GetConsistency()); err != nil {
		return err
	}
	var last *dtaskv1.Job
	for {
		view, index, err := j.jobView(ctx, id)
		if err != nil {
			return err
		}
		sent := time.Now()
		if err = stream.Send(&dtaskv1.WatchJobResponse{Job: view}); err != nil || isEnded(view.GetState()) {
			return err
		}
		last = view
		if err := j.untilChange(ctx, id, last, index, sent.Add(watchRepeat)); err != nil {
			return err
		}
	}
}

// untilChange waits until a job looks different from how it was sent, or until
// it is time to repeat that.
func (s *Server) untilChange(ctx context.Context, id fsm.JobID, sent *dtaskv1.Job, index uint64, repeat time.Time) error {
	for {
		if err := s.rest(ctx, min(watchPause, time.Until(repeat)), nil); err != nil {
			return err
		}
		left := time.Until(repeat)
		if left <= 0 {
			return nil
		}
		if err := s.rest(ctx, left, s.cfg.Machine.Changed(index)); err != nil {
			return err
		}
		view, at, err := s.jobView(ctx, id)
		if err != nil || !sameJob(sent, view) {
			return err
		}
		index = at
	}
}

// rest waits for a while, or until early is closed.
func (s *Server) rest(ctx context.Context, d time.Duration, early <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-s.stopping:
		return errStopping
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// sameJob tells whether two views show the same, however fresh.
func sameJob(a, b *dtaskv1.Job) bool {
	fa, fb := a.GetFreshness(), b.GetFreshness()
	a.Freshness, b.Freshness = nil, nil
	defer func() { a.Freshness, b.Freshness = fa, fb }()
	return proto.Equal(a, b)
}

func isEnded(state dtaskv1.JobState) bool {
	switch state {
	case dtaskv1.JobState_JOB_STATE_COMPLETED, dtaskv1.JobState_JOB_STATE_FAILED, dtaskv1.JobState_JOB_STATE_CANCELLED:
		return true
	case dtaskv1.JobState_JOB_STATE_UNSPECIFIED, dtaskv1.JobState_JOB_STATE_PENDING, dtaskv1.JobState_JOB_STATE_RUNNING:
	}
	return false
}
