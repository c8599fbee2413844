package client

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A network is a set of fake coordinators by address.
type network struct {
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
}

// dial refuses the connection if no coordinator is at addr.
func (n *network) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Err: net.UnknownNetworkError("connection refused")}
	}
	return l.DialContext(ctx)
}

// A fake is a coordinator whose responses the test defines.
type fake struct {
	dtaskv1.UnimplementedJobServiceServer
	dtaskv1.UnimplementedClusterServiceServer
	dtaskv1.UnimplementedAdminServiceServer
	dtaskv1.UnimplementedAuthServiceServer

	// submit stores a received job.
	submit func(key string, header *dtaskv1.JobHeader, tasks []*dtaskv1.TaskSpec) (*dtaskv1.StoredJob, error)
	// message, if set, sees each message of Submit first. Jobs whose result it
	// returns don't reach submit; an error ends the stream.
	message func(*dtaskv1.SubmitRequest) ([]*dtaskv1.SubmitResult, error)

	getJob func(id string) (*dtaskv1.Job, error)
	watch  func(s grpc.ServerStreamingServer[dtaskv1.WatchJobResponse]) error
	// watchFrom replaces watch for tests that check the request.
	watchFrom func(r *dtaskv1.WatchJobRequest, s grpc.ServerStreamingServer[dtaskv1.WatchJobResponse]) error

	wait func(r *dtaskv1.WaitJobsRequest, s grpc.ServerStreamingServer[dtaskv1.WaitJobsResponse]) error

	list   func(*dtaskv1.ListJobsRequest) (*dtaskv1.ListJobsResponse, error)
	tasks  func(s grpc.ServerStreamingServer[dtaskv1.ListTasksResponse]) error
	logs   func(s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error
	retry  func(*dtaskv1.RetryRequest) (*dtaskv1.RetryResponse, error)
	dead   func(*dtaskv1.ListDeadLettersRequest) (*dtaskv1.ListDeadLettersResponse, error)
	purge  func(*dtaskv1.PurgeDeadLettersRequest) (*dtaskv1.PurgeDeadLettersResponse, error)
	status func() (*dtaskv1.StatusResponse, error)

	schedules dtaskv1.ScheduleServiceServer // optional
	denies    error                         // of Identify
	follows   bool                          // by Identify
	cluster   string                        // that it belongs to; empty: unknown
	frozen    atomic.Bool                   // hangs with open connections
	calls     atomic.Int64                  // of JobService, and jobs that were submitted
	streams   atomic.Int64                  // of Submit
	hang      chan struct{}
}

// serve serves f at addr until the test ends.
func (n *network) serve(t *testing.T, addr string, f *fake) {
	t.Helper()
	n.serveAs(t, addr, f, f)
}

// serveAs serves f with another JobService.
func (n *network) serveAs(t *testing.T, addr string, f *fake, jobs dtaskv1.JobServiceServer) {
	t.Helper()
	t.Cleanup(n.start(addr, f, jobs, f))
}

// start serves f at addr with the given services.
func (n *network) start(addr string, f *fake, jobs dtaskv1.JobServiceServer, admin dtaskv1.AdminServiceServer) (stop func()) {
	l := bufconn.Listen(1 << 20)
	f.hang = make(chan struct{})
	s := grpc.NewServer(grpc.UnaryInterceptor(f.unary), grpc.StreamInterceptor(f.stream))
	dtaskv1.RegisterJobServiceServer(s, jobs)
	dtaskv1.RegisterClusterServiceServer(s, f)
	dtaskv1.RegisterAdminServiceServer(s, admin)
	if f.schedules != nil {
		dtaskv1.RegisterScheduleServiceServer(s, f.schedules)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	n.mu.Lock()
	n.listeners[addr] = l
	n.mu.Unlock()
	return func() { close(f.hang); s.Stop(); <-served }
}

func (f *fake) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	if f.frozen.Load() {
		<-f.hang
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if err := f.check(md, info.FullMethod, func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }); err != nil {
		return nil, err
	}
	if info.FullMethod != dtaskv1.ClusterService_Identify_FullMethodName {
		f.calls.Add(1)
	}
	return h(ctx, req)
}

func (f *fake) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	if f.frozen.Load() {
		<-f.hang
	}
	md, _ := metadata.FromIncomingContext(s.Context())
	if err := f.check(md, info.FullMethod, s.SetHeader); err != nil {
		return err
	}
	if info.FullMethod == dtaskv1.JobService_Submit_FullMethodName {
		f.streams.Add(1) // its jobs are counted
	} else {
		f.calls.Add(1)
	}
	return h(srv, s)
}

