package api

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// watchInterval is the shortest time between two reads of a watched job, and so
	// between two messages, unless the job has ended.
	watchInterval = 100 * time.Millisecond
	// watchRepeatInterval is the longest time between two messages: a caller that
	// receives none for longer watches a server that hangs.
	watchRepeatInterval = time.Second
	// applyTimeout is how long a watch waits for this replica to apply the index that
	// the watch resumes from. Replicas lag by milliseconds.
	applyTimeout = 2 * time.Second
)

// errStopping ends a stream when the server stops: the caller resumes it at another
// replica.
var errStopping = &Error{Kind: KindNotLeader, Message: "this replica is stopping"}

// WatchJob implements JobService. The first message is as fresh as requested; the
// others come from this replica's state whether it leads or not, so that a watch
// survives a change of leader.
func (j *jobs) WatchJob(r *dtaskv1.WatchJobRequest, stream grpc.ServerStreamingServer[dtaskv1.WatchJobResponse]) error {
	ctx := stream.Context()
	id, err := jobID(r.GetId())
	if err != nil {
		return err
	}
	if err = j.awaitIndex(ctx, r.GetFromIndex(), r.GetConsistency()); err != nil {
		return err
	}
	w := &watch{
		Server: j.Server, caller: caller(ctx), id: id, tasks: r.GetWithTasks(), sent: r.GetFromIndex(), stream: stream,
		changes: j.cfg.Machine.Subscribe(id), // before the first read: no change is missed
	}
	defer w.changes.Close()
	for {
		v, err := w.read()
		if err != nil {
			return err
		}
		now := time.Now()
		if err = w.send(ctx, &v); err != nil || isTerminal(v.shown.GetState()) {
			return err
		}
		if err = w.awaitChange(ctx, &v, now.Add(watchRepeatInterval)); err != nil {
			return err
		}
	}
}

// awaitIndex waits until this replica has applied a log index.
func (s *Server) awaitIndex(ctx context.Context, index uint64, c dtaskv1.Consistency) error {
	limited, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	err := s.cfg.Machine.Await(limited, index)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case c == dtaskv1.Consistency_CONSISTENCY_STALE:
		return errNotLeader // the leader is ahead
	}
	return invalid("invalid from_index %d: the log ends at %d", index, s.cfg.Machine.Index())
}

// A watch is one call of WatchJob. It belongs to the goroutine of the call.
type watch struct {
	*Server

	caller  *auth.Principal
	id      fsm.JobID
	tasks   bool
	sent    uint64            // index of the last change that the caller has; 0 = none
	changes *fsm.Subscription // to the job
	stream  grpc.ServerStreamingServer[dtaskv1.WatchJobResponse]
}

// A watchView is a watched job as it was at one index.
type watchView struct {
	jobView

	shown *dtaskv1.Job
	fork  *fsm.State // with tasks only: job and tasks are of one index
}

// read reads the job. With tasks it shows only what is in the log, so that the job is
// the same at every replica.
func (w *watch) read() (v watchView, err error) {
	if w.tasks {
		v.fork, v.job, v.index, err = w.forkJob(w.id)
		if err == nil {
			v.changed, v.counted = v.fork.JobChanged(w.id), true
			v.aggregated, err = w.aggregated(v.fork, &v.job)
		}
	} else {
		v.jobView, err = w.readJob(w.id)
	}
	if err == nil && !sees(w.caller, v.job.Header) {
		err = w.missingJob(w.id)
	}
	if err != nil {
		return watchView{}, err
	}
	if v.shown, err = w.showJob(&v.jobView); err == nil {
		v.shown.Freshness = w.freshness(v.index)
	}
	return v, err
}

// send sends a change, or repeats the job if it has not changed.
func (w *watch) send(ctx context.Context, v *watchView) error {
	if w.sent > 0 && v.changed <= w.sent {
		return w.stream.Send(&dtaskv1.WatchJobResponse{Job: v.shown})
	}
	page := taskPage{send: func(tasks []*dtaskv1.Task) error {
		return w.stream.Send(&dtaskv1.WatchJobResponse{Tasks: tasks, More: true})
	}}
	if w.tasks {
		changed, ok := v.fork.ChangedTasks(w.id, w.sent)
		if !ok {
			return &Error{Kind: KindCompacted, Message: fmt.Sprintf(
				"changes of job %d since index %d are no longer available at this replica; watch the job from the start", w.id, w.sent)}
		}
		tasks := taskReader{st: v.fork, job: v.job}
		for i := range changed {
			if err := ended(ctx, i); err != nil {
				return err
			}
			if err := page.add(tasks.read(i)); err != nil {
				return err
			}
		}
	}
	w.sent = v.changed
	return w.stream.Send(&dtaskv1.WatchJobResponse{Job: v.shown, Index: v.changed, Tasks: page.tasks})
}

// awaitChange waits until the job has changed since it was read, or until the time to
// repeat it, which also shows what was observed about running tasks meanwhile.
// Changes are coalesced for watchInterval, but the end is sent immediately. Nothing
// runs while the job doesn't change.
func (w *watch) awaitChange(ctx context.Context, sent *watchView, repeat time.Time) error {
	for {
		if err := w.pause(ctx, min(watchInterval, time.Until(repeat)), w.changes.Ended); err != nil {
			return err
		}
		left := time.Until(repeat)
		if left <= 0 {
			return nil
		}
		if err := w.pause(ctx, left, w.changes.Changed); err != nil {
			return err
		}
		changed := uint64(0)
		w.cfg.Machine.Read(func(st *fsm.State, _ uint64) { changed = st.JobChanged(w.id) })
		if changed != sent.changed {
			return nil
		}
	}
}

// pause waits for a duration, or until early is closed.
func (s *Server) pause(ctx context.Context, d time.Duration, early <-chan struct{}) error {
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
