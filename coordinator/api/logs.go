package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/statetext"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Logs implements JobService. Only the leader has the sessions through which logs are
// read. With follow it also waits for the first attempt and, for at most maxApplyLag, for
// one that is unknown here.
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

// findAttempt finds the attempt whose log is requested, and the worker that has it.
func (s *Server) findAttempt(ctx context.Context, id fsm.JobID, r *dtaskv1.LogsRequest) (h fsm.HeldAttempt, err error) {
	ref, err := s.findTask(id, r.GetTask())
	if err != nil {
		return h, err
	}
	find := attemptFinder{ref: ref, want: r.GetAttempt(), name: fmt.Sprintf("task %s of job %d", quote(r.GetTask()), id)}
	applied := time.Now().Add(maxApplyLag)
	for {
		var index uint64
		var found, coming bool
		s.cfg.Machine.Read(func(st *fsm.State, at uint64) {
			index = at
			if _, found = st.Task(ref); found {
				h, err = find.in(st)
				coming = find.mayCome(st)
			}
		})
		if !found {
			st, _, _, err := s.forkJob(id)
			if err != nil {
				return h, err
			}
			return find.in(st)
		}
		notStarted := errors.Is(err, errNotStarted)
		awaited := notStarted || coming && time.Now().Before(applied)
		if !r.GetFollow() || !awaited {
			if notStarted {
				err = notFound("%s has not started", find.name)
			}
			return h, err
		}
		if err := s.pause(ctx, watchRepeatInterval, s.cfg.Machine.Changed(index)); err != nil {
			return h, err
		}
		if err := s.pause(ctx, watchInterval, nil); err != nil {
			return h, err
		}
	}
}

// maxApplyLag is the longest wait for an attempt that is unknown here: a reader may know it
// from a replica that has applied more than the leader.
const maxApplyLag = 5 * time.Second

// errNotStarted is returned for a task that may still get its first attempt.
var errNotStarted = errors.New("task has not started")

// An attemptFinder finds an attempt of a task, and the worker that has its log.
type attemptFinder struct {
	ref  fsm.TaskRef
	want uint32 // 0 = the last attempt
	name string // of the task, for errors
}

func (f *attemptFinder) in(st *fsm.State) (h fsm.HeldAttempt, err error) {
	t, _ := st.Task(f.ref)
	number, worker := t.Attempt, t.Worker
	switch {
	case f.want > t.Attempt:
		return h, notFound("attempt %d of %s not found: its last is %d", f.want, f.name, t.Attempt)
	case t.Attempt == 0 && t.State.Terminal():
		return h, notFound("%s has never started: it %s", f.name, statetext.Predicate(t.State.String()))
	case t.Attempt == 0:
		return h, errNotStarted
	case f.want > 0 && f.want < t.Attempt:
		number = f.want
		if worker = f.workerOf(st, f.want); worker == 0 {
			return h, notFound("attempt %d of %s left no trace: it was released before it ran, or only the first and the last attempts are kept", f.want, f.name)
		}
	case t.Worker == 0:
		return h, notFound("the last attempt of %s has no log: the task ended with the result of another one", f.name)
	}
	switch w := st.Worker(worker); { // a worker keeps its number and its logs when it is restarted
	case w == nil:
		return h, notFound("the log of attempt %d of %s is gone: its worker was down for so long that it is no longer known", number, f.name)
	case w.State != fsm.WorkerUp:
		return h, notFound("the log of attempt %d of %s cannot be read: worker %s, which has it, is down", number, f.name, w.Name)
	}
	return fsm.HeldAttempt{AttemptRef: fsm.AttemptRef{TaskRef: f.ref, Attempt: number}, Worker: worker}, nil
}

// mayCome reports whether the attempt is unknown, and the task can still have it.
func (f *attemptFinder) mayCome(st *fsm.State) bool {
	t, _ := st.Task(f.ref)
	return f.want > t.Attempt && !t.State.Terminal()
}

// workerOf returns the worker of an attempt in the task's history; 0 if it is not there.
func (f *attemptFinder) workerOf(st *fsm.State, number uint32) fsm.WorkerID {
	for _, a := range st.History(f.ref) {
		if a.Number == number {
			return a.Worker
		}
	}
	return 0
}
