package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// unary admits a request, and turns errors and panics of a handler into a status.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	ctx, end := withAccess(ctx, nil)
	defer end()
	m := methods[info.FullMethod]
	call := func() error {
		err := s.admit(ctx, m, req)
		if err == nil {
			resp, err = handler(ctx, req)
		}
		return err
	}
	err = s.Guard(ctx, info.FullMethod, func() error {
		if err := authorize(ctx, info.FullMethod); err != nil {
			return err
		}
		if err := s.admitAudit(info.FullMethod); err != nil {
			return err
		}
		err := call()
		if s.awaitLeader(ctx, m, err) {
			err = call()
		}
		return err
	})
	s.auditCall(ctx, info.FullMethod, req, resp, err)
	return resp, err
}

// handle is unary for streams. It can't repeat a call after waiting for a leader,
// since messages were received already.
func (s *Server) handle(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	m, ctx := methods[info.FullMethod], stream.Context()
	if !info.IsClientStream {
		stream = &admittedStream{ServerStream: stream, server: s, method: m}
	}
	stream, end := s.auditStream(stream, info.FullMethod)
	err := s.Guard(ctx, info.FullMethod, func() error {
		err := authorize(ctx, info.FullMethod)
		if err == nil {
			err = handler(srv, stream)
		}
		s.awaitLeader(ctx, m, err)
		return err
	})
	end(err)
	return err
}

// enter is admitCall for gRPC, which calls it in the goroutine that reads from the connection.
// A stack that has grown rarely shrinks, and a worker's connection stays open for weeks with
// one stream: that stream is admitted on another stack.
func (s *Server) enter(ctx context.Context, info *tap.Info) (entered context.Context, err error) {
	if info.FullMethodName != dtaskv1.WorkerService_Sessions_FullMethodName {
		return s.admitCall(ctx, info)
	}
	var admitted sync.WaitGroup
	admitted.Go(func() { entered, err = s.admitCall(ctx, info) }) //nolint:fatcontext // once
	admitted.Wait()
	return entered, err
}

// admitCall authenticates a call, and refuses one that is not allowed before it has a
// goroutine and before its message is decoded.
func (s *Server) admitCall(ctx context.Context, info *tap.Info) (context.Context, error) {
	entered, err := s.authenticate(ctx, info.FullMethodName)
	if err == nil && s.cfg.Enter != nil {
		entered, err = s.cfg.Enter(entered, info.FullMethodName)
	}
	if err != nil {
		if s.cfg.Abandon != nil {
			s.cfg.Abandon(entered)
		}
		refusal := s.status(ctx, info.FullMethodName, err)
		s.noteDenial(entered, info.FullMethodName, err, refusal)
		return ctx, refusal
	}
	return entered, nil
}

// Guard turns the error or the panic of a call into the status that the caller of a
// method gets. It is exported for services that answer several callers in one stream.
func (s *Server) Guard(ctx context.Context, method string, call func() error) error {
	cause, err := s.guard(ctx, method, call)
	s.noteDenial(ctx, method, cause, err)
	return err
}

// guard is Guard for a part of a call. It also returns the error of which err is the status.
func (s *Server) guard(ctx context.Context, method string, call func() error) (cause, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.internal(ctx, method, "panic", fmt.Sprintf("%v\n%s", p, debug.Stack()))
		}
	}()
	if cause = call(); cause != nil {
		return cause, s.status(ctx, method, cause)
	}
	return nil, nil
}

// internal logs an internal error and returns a status with the id of the log line.
func (s *Server) internal(ctx context.Context, method, key string, cause any) error {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	id := hex.EncodeToString(b[:])
	s.cfg.Logger.ErrorContext(ctx, "call failed with an internal error", "error_id", id, "method", method, key, cause)
	r := errorTable[KindInternal]
	return withDetail(r.code, fmt.Sprintf("internal error %s: see the log of replica %s", id, s.cfg.ServerID),
		&dtaskv1.ErrorDetail{Reason: r.reason})
}
