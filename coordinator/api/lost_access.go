package api

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/auth"
)

// A caller may lose access while its call is open: its credential is revoked or expires.
// The contexts of handlers end then. That of gRPC must not: gRPC ends a stream as CANCELED
// when its context ends while the handler receives or sends a message.

// lostAccessWait is how long a stream whose caller has lost access waits for its handler.
// One that receives or sends a message ends only after the stream.
const lostAccessWait = 100 * time.Millisecond

// withAccess returns the context of a handler, which ends with the access of its caller. lost
// is called when it has ended so; it may be nil.
func withAccess(ctx context.Context, lost func(ctx context.Context)) (context.Context, context.CancelFunc) {
	access := auth.Access(ctx)
	if access == nil {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(access, func() {
		end(context.Cause(access))
		if lost != nil {
			lost(ctx)
		}
	})
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
// also if the handler does not return. No goroutine waits for that: thousands of workers have
// a stream each.
func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if auth.Access(stream.Context()) == nil {
		return s.handle(srv, stream, info, handler)
	}
	ctx, end := withAccess(stream.Context(), func(ctx context.Context) { s.cutOff(ctx, info.FullMethod) })
	defer end()
	err := s.handle(srv, &accessStream{stream, ctx}, info, handler)
	if reason := s.lostAccess(ctx); err == nil && reason != nil {
		err = s.status(ctx, info.FullMethod, reason)
	}
	return err
}

// transportStream is what gRPC has in the context of a call. The first status that is written
// ends the call for its client, and what the handler still receives or sends fails.
type transportStream interface {
	WriteStatus(st *status.Status) error
}

// cutOff ends a stream whose handler may not return. ctx is the context of the handler, which
// has ended.
func (s *Server) cutOff(ctx context.Context, method string) {
	reason := s.lostAccess(ctx)
	if reason == nil {
		return // the client has left, or the handler has returned
	}
	time.AfterFunc(lostAccessWait, func() {
		// Without it, gRPC ends the call a moment later as CANCELED.
		if stream, ok := grpc.ServerTransportStreamFromContext(ctx).(transportStream); ok {
			_ = stream.WriteStatus(status.Convert(s.status(ctx, method, reason))) // the client may have left
		}
	})
}

// accessStream is a stream whose context ends with the access of its caller.
type accessStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // as a stream has one
}

// Context implements grpc.ServerStream.
func (s *accessStream) Context() context.Context { return s.ctx }
