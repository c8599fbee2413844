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
	done := uint64(0) // offset up to which all was written
	err = c.do(ctx, operation{
		name: "reading the logs of task " + r.Job + "/" + r.Task,
		run:  func(ctx context.Context, t try) error { return r.copy(ctx, t, &done) },
	})
	return r.Attempt, err
}

// copy reads both streams from one coordinator, so that what is missing is known, and writes what follows the bytes that were already
// written.
func (r LogsRequest) copy(ctx context.Context, t try, done *uint64) error {
	stream, err := t.jobs().Logs(ctx, &dtaskv1.LogsRequest{
		Job: r.Job, Task: r.Task, Attempt: r.Attempt, Follow: r.Follow,
	})
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
			if err := r.write(p, done); err != nil {
				return err
			}
		}
	}
}

// write writes what is new of a piece, and says how much is missing before it.
func (r LogsRequest) write(p *dtaskv1.LogPiece, done *uint64) error {
	end := p.GetOffset() + uint64(len(p.GetData()))
	if end <= *done {
		return nil
	}
	start := max(*done, p.GetOffset())
	w := r.writer(p.GetStream())
	if gap := start - *done; gap > 0 {
		if _, err := fmt.Fprintf(firstWriter(w, r.Stdout, r.Stderr), "\n[dtask: %d bytes omitted]\n", gap); err != nil {
			return fmt.Errorf("writing log: %w", err)
		}
	}
	if w == nil {
		*done = end
		return nil
	}
	n, err := w.Write(p.GetData()[start-p.GetOffset():])
	*done = start + uint64(n) //nolint:gosec // not negative
	if err != nil {
		return fmt.Errorf("writing log: %w", err)
	}
	return nil
}

// firstWriter returns the first writer that is wanted.
func firstWriter(list ...io.Writer) io.Writer {
	for _, w := range list {
		if w != nil {
			return w
		}
	}
	return io.Discard
}

// writer returns the writer of a stream; nil if it is not wanted.
func (r LogsRequest) writer(s dtaskv1.LogStream) io.Writer {
	if s == dtaskv1.LogStream_LOG_STREAM_STDERR {
		return r.Stderr
	}
	return r.Stdout
}
