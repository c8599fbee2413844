package client

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A recorder keeps what a server received: the authorization header of each call, and the
// requests to AuthService.
type recorder struct {
	dtaskv1.UnimplementedAuthServiceServer

	refuse error // of all calls

	mu       sync.Mutex // guards the rest
	headers  []string
	requests []any
}

func (r *recorder) record(ctx context.Context, req any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	md, _ := metadata.FromIncomingContext(ctx)
	r.headers = append(r.headers, md.Get("authorization")...)
	r.requests = append(r.requests, req)
	return r.refuse
}

func (r *recorder) WhoAmI(context.Context, *dtaskv1.WhoAmIRequest) (*dtaskv1.WhoAmIResponse, error) {
	return &dtaskv1.WhoAmIResponse{Name: "ci"}, nil
}

func (r *recorder) CreateToken(_ context.Context, q *dtaskv1.CreateTokenRequest) (*dtaskv1.CreateTokenResponse, error) {
	return &dtaskv1.CreateTokenResponse{Identity: &dtaskv1.Identity{Id: 7, Name: q.GetName()}}, nil
}

func (r *recorder) RotateToken(_ context.Context, q *dtaskv1.RotateTokenRequest) (*dtaskv1.RotateTokenResponse, error) {
	return &dtaskv1.RotateTokenResponse{Identity: &dtaskv1.Identity{Id: q.GetId()}}, nil
}

func (r *recorder) CreateJoinToken(_ context.Context, q *dtaskv1.CreateJoinTokenRequest) (*dtaskv1.CreateJoinTokenResponse, error) {
	return &dtaskv1.CreateJoinTokenResponse{
		JoinToken: &dtaskv1.JoinToken{Id: 5, Purpose: q.GetPurpose()}, ClusterId: testCluster,
		CaKeyHash: make([]byte, 32), Addresses: []string{"m1:7460", "m2:7460"},
	}, nil
}

// all returns what was received.
func (r *recorder) all() (headers []string, requests []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.headers, r.requests
}

const testCluster = "0123456789abcdef0123456789abcdef"

// serveListener serves a fake on a listener until the test ends. rec may be nil.
func serveListener(t *testing.T, l net.Listener, creds credentials.TransportCredentials, f *fake, rec *recorder) {
	t.Helper()
	if rec == nil {
		rec = new(recorder)
	}
	serveAuth(t, l, creds, f, rec)
}

// authServer is an AuthService that sees all calls.
type authServer interface {
	dtaskv1.AuthServiceServer
	record(ctx context.Context, req any) error
}

// serveAuth is serveListener with another AuthService.
func serveAuth(t *testing.T, l net.Listener, creds credentials.TransportCredentials, f *fake, rec authServer) {
	t.Helper()
	opts := []grpc.ServerOption{grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		if err := rec.record(ctx, req); err != nil {
			return nil, err
		}
		return f.unary(ctx, req, info, h)
	}), grpc.StreamInterceptor(f.stream)}
	if creds != nil {
		opts = append(opts, grpc.Creds(creds))
	}
	f.hang = make(chan struct{})
	s := grpc.NewServer(opts...)
	dtaskv1.RegisterJobServiceServer(s, f)
	dtaskv1.RegisterClusterServiceServer(s, f)
	dtaskv1.RegisterAdminServiceServer(s, f)
	dtaskv1.RegisterAuthServiceServer(s, rec)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	t.Cleanup(func() { close(f.hang); s.Stop(); <-served })
}

// listen listens at an address of this machine.
func listen(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serveTCP serves a fake on a loopback port and returns its address.
func serveTCP(t *testing.T, creds credentials.TransportCredentials, f *fake) string {
	t.Helper()
	l := listen(t, "tcp", "127.0.0.1:0")
	serveListener(t, l, creds, f, nil)
	return l.Addr().String()
}

// serveRecorder is serveTCP for a server that records calls.
func serveRecorder(t *testing.T, creds credentials.TransportCredentials, rec *recorder) string {
	t.Helper()
	l := listen(t, "tcp", "127.0.0.1:0")
	serveListener(t, l, creds, new(fake), rec)
	return l.Addr().String()
}

// newClient returns a client, which is closed when the test ends.
func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// refused is the refusal of a caller as coordinators make it.
func refused(code codes.Code, message string) error {
	return refusal(code, message, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_REFUSED})
}
