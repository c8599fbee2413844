package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// LogsRequest selects the logs of a task.
type LogsRequest struct {
	Job     string
	Task    string
	Attempt uint32 // 0 = the last one
	Follow  bool   // until the attempt ends
	// Tail leaves out all but the last lines of what there is at the start; 0 = nothing
	// is left out. At most MaxTail.
	Tail int
	// Since leaves out what was written before, by the worker's clock; zero = nothing.
	Since time.Time
	// Stdout and Stderr receive the output of the attempt; nil omits it. They may
	// be the same writer, which then has both in the order in which they were written.
	Stdout, Stderr io.Writer
	// ControlLines includes the lines of standard output by which a command reports
	// progress and checkpoints. Otherwise they are left out.
	ControlLines bool
}

// MaxTail is the most lines that LogsRequest.Tail may ask for.
const MaxTail = 100_000

// Logs copies the output of an attempt and returns the attempt's number. A line of its
// own replaces output that the worker has not kept. ErrNotFound means that the attempt is
// unknown or its log is gone; the error says why. After a failure it continues after the
// last byte that was written.
func (c *Client) Logs(ctx context.Context, r LogsRequest) (attempt uint32, err error) {
	if r.Tail < 0 || r.Tail > MaxTail {
		return 0, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("invalid Tail %d: must be 0 to %d", r.Tail, MaxTail)}
	}
	if r.Attempt == 0 {
		// A retry must not switch to a newer last attempt.
		for task, err := range c.Tasks(ctx, r.Job, TaskFilter{Task: r.Task}) {
			if err != nil {
				return 0, err
			}
			r.Attempt = task.GetAttempt()
		}
	}
	w := newLogWriter(r)
	if r.Tail > 0 && (r.Attempt > 0 || !r.Follow) { // an attempt that has not begun has no lines yet
		w.tail = newTail(r.Tail)
		if err := c.copyLogs(ctx, r, false, w); err != nil {
			return r.Attempt, err
		}
		if r.Follow {
			err = w.endTail()
		} else {
			err = w.end()
		}
		if err != nil || !r.Follow {
			return r.Attempt, err
		}
	}
	if err := c.copyLogs(ctx, r, r.Follow, w); err != nil {
		return r.Attempt, err
	}
	return r.Attempt, w.end()
}

// copyLogs passes the pieces of a log to w. It reads both streams, so that what is
// missing is known.
func (c *Client) copyLogs(ctx context.Context, r LogsRequest, follow bool, w *logWriter) error {
	return c.do(ctx, operation{
		name: "reading the logs of task " + r.Job + "/" + r.Task,
		run: func(ctx context.Context, t try) error {
			stream, err := t.jobs().Logs(ctx, &dtaskv1.LogsRequest{Job: r.Job, Task: r.Task, Attempt: r.Attempt, Follow: follow})
			if err != nil {
				return err
			}
			for {
				got, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				t.connected()
				for _, p := range got.GetPieces() {
					if err := w.add(p); err != nil {
						return err
					}
				}
			}
		},
	})
}
