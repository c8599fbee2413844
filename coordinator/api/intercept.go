package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// unary turns panics and errors of a handler into a status.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	err = s.guard(ctx, info.FullMethod, func() error {
		var err error
		if resp, err = handler(ctx, req); s.awaitLeader(ctx, info.FullMethod, err) {
			resp, err = handler(ctx, req)
		}
		return err
	})
	return resp, err
}

// stream is unary for streams.
func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return s.guard(stream.Context(), info.FullMethod, func() error {
		err := handler(srv, stream)
		s.awaitLeader(stream.Context(), info.FullMethod, err) // what was received cannot be had again
		return err
	})
}

// enter refuses a call before it has a goroutine.
func (s *Server) enter(ctx context.Context, info *tap.Info) (context.Context, error) {
	if s.cfg.Enter == nil {
		return ctx, nil
	}
	entered, err := s.cfg.Enter(ctx, info.FullMethodName)
	if err != nil {
		return ctx, s.status(ctx, info.FullMethodName, err)
	}
	return entered, nil
}

// Guard makes the status that the caller of a method sees of what call returns, or
// of its panic: for a service that answers several callers in one stream.
func (s *Server) Guard(ctx context.Context, method string, call func() error) error {
	return s.guard(ctx, method, call)
}

func (s *Server) guard(ctx context.Context, method string, call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.internal(ctx, method, "panic", fmt.Sprintf("%v\n%s", p, debug.Stack()))
		}
	}()
	if err := call(); err != nil {
		return s.status(ctx, method, err)
	}
	return nil
}

// internal logs a fault of the program and makes the status that leads to the
// log's line.
func (s *Server) internal(ctx context.Context, method, key string, what any) error {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	id := hex.EncodeToString(b[:])
	s.cfg.Logger.ErrorContext(ctx, "call failed inside", "error_id", id, "method", method, key, what)
	r := table[KindInternal]
	return withDetail(r.code, fmt.Sprintf("internal error %s; the log of replica %s says more", id, s.cfg.ServerID),
		&dtaskv1.ErrorDetail{Reason: r.reason})
}
