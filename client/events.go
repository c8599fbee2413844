package client

import (
	"context"
	"errors"
	"io"
	"iter"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// EventFilter selects events.
type EventFilter struct {
	After     uint64 // log index: only events of later entries; 0 = from the oldest one that is kept
	Namespace string // only events of jobs in this one; empty = all that the caller may see
	Follow    bool   // continue with new events until the context is done
}

// EventPage is some events.
type EventPage struct {
	Events []*dtaskv1.Event // ascending by index; may be empty
	// Index is a log index up to which the caller has got all events. EventFilter.After
	// resumes after it, at any time and by any client.
	Index uint64
}

// Events yields what happened to jobs, tasks, workers and the cluster, in the order of the
// log. Without Follow, it yields what one coordinator has applied, and ends. After failures
// it resumes at another coordinator: it yields each event once. It ends with the first error.
// ErrCompacted means that the coordinators no longer keep all events after the index.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[EventPage, error] {
	return func(yield func(EventPage, error) bool) {
		req := &dtaskv1.WatchEventsRequest{AfterIndex: f.After, Namespace: f.Namespace, Follow: f.Follow}
		stopped := false
		err := c.do(ctx, operation{
			name: "reading events", stale: true,
			run: func(ctx context.Context, t try) error {
				stream, err := t.jobs().WatchEvents(ctx, req)
				if err != nil {
					return err
				}
				for {
					got, err := stream.Recv()
					switch {
					case errors.Is(err, io.EOF) && !f.Follow:
						return nil
					case errors.Is(err, io.EOF):
						return errCut
					case err != nil:
						return err
					}
					t.connected()
					req.AfterIndex = max(req.GetAfterIndex(), got.GetIndex())
					if stopped = !yield(EventPage{got.GetEvents(), got.GetIndex()}, nil); stopped {
						return errDone
					}
				}
			},
		})
		if err != nil && !stopped {
			yield(EventPage{}, err)
		}
	}
}
