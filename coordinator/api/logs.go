package api

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Logs implements JobService. Only the leader has the sessions through which logs are
// read. With follow it also waits for the first attempt.
func (j *jobs) Logs(r *dtaskv1.LogsRequest, stream grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
	id, err := jobID(r.GetJob())
	if err != nil {
		return err
	}
	if _, known := dtaskv1.LogStream_name[int32(r.GetStream())]; !known {
		return invalid("invalid stream %d: must be STDOUT, STDERR or unspecified for both", r.GetStream())
	}
	ctx, cancel := j.untilStopping(stream.Context())
	defer cancel()
	attempt, err := j.findAttempt(ctx, id, r)
	if err != nil {
		return err
	}
	return j.cfg.Logs.Logs(ctx, attempt, r.GetStream(), r.GetFollow(), func(d *dtaskv1.LogData) error {
		return stream.Send(&dtaskv1.LogsResponse{Pieces: d.GetPieces()})
	})
}

// untilStopping returns a context that is also cancelled when the server stops. The
// returned function releases it and waits for the goroutine that it started.
func (s *Server) untilStopping(parent context.Context) (ctx context.Context, release func()) {
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

// findAttempt finds the attempt whose log is requested, and its worker.
func (s *Server) findAttempt(ctx context.Context, id fsm.JobID, r *dtaskv1.LogsRequest) (h fsm.HeldAttempt, err error) {
	ref, err := s.findTask(id, r.GetTask())
	if err != nil {
		return h, err
	}
	name := fmt.Sprintf("task %s of job %d", quote(r.GetTask()), id)
	for {
		var t fsm.Task
		var index uint64
		var ok bool
		s.cfg.Machine.Read(func(st *fsm.State, at uint64) {
			t, ok = st.Task(ref)
			index = at
		})
		if !ok {
			st, _, _, err := s.forkJob(id)
			if err != nil {
				return h, err
			}
			t, _ = st.Task(ref)
		}
		switch want := r.GetAttempt(); {
		case t.Attempt > 0 && (want == 0 || want == t.Attempt):
			return fsm.HeldAttempt{AttemptRef: fsm.AttemptRef{TaskRef: ref, Attempt: t.Attempt}, Worker: t.Worker}, nil
		case want > t.Attempt:
			return h, notFound("attempt %d of %s not found: its last is %d", want, name, t.Attempt)
		case t.Attempt > 0:
			return h, notFound("the worker of attempt %d of %s is no longer known: its last attempt is %d", want, name, t.Attempt)
		case t.State.Terminal() || !r.GetFollow():
			return h, notFound("%s has not started: it is %s", name, t.State)
		}
		if err := s.pause(ctx, watchRepeatInterval, s.cfg.Machine.Changed(index)); err != nil {
			return h, err
		}
		if err := s.pause(ctx, watchInterval, nil); err != nil {
			return h, err
		}
	}
}
