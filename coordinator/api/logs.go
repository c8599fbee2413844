package api

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Logs implements JobService. Only the leader has the sessions through which
// logs are read. With follow it also waits for the first attempt.
func (j *jobs) Logs(r *dtaskv1.LogsRequest, stream grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
	id, err := jobID(r.GetJob())
	if err != nil {
		return err
	}
	if _, known := dtaskv1.LogStream_name[int32(r.GetStream())]; !known {
		return invalid("stream: %d is not known; send STDOUT, STDERR or nothing for both", r.GetStream())
	}
	ctx, end := j.untilStopping(stream.Context())
	defer end()
	if err = j.Confirm(ctx); err != nil {
		return err
	}
	held, err := j.attempt(ctx, id, r)
	if err != nil {
		return err
	}
	return j.cfg.Logs.Logs(ctx, held, r.GetStream(), r.GetFollow(), func(d *dtaskv1.LogData) error {
		return stream.Send(&dtaskv1.LogsResponse{Stream: d.GetStream(), Data: d.GetData()})
	})
}

// untilStopping gives a context that also ends when the server stops. end
// releases it and waits for what it started.
func (s *Server) untilStopping(parent context.Context) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(parent)
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-s.stopping:
			cancel(errStopping)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(nil)
		watcher.Wait()
	}
}

// attempt finds the attempt whose log is asked for and who has it.
func (s *Server) attempt(ctx context.Context, id fsm.JobID, r *dtaskv1.LogsRequest) (fsm.HeldAttempt, error) {
	ref, err := s.task(id, r.GetTask())
	if err != nil {
		return fsm.HeldAttempt{}, err
	}
	for {
		var t fsm.Task
		var index uint64
		var ok bool
		s.cfg.Machine.Read(func(st *fsm.State, at uint64) {
			t, ok = st.Task(ref)
			index = at
		})
		if !ok {
			st, _, _, err := s.fork(id)
			if err != nil {
				return fsm.HeldAttempt{}, err
			}
			t, _ = st.Task(ref)
		}
		switch {
		case t.Attempt > 0 && (r.GetAttempt() == 0 || r.GetAttempt() == t.Attempt):
			return fsm.HeldAttempt{AttemptRef: fsm.AttemptRef{TaskRef: ref, Attempt: t.Attempt}, Worker: t.Worker}, nil
		case r.GetAttempt() > t.Attempt:
			return fsm.HeldAttempt{}, notFound("job %d: task %s has no attempt %d; its last is %d", id, quote(r.GetTask()), r.GetAttempt(), t.Attempt)
		case t.Attempt > 0:
			return fsm.HeldAttempt{}, notFound("job %d: task %s: where attempt %d ran is not known any more; its last is %d",
				id, quote(r.GetTask()), r.GetAttempt(), t.Attempt)
		case t.State.Terminal() || !r.GetFollow():
			return fsm.HeldAttempt{}, notFound("job %d: task %s was not started yet, or never will be: its state is %s", id, quote(r.GetTask()), t.State)
		}
		if err := s.rest(ctx, watchRepeat, s.cfg.Machine.Changed(index)); err != nil {
			return fsm.HeldAttempt{}, err
		}
		if err := s.rest(ctx, watchPause, nil); err != nil {
			return fsm.HeldAttempt{}, err
		}
	}
}
