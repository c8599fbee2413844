package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// eventPage is how many events are read at once, without the others of the last entry.
	eventPage = 1_000
	// eventInterval is the shortest time between two responses, so that a busy log does not
	// wake a watcher for each entry.
	eventInterval = 100 * time.Millisecond
	// eventProgress is how often a watcher learns that the log has grown without an event
	// for it.
	eventProgress = 5 * time.Second
)

// WatchEvents implements JobService. Any replica answers from the events that it keeps.
func (j *jobs) WatchEvents(r *dtaskv1.WatchEventsRequest, stream grpc.ServerStreamingServer[dtaskv1.WatchEventsResponse]) error {
	ctx := stream.Context()
	if ns := r.GetNamespace(); ns != "" {
		if err := auth.CheckNamespace(ns); err != nil {
			return invalid("%s", err)
		}
	}
	// A caller that comes from another replica may be ahead of this one.
	err := j.awaitIndex(ctx, r.GetAfterIndex(), dtaskv1.Consistency_CONSISTENCY_STALE)
	if errors.Is(err, errNotLeader) && j.cfg.Leader() != nil {
		return invalid("invalid after_index %d: the log ends at %d", r.GetAfterIndex(), j.cfg.Machine.Index())
	} else if err != nil {
		return err
	}
	after := r.GetAfterIndex()
	if after == 0 {
		after = j.cfg.Machine.EventsAfter(0, 1).Floor
	}
	w := eventFilter{caller: caller(ctx), namespace: r.GetNamespace()}
	var sent time.Time
	for {
		page := j.cfg.Machine.EventsAfter(after, eventPage)
		if after < page.Floor {
			return &Error{Kind: KindCompacted, Message: fmt.Sprintf(
				"events since index %d are no longer kept at this replica, which has those since index %d", after, page.Floor)}
		}
		resp := &dtaskv1.WatchEventsResponse{Events: w.visible(page.Events), Index: page.Index}
		full := len(page.Events) >= eventPage
		if len(resp.GetEvents()) > 0 || sent.IsZero() || time.Since(sent) >= eventProgress {
			if err := stream.Send(resp); err != nil {
				return err
			}
			sent = time.Now()
		}
		after = page.Index
		switch {
		case full:
		case !r.GetFollow():
			return nil
		default:
			if err := j.awaitEntry(ctx, after); err != nil {
				return err
			}
		}
	}
}

// awaitEntry waits until an entry after an index is applied, and at least eventInterval.
func (s *Server) awaitEntry(ctx context.Context, index uint64) error {
	if err := s.pause(ctx, eventInterval, nil); err != nil {
		return err
	}
	select {
	case <-s.cfg.Machine.Changed(index):
	case <-s.stopping:
		return errStopping
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// eventFilter decides which events a caller may see, and wants.
type eventFilter struct {
	caller    *auth.Principal
	namespace string // empty: all that it may see
}

// visible returns the events that the caller may see, as it sees them. Events of workers and
// of the cluster are for callers with all namespaces.
func (f *eventFilter) visible(events []fsm.Event) (list []*dtaskv1.Event) {
	for i := range events {
		e := &events[i]
		namespace := ""
		if e.Job != 0 {
			namespace = cmp.Or(e.Namespace, auth.DefaultNamespace)
		}
		switch {
		case e.Job != 0 && !f.caller.SeesAll() && !f.caller.Sees(namespace):
		case e.Job == 0 && !f.caller.SeesAll():
		case f.namespace != "" && f.namespace != namespace:
		default:
			list = append(list, showEvent(e, namespace))
		}
	}
	return list
}

// eventKinds are the kinds of events in responses, but those of the end of a job or task,
// which have its state. They are part of the stable surface.
var eventKinds = map[fsm.EventKind]string{
	fsm.JobSubmittedEvent: "job.submitted", fsm.JobEndedEvent: "job.", fsm.JobRevivedEvent: "job.retried",
	fsm.TaskRetryEvent: "task.retrying", fsm.TaskRequeuedEvent: "task.requeued", fsm.TaskFailedEvent: "task.",
	fsm.WorkerUpEvent: "worker.up", fsm.WorkerDownEvent: "worker.down", fsm.WorkerDrainEvent: "worker.draining",
	fsm.WorkerUndrainEvent: "worker.undrained", fsm.WorkerForgottenEvent: "worker.forgotten",
	fsm.LeaderEvent: "cluster.leader", fsm.LevelEvent: "cluster.level",
}

func showEvent(e *fsm.Event, namespace string) *dtaskv1.Event {
	view := &dtaskv1.Event{
		Index: e.Index, At: e.AtMS, Kind: eventKinds[e.Kind], Name: e.Name, Namespace: namespace, Task: e.Task, Attempt: e.Attempt, Number: e.Number,
	}
	switch e.Kind { //nolint:exhaustive // the others have their kind
	case fsm.JobEndedEvent:
		view.Kind += e.JobState.String()
	case fsm.TaskFailedEvent:
		view.Kind += e.TaskState.String()
	}
	if e.Job != 0 {
		view.Job = formatJobID(e.Job)
	}
	if e.Worker != 0 {
		view.Worker = strconv.FormatUint(uint64(e.Worker), 10)
	}
	return view
}
