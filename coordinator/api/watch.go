package api

import (
	"context"
	"fmt"
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
	// watchReach is how long a watch waits for a replica to apply what it
	// begins after. Replicas are behind each other for milliseconds.
	watchReach = 2 * time.Second
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
	if err = j.reach(ctx, r.GetFromIndex(), r.GetConsistency()); err != nil {
		return err
	}
	w := &watch{Server: j.Server, id: id, tasks: r.GetWithTasks(), known: r.GetFromIndex(), stream: stream}
	for {
		g, err := w.look(ctx)
		if err != nil {
			return err
		}
		sent := time.Now()
		if err = w.send(ctx, g); err != nil || isEnded(g.view.GetState()) {
			return err
		}
		if err = w.untilChange(ctx, g, sent.Add(watchRepeat)); err != nil {
			return err
		}
	}
}

// reach waits until this replica has applied what a watch begins after.
func (s *Server) reach(ctx context.Context, from uint64, c dtaskv1.Consistency) error {
	limited, cancel := context.WithTimeout(ctx, watchReach)
	defer cancel()
	err := s.cfg.Machine.Await(limited, from)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case c == dtaskv1.Consistency_CONSISTENCY_STALE:
		return errNotLeader // which is ahead
	}
	return invalid("from_index: %d is beyond the log, which ends at %d; send the index of a change", from, s.cfg.Machine.Index())
}

// A watch is one call of WatchJob. It belongs to the goroutine of the call.
type watch struct {
	*Server

	id     fsm.JobID
	tasks  bool
	known  uint64 // index of the last change that the caller has; 0 = of none
	stream grpc.ServerStreamingServer[dtaskv1.WatchJobResponse]
}

// A glance is a watched job as it was at one index.
type glance struct {
	sight

	view *dtaskv1.Job
	fork *fsm.State // with tasks only: job and tasks are of one moment
}

// look reads the job. With tasks nothing but the log is shown, so that it looks
// the same at every replica.
func (w *watch) look(ctx context.Context) (glance, error) {
	if !w.tasks {
		v, err := w.Server.look(w.id)
		if err != nil {
			return glance{}, err
		}
		view, err := w.viewOf(ctx, v)
		return glance{sight: v, view: view}, err
	}
	st, job, index, err := w.fork(w.id)
	if err != nil {
		return glance{}, err
	}
	aggregated, err := w.aggregated(ctx, &job, func() (*fsm.State, error) { return st, nil })
	if err != nil {
		return glance{}, err
	}
	v := sight{job: job, index: index, changed: st.JobChanged(w.id)}
	view := show(v, aggregated)
	view.Freshness = w.freshness(index)
	return glance{sight: v, view: view, fork: st}, nil
}

// send sends a change, or repeats the job if there is none.
func (w *watch) send(ctx context.Context, g glance) error {
	if w.known > 0 && g.changed <= w.known {
		return w.stream.Send(&dtaskv1.WatchJobResponse{Job: g.view})
	}
	last := &dtaskv1.WatchJobResponse{}
	if w.tasks {
		changed, ok := g.fork.ChangedTasks(w.id, w.known)
		if !ok {
			return &Error{Kind: KindCompacted, Message: fmt.Sprintf(
				"job %d: what changed since index %d is not known at this replica any more; watch it from the beginning", w.id, w.known)}
		}
		tasks, size := taskReader{st: g.fork, job: g.job}, 0
		for i := range changed {
			if i%walkStride == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			t := tasks.read(i)
			n := proto.Size(t)
			if len(last.GetTasks()) == maxPageTasks || (size+n > maxPage && size > 0) {
				last.More = true
				if err := w.stream.Send(last); err != nil {
					return err
				}
				last, size = &dtaskv1.WatchJobResponse{}, 0
			}
			last.Tasks = append(last.Tasks, t)
			size += n
		}
	}
	last.Job, last.Index = g.view, g.changed
	w.known = g.changed
	return w.stream.Send(last)
}

// untilChange waits until the job looks different from how it was sent, or until
// it is time to repeat that.
func (w *watch) untilChange(ctx context.Context, sent glance, repeat time.Time) error {
	for index := sent.index; ; {
		if err := w.rest(ctx, min(watchPause, time.Until(repeat)), nil); err != nil {
			return err
		}
		left := time.Until(repeat)
		if left <= 0 {
			return nil
		}
		if err := w.rest(ctx, left, w.cfg.Machine.Changed(index)); err != nil {
			return err
		}
		var changed uint64
		w.cfg.Machine.Read(func(st *fsm.State, at uint64) { changed, index = st.JobChanged(w.id), at })
		if changed != sent.changed {
			return nil
		}
		if w.tasks {
			continue
		}
		now, err := w.look(ctx)
		if err != nil || !sameJob(sent.view, now.view) {
			return err
		}
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
