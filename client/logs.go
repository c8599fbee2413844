package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// LogsRequest selects the logs of a task.
type LogsRequest struct {
	Job     string
	Task    string
	Attempt uint32 // 0 = the last one
	Follow  bool   // until the attempt ends
	// Stdout and Stderr receive the output of the attempt; nil omits it. They may
	// be the same writer.
	Stdout, Stderr io.Writer
}

// Logs copies the output of an attempt and returns the attempt's number.
// ErrNotFound means that the attempt is unknown or its log has expired. After
// a failure it continues after the last byte that was written.
func (c *Client) Logs(ctx context.Context, r LogsRequest) (attempt uint32, err error) {
	if r.Attempt == 0 {
		// A retry must not switch to a newer last attempt.
		for task, err := range c.Tasks(ctx, r.Job, TaskFilter{Task: r.Task}) {
			if err != nil {
				return 0, err
			}
			r.Attempt = task.GetAttempt()
		}
	}
	var written [3]int64 // bytes written, by stream
	err = c.do(ctx, operation{
		name: "reading the logs of task " + r.Job + "/" + r.Task,
		run:  func(ctx context.Context, t try) error { return r.copy(ctx, t, &written) },
	})
	return r.Attempt, err
}

// copy reads from one coordinator and writes what follows the bytes that were
// already written.
func (r LogsRequest) copy(ctx context.Context, t try, written *[3]int64) error {
	stream, err := t.jobs().Logs(ctx, &dtaskv1.LogsRequest{
		Job: r.Job, Task: r.Task, Attempt: r.Attempt, Follow: r.Follow, Stream: r.selected(),
	})
	if err != nil {
		return err
	}
	var seen [3]int64 // in this attempt
	for {
		got, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		t.connected()
		w, s := r.writer(got.GetStream())
		if w == nil {
			continue
		}
		data := got.GetData()
		skip := min(max(written[s]-seen[s], 0), int64(len(data)))
		seen[s] += int64(len(data))
		n, err := w.Write(data[skip:])
		written[s] += int64(n)
		if err != nil {
			return fmt.Errorf("writing log: %w", err)
		}
	}
}

// selected returns the stream to request: both if both have a writer.
func (r LogsRequest) selected() dtaskv1.LogStream {
	switch {
	case r.Stderr == nil:
		return dtaskv1.LogStream_LOG_STREAM_STDOUT
	case r.Stdout == nil:
		return dtaskv1.LogStream_LOG_STREAM_STDERR
	}
	return dtaskv1.LogStream_LOG_STREAM_UNSPECIFIED
}

// writer returns the writer of a stream and the stream's index.
func (r LogsRequest) writer(s dtaskv1.LogStream) (io.Writer, int) {
	if s == dtaskv1.LogStream_LOG_STREAM_STDERR {
		return r.Stderr, 2
	}
	return r.Stdout, 1
}
