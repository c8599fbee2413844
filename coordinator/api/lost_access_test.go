package api

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/auth"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// followAccess ends the calls of identities that are revoked, until the test ends.
func (m *matrix) followAccess(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.registry.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
}

// revoke takes the access of an identity away.
func (m *matrix) revoke(t *testing.T, name string) {
	t.Helper()
	var id fsm.IdentityID
	m.machine.Read(func(st *fsm.State, _ uint64) {
		if i := st.IdentityByHash(m.tokens[name+" "+valid].Hash()); i != nil {
			id = i.ID
		}
	})
	m.leader.op(t, &fsm.RevokeIdentity{IDs: []fsm.IdentityID{id}, AtMS: 1500})
}

// wantRevoked checks the status of a call that was open when its caller lost access.
func wantRevoked(t *testing.T, err error) {
	t.Helper()
	wantError(t, err, codes.Unauthenticated, dtaskv1.ErrorReason_ERROR_REASON_REFUSED)
	if !strings.Contains(err.Error(), "was revoked during the call") {
		t.Errorf("got %v, want the reason", err)
	}
}

// A coordinator that waits for the next message of a client must not end the stream as
// CANCELED.
func TestAnUploadWhoseCallerLosesAccessEndsWithTheReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the call is cut off after a second
		m := newMatrix(t)
		m.followAccess(t)
		up, err := m.jobs.Submit(as(t.Context(), "submitter"))
		if err != nil {
			t.Fatal(err)
		}
		h := header("whole")
		h.Namespace = "etl"
		if err := up.Send(numbered(1, request("whole", h, task("t")))); err != nil {
			t.Fatal(err)
		}
		if got, err := up.Recv(); err != nil || got.GetResults()[0].GetStored() == nil {
			t.Fatalf("got %v, %v", got, err)
		}
		part := request("cut off", h, task("t"))
		part.More, part.Total = true, 2
		if err := up.Send(numbered(2, part)); err != nil {
			t.Fatal(err)
		}
		m.revoke(t, "submitter")
		_, err = up.Recv()
		wantRevoked(t, err)
	})
}

var errRevoked = errors.New("the access of ci was revoked during the call")

// heldStream is a stream whose client neither sends nor reads.
type heldStream struct {
	grpc.ServerStream // nil: the tests call only the methods below

	ctx context.Context
}

// heldTransport is what gRPC has of a heldStream. As with that, the first status ends the call.
type heldTransport struct {
	grpc.ServerTransportStream // nil: the tests call only the method below

	end   context.CancelFunc // of the call
	mu    sync.Mutex         // guards what follows
	wrote *status.Status     // the first one; nil: none
	at    time.Time
}

// WriteStatus is that of package transport of gRPC.
func (h *heldTransport) WriteStatus(st *status.Status) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wrote == nil {
		h.wrote, h.at = st, time.Now()
		h.end()
	}
	return nil
}

// heldCall returns a call of an administrator whose access the test may end.
func heldCall(ctx context.Context) (call context.Context, transport *heldTransport, revoke context.CancelCauseFunc) {
	call, end := context.WithCancel(auth.NewContext(ctx, identities["admin"]))
	transport = &heldTransport{end: end}
	call = grpc.NewContextWithServerTransportStream(call, transport)
	access, revoke := context.WithCancelCause(call)
	return auth.WithAccess(call, access), transport, revoke
}

func (s *heldStream) Context() context.Context { return s.ctx }

// RecvMsg returns when the call has ended, as that of gRPC does.
func (s *heldStream) RecvMsg(any) error {
	<-s.ctx.Done()
	return io.ErrUnexpectedEOF
}

func (s *heldStream) SendMsg(any) error { return s.RecvMsg(nil) }

// Neither a client that doesn't read nor one that doesn't send keeps a stream open.
func TestAStreamEndsWithTheReasonAlthoughItsHandlerWaits(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(grpc.ServerStream) error{
		"receiving":         func(s grpc.ServerStream) error { return s.RecvMsg(nil) },
		"sending":           func(s grpc.ServerStream) error { return s.SendMsg(nil) },
		"until access ends": func(s grpc.ServerStream) error { <-s.Context().Done(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := build(t, func(cfg *Config) {
				cfg.Classify = func(err error) *Error {
					if errors.Is(err, errRevoked) {
						return &Error{Kind: KindUnauthenticated, Message: err.Error()}
					}
					return nil
				}
			})
			synctest.Test(t, func(t *testing.T) {
				call, transport, revoke := heldCall(t.Context())
				info := &grpc.StreamServerInfo{FullMethod: dtaskv1.JobService_Submit_FullMethodName, IsClientStream: true}
				time.AfterFunc(time.Minute, func() { revoke(errRevoked) })
				began := time.Now()
				err := r.stream(nil, &heldStream{ctx: call}, info, func(_ any, s grpc.ServerStream) error { return wait(s) })
				wantRevoked(t, err)
				// As gRPC does when the handler has returned.
				if err := transport.WriteStatus(status.Convert(err)); err != nil {
					t.Error(err)
				}
				wantRevoked(t, transport.wrote.Err())
				if took := transport.at.Sub(began); took > time.Minute+lostAccessWait {
					t.Errorf("the stream ended %s after the access", took-time.Minute)
				}
			})
		})
	}
}

// A client that leaves has not lost access.
func TestAStreamWhoseClientLeavesWaitsForItsHandler(t *testing.T) {
	t.Parallel()
	r := build(t)
	synctest.Test(t, func(t *testing.T) {
		call, transport, revoke := heldCall(t.Context())
		defer revoke(nil)
		time.AfterFunc(time.Minute, transport.end)
		left := &heldStream{ctx: call}
		info := &grpc.StreamServerInfo{FullMethod: dtaskv1.JobService_Submit_FullMethodName, IsClientStream: true}
		returned := false
		err := r.stream(nil, left, info, func(_ any, s grpc.ServerStream) error {
			err := s.RecvMsg(nil)
			time.Sleep(time.Hour)
			returned = true
			return err
		})
		if !returned || status.Code(err) == codes.Unauthenticated {
			t.Errorf("returned = %t, %v", returned, err)
		}
	})
}
