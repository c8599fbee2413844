package api

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxProfile is the longest CPU profile of a debug bundle.
	maxProfile = 30 * time.Second
	// maxDebugFile bounds a file of a debug bundle, in bytes; what follows is cut off.
	maxDebugFile = 32 << 20
	// debugRetryDelay is when a caller may ask again after another one.
	debugRetryDelay = 5 * time.Second
)

// DebugFile writes a file of a debug bundle. It returns errors of its receiver only: an
// error of write is in the bundle, as the file name.error.
type DebugFile func(name string, write func(w io.Writer) error) error

// Debug implements AdminService.
func (a *admin) Debug(r *dtaskv1.DebugRequest, stream grpc.ServerStreamingServer[dtaskv1.DebugResponse]) error {
	profile := time.Duration(r.GetProfileMs()) * time.Millisecond
	switch {
	case a.cfg.Debug == nil:
		return &Error{Kind: KindBusy, RetryAfter: debugRetryDelay, Message: "this coordinator makes no debug bundles yet"}
	case r.GetProfileMs() < 0 || r.GetProfileMs() > maxProfile.Milliseconds():
		return invalid("invalid profile_ms %d: must be 0 to %d", r.GetProfileMs(), maxProfile.Milliseconds())
	case !a.debugging.TryAcquire(1):
		return &Error{Kind: KindBusy, RetryAfter: debugRetryDelay, Message: "this coordinator is making a debug bundle for another caller"}
	}
	defer a.debugging.Release(1)
	ctx, cancel := a.untilStopping(stream.Context())
	defer cancel()
	err := a.cfg.Debug(ctx, profile, func(name string, write func(io.Writer) error) error {
		return a.sendDebugFile(ctx, stream, name, write)
	})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // why nothing could be sent
	}
	return err
}

// sendDebugFile sends a file, and why it is not complete, if it is not.
func (a *admin) sendDebugFile(ctx context.Context, stream grpc.ServerStreamingServer[dtaskv1.DebugResponse], name string, write func(io.Writer) error) error {
	send := func(data []byte) error {
		return stream.Send(&dtaskv1.DebugResponse{ServerId: a.cfg.ServerID, File: name, Data: data})
	}
	if err := send(nil); err != nil {
		return err
	}
	out := &byteStream{ctx: ctx, what: "bundle", send: send}
	failed := write(&cutWriter{w: out, left: maxDebugFile})
	if err := out.flush(); err != nil {
		return err
	}
	if failed == nil {
		return nil
	}
	return stream.Send(&dtaskv1.DebugResponse{ServerId: a.cfg.ServerID, File: name + ".error", Data: []byte(failed.Error() + "\n")})
}

// errCut is the error of a cutWriter that is full.
var errCut = errors.New("the file is too large: the rest is missing")

// cutWriter writes the beginning of a file.
type cutWriter struct {
	w    io.Writer
	left int
}

// Write implements io.Writer.
func (c *cutWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b[:min(c.left, len(b))])
	c.left -= n
	if err == nil && n < len(b) {
		err = errCut
	}
	return n, err
}
