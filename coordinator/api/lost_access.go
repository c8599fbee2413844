package api

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/dtask/dtask/internal/auth"
)

// A caller may lose access while its call is open: its credential is revoked or expires.
// The contexts of handlers end then. That of gRPC must not: gRPC ends a stream as CANCELED
// when its context ends while the handler receives or sends a message.

// lostAccessWait is how long a stream whose caller has lost access waits for its handler.
// One that receives or sends a message ends only after the stream.
const lostAccessWait = 100 * time.Millisecond

// withAccess returns the context of a handler, which ends with the access of its caller.
func withAccess(ctx context.Context) (context.Context, context.CancelFunc) {
	access := auth.Access(ctx)
	if access == nil {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(access, func() { end(context.Cause(access)) })
	return ctx, func() {
		stop()
		end(nil)
	}
}

// lostAccess returns why the caller of a handler's context has lost access; nil if it has
// not.
func (s *Server) lostAccess(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) && s.cfg.Classify(cause) != nil {
		return cause
	}
	return nil
}

// stream handles a stream. If the caller loses access, the stream ends with the reason,
// also if the handler does not return.
func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if auth.Access(stream.Context()) == nil {
		return s.handle(srv, stream, info, handler)
	}
	ctx, end := withAccess(stream.Context())
	defer end()
	// Size 1: the handler may return after the stream has ended.
	done := make(chan error, 1)
	s.streams.Go(func() { done <- s.handle(srv, &accessStream{stream, ctx}, info, handler) }) //nolint:contextcheck // the stream has it
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	reason := s.lostAccess(ctx)
	if reason == nil {
		return <-done // the client has left, or its deadline has passed
	}
	select {
	case err := <-done:
		if err != nil {
			return err
		}
	case <-time.After(lostAccessWait):
	}
	return s.status(ctx, info.FullMethod, reason)
}

// accessStream is a stream whose context ends with the access of its caller.
type accessStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // as a stream has one
}

// Context implements grpc.ServerStream.
func (s *accessStream) Context() context.Context { return s.ctx }