func (f *fake) GetJob(_ context.Context, r *dtaskv1.GetJobRequest) (*dtaskv1.Job, error) {
	return f.getJob(r.GetId())
}

func (f *fake) ListJobs(_ context.Context, r *dtaskv1.ListJobsRequest) (*dtaskv1.ListJobsResponse, error) {
	return f.list(r)
}

func (f *fake) WatchJob(r *dtaskv1.WatchJobRequest, s grpc.ServerStreamingServer[dtaskv1.WatchJobResponse]) error {
	if f.watchFrom != nil {
		return f.watchFrom(r, s)
	}
	return f.watch(s)
}

func (f *fake) WaitJobs(r *dtaskv1.WaitJobsRequest, s grpc.ServerStreamingServer[dtaskv1.WaitJobsResponse]) error {
	return f.wait(r, s)
}

func (f *fake) ListTasks(_ *dtaskv1.ListTasksRequest, s grpc.ServerStreamingServer[dtaskv1.ListTasksResponse]) error {
	return f.tasks(s)
}

func (f *fake) Logs(_ *dtaskv1.LogsRequest, s grpc.ServerStreamingServer[dtaskv1.LogsResponse]) error {
	return f.logs(s)
}

func (f *fake) Retry(_ context.Context, r *dtaskv1.RetryRequest) (*dtaskv1.RetryResponse, error) {
	return f.retry(r)
}

func (f *fake) ListDeadLetters(_ context.Context, r *dtaskv1.ListDeadLettersRequest) (*dtaskv1.ListDeadLettersResponse, error) {
	return f.dead(r)
}

func (f *fake) PurgeDeadLetters(_ context.Context, r *dtaskv1.PurgeDeadLettersRequest) (*dtaskv1.PurgeDeadLettersResponse, error) {
	return f.purge(r)
}

func (f *fake) Status(context.Context, *dtaskv1.StatusRequest) (*dtaskv1.StatusResponse, error) {
	return f.status()
}

func (f *fake) Identify(context.Context, *dtaskv1.IdentifyRequest) (*dtaskv1.IdentifyResponse, error) {
	if f.denies != nil {
		return nil, f.denies
	}
	state := "leader"
	if f.follows {
		state = "follower"
	}
	return &dtaskv1.IdentifyResponse{State: state, LeaderId: "n1"}, nil
}

// refusal returns an error as coordinators make it.
func refusal(code codes.Code, message string, d *dtaskv1.ErrorDetail) error {
	st, err := status.New(code, message).WithDetails(d)
	if err != nil {
		return err
	}
	return st.Err()
}

func notLeader(hint string) error {
	return refusal(codes.FailedPrecondition, "not the leader", &dtaskv1.ErrorDetail{
		Reason: dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER, LeaderAddress: hint,
	})
}

// setup returns an empty network and a client, which is closed when the test
// ends.
func setup(t *testing.T, cfg Config) (*network, *Client) {
	t.Helper()
	n := &network{listeners: make(map[string]*bufconn.Listener)}
	cfg.Dial, cfg.Credentials = n.dial, insecure.NewCredentials()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return n, c
}

func oneTask() *dtaskv1.JobSpec {
	return &dtaskv1.JobSpec{
		Header: &dtaskv1.JobHeader{Name: "j", Policies: []*dtaskv1.TaskPolicy{{Type: "noop", TimeoutMs: 1000}}},
		Tasks:  []*dtaskv1.TaskSpec{{Id: "a"}},
	}
}
