package cli

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// noon is the current time of all scripts.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) int64 { return noon.Add(-d).UnixMilli() }

// A fakeJob is a job with its tasks and results.
type fakeJob struct {
	job     *dtaskv1.Job
	tasks   []*dtaskv1.Task
	results []*dtaskv1.TaskResult
	spec    *dtaskv1.JobPart                                                                   // as submitted; nil = the header has only the name
	output  func(*dtaskv1.LogsRequest, grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error // nil = the usual
}

// A fakeLeader is a coordinator with four jobs. Submitted jobs complete immediately,
// unless their name is fails, hopeless, dies or slow.
type fakeLeader struct {
	dtaskv1.UnimplementedJobServiceServer
	dtaskv1.UnimplementedClusterServiceServer
	dtaskv1.UnimplementedAdminServiceServer
	dtaskv1.UnimplementedAuthServiceServer
	dtaskv1.UnimplementedScheduleServiceServer
	dtaskv1.UnimplementedQueueServiceServer
	dtaskv1.UnimplementedLimitServiceServer

	addr string
	mu   sync.Mutex // guards the fields below
	jobs map[string]*fakeJob
	keys map[string][2]string // idempotency key → job ID, digest
	last int
	runs uint64

	loads int64 // calls of Load

	auditHeads  []*dtaskv1.AuditHead
	clusterName string

	fakeDrain
	fakeBackup
	fakeBench
	fakeUpgrade
	fakeAccess
	fakeSchedules
	fakeQueues
	fakeLimits
}

// A fakeFollower redirects every call to the leader, except Status and Identify.
type fakeFollower struct {
	dtaskv1.UnimplementedClusterServiceServer

	leader string
}

// serve serves a leader on a loopback port until done is called.
func (f *fakeLeader) serve() (addr string, done func(), err error) {
	s := grpc.NewServer(announcing(fakeCluster)...)
	dtaskv1.RegisterJobServiceServer(s, f)
	dtaskv1.RegisterClusterServiceServer(s, f)
	dtaskv1.RegisterAdminServiceServer(s, f)
	dtaskv1.RegisterAuthServiceServer(s, f)
	dtaskv1.RegisterScheduleServiceServer(s, f)
	dtaskv1.RegisterQueueServiceServer(s, f)
	dtaskv1.RegisterLimitServiceServer(s, f)
	return listenAndServe(s)
}

// serve serves a follower on a loopback port until done is called.
func (f *fakeFollower) serve() (addr string, done func(), err error) {
	s := grpc.NewServer(grpc.UnknownServiceHandler(f.redirect))
	dtaskv1.RegisterClusterServiceServer(s, f)
	return listenAndServe(s)
}

// serveForeign serves a coordinator of another cluster, which refuses nothing, until
// done is called.
func serveForeign() (addr string, done func(), err error) {
	s := grpc.NewServer(announcing(foreignCluster)...)
	leader := newFakeLeader()
	leader.foreign = true
	dtaskv1.RegisterJobServiceServer(s, leader)
	dtaskv1.RegisterClusterServiceServer(s, leader)
	dtaskv1.RegisterAdminServiceServer(s, leader)
	return listenAndServe(s)
}

// announcing returns the options of a server that announces its cluster.
func announcing(cluster string) []grpc.ServerOption {
	md := metadata.Pairs("dtask-cluster-id", cluster)
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := grpc.SetHeader(ctx, md); err != nil {
				return nil, err
			}
			return handle(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := s.SetHeader(md); err != nil {
				return err
			}
			return handle(srv, s)
		}),
	}
}

const (
	fakeCluster    = "0123456789abcdef0123456789abcdef"
	foreignCluster = "ffffffffffffffffffffffffffffffff"
)

func listenAndServe(s *grpc.Server) (addr string, done func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	return l.Addr().String(), func() { s.Stop(); <-served }, nil
}

func refusal(code codes.Code, reason dtaskv1.ErrorReason, message string, faults ...string) error {
	return withDetail(code, message, &dtaskv1.ErrorDetail{Reason: reason, Faults: faults})
}

// busy is the refusal of a cluster that is overloaded. It asks for a longer delay than the
// scripts wait, so that they see the answer to one call, however slow this machine is.
func busy(message string) error {
	return withDetail(codes.ResourceExhausted, message, &dtaskv1.ErrorDetail{Reason: dtaskv1.ErrorReason_ERROR_REASON_BUSY, RetryAfterMs: 5000})
}

func withDetail(code codes.Code, message string, d *dtaskv1.ErrorDetail) error {
	st, err := status.New(code, message).WithDetails(d)
	if err != nil {
		return err
	}
	return st.Err()
}

// closedPort returns an address that refuses connections until the test ends. Its
// port stays bound, without a listener: a port that is given back may become that
// of another test's server.
func closedPort(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	bound, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatalf("got the address %T, want one of IPv4", name)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(bound.Port))
}

// fields splits a command line of a script into arguments and standard input.
func fields(args []string) (rest []string, stdin string) {
	for _, a := range args {
		if s, ok := strings.CutPrefix(a, "<"); ok {
			stdin = s
			continue
		}
		rest = append(rest, a)
	}
	return rest, stdin
}
