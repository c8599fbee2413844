package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxReceive bounds one message of any service; maxMessage one of a submission.
	maxReceive = 4 << 20
	maxMessage = 1 << 20
	// window bounds what is in flight on a stream or a connection. With a fixed
	// window gRPC does not measure the bandwidth, which would cost a ping for each
	// message that arrives: two more messages for each report of a worker.
	window = 1 << 20
	// readBuffer is the buffer of a connection, in bytes. Longer frames are read past it.
	readBuffer = 2 << 10
	// maxStreams bounds the calls of one connection, which the sessions of many workers
	// may share.
	maxStreams = 20_000
	// maxMetadata bounds the metadata of a call, in bytes: they are decoded before anyone
	// is authenticated. Clients send less than 1 KiB.
	maxMetadata = 64 << 10
	// maxUnapplied bounds the log entries that a ready replica has not applied yet.
	maxUnapplied = 100_000
	// maxContactAge bounds the age of a ready follower's last contact with its leader.
	maxContactAge = 5 * time.Second
)

// Server is the gRPC server of a replica. Its methods are safe for concurrent use.
type Server struct {
	cfg     Config
	grpc    *grpc.Server
	health  *health.Server
	started time.Time
	uploads *semaphore.Weighted // bytes of submissions that are being received
	waits   *semaphore.Weighted // jobs that calls of WaitJobs wait for
	limit   *rateLimits

	leaderWaits *semaphore.Weighted // calls that wait for a leader
	backups     *semaphore.Weighted // backups that are being written: one
	sizings     *semaphore.Weighted // calls that measure the state: one
	debugging   *semaphore.Weighted // calls of Debug: one
	explains    *semaphore.Weighted // calls of Explain, which copy a part of the leader's scheduler
	plans       *semaphore.Weighted // calls of Plan, which take much of a processor: one
	planQueue   *semaphore.Weighted // those and the calls of Plan that wait

	header          atomic.Pointer[responseHeader] // see clusterHeader
	refused         busyCounts
	denials         denialCounts
	aggregatedCache aggregatedCache
	levelsCache     levelsCache
	runTimes        runTimeCache

	streams  sync.WaitGroup // goroutines of streams, which end with their call
	stopping chan struct{}  // closed by Serve when streams should end
	stop     sync.Once

	// notHandedOver is the path of the last backup of the schedule, if it was not handed
	// over; guarded by backups.
	notHandedOver string
}

// NewServer creates a server with JobService, ScheduleService, AdminService and the
// standard health service. RegisterService adds others before Serve.
func NewServer(cfg Config) (*Server, error) {
	cfg.Defaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, health: health.NewServer(), started: time.Now(),
		uploads: semaphore.NewWeighted(cfg.UploadBytes), waits: semaphore.NewWeighted(maxWaits), limit: newRateLimits(cfg.SubmitRate, cfg.SubmitBurst),
		leaderWaits: semaphore.NewWeighted(maxLeaderWaits), backups: semaphore.NewWeighted(1), sizings: semaphore.NewWeighted(1), debugging: semaphore.NewWeighted(1), explains: semaphore.NewWeighted(maxExplains), plans: semaphore.NewWeighted(maxPlans), planQueue: semaphore.NewWeighted(maxPlanCalls), stopping: make(chan struct{}),
	}
	s.grpc = grpc.NewServer(append([]grpc.ServerOption{
		grpc.ChainUnaryInterceptor(s.clusterUnary, s.unary),
		grpc.ChainStreamInterceptor(s.clusterStream, s.stream),
		grpc.MaxRecvMsgSize(maxReceive),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
		// Most connections are idle: thousands of workers must not hold the usual 64 KB each.
		grpc.ReadBufferSize(readBuffer),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxMetadata),
		grpc.InTapHandle(s.enter),
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.WaitForHandlers(true),
		// Clients that ping more often are disconnected; pings find connections whose
		// other end has vanished.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: 5 * time.Minute}),
	}, cfg.Options...)...)
	dtaskv1.RegisterJobServiceServer(s.grpc, &jobs{Server: s})
	dtaskv1.RegisterAdminServiceServer(s.grpc, &admin{Server: s})
	dtaskv1.RegisterScheduleServiceServer(s.grpc, &schedules{Server: s})
	dtaskv1.RegisterQueueServiceServer(s.grpc, &queues{Server: s})
	dtaskv1.RegisterLimitServiceServer(s.grpc, &limits{Server: s})
	healthv1.RegisterHealthServer(s.grpc, s.health)
	return s, nil
}

// RegisterService implements grpc.ServiceRegistrar. Errors of the service's handlers
// get a status like those of this package. It must not be called after Serve.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	s.grpc.RegisterService(desc, impl)
}

// Serve serves calls on l until ctx is done or l fails, and closes l. Then it ends
// watches and logs, and gives other calls Config.StopTimeout to end. All goroutines
// that it started have ended when it returns. It is called once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	failed := make(chan error, 1) // size 1: grpc's Serve may end after the select
	go func() { failed <- s.grpc.Serve(l) }()
	var err error
	select {
	case <-ctx.Done():
		s.shutDown()
		err = <-failed
	case err = <-failed:
		s.shutDown()
	}
	// The owner of a shared port may close it first when ctx is done.
	closed := ctx.Err() != nil && errors.Is(err, net.ErrClosed)
	if err != nil && !closed && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving gRPC: %w", err)
	}
	return nil
}

// ServeAlso serves calls on another listener until ctx is done, and closes it. The calls
// end with those of Serve.
func (s *Server) ServeAlso(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Serve reports what matters
	defer stop()
	err := s.grpc.Serve(l)
	if ctx.Err() != nil || err == nil || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("serving gRPC: %w", err)
}

// shutDown ends streams, gives other calls StopTimeout to end, and then cancels them.
func (s *Server) shutDown() {
	s.health.Shutdown()
	s.stop.Do(func() { close(s.stopping) })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.grpc.GracefulStop()
	}()
	limit := time.NewTimer(s.cfg.StopTimeout)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
		s.grpc.Stop()
		<-ended
	}
	s.streams.Wait()
}

// Ready returns all reasons why this replica should get no calls now, joined; nil if
// there is no reason.
func (s *Server) Ready() error {
	raft := s.cfg.Raft()
	if raft == nil {
		return errors.New("raft is not running yet")
	}
	var errs []error
	state := raft.State()
	if state == "shutdown" {
		errs = append(errs, errors.New("raft has stopped"))
	}
	if id, _ := raft.Leader(); id == "" {
		errs = append(errs, errors.New("no leader known"))
	}
	if applied, last := s.cfg.Machine.Index(), raft.LastIndex(); last > applied+maxUnapplied {
		errs = append(errs, fmt.Errorf("%d log entries not applied yet", last-applied))
	}
	if contact := raft.LastContact(); state == "follower" && time.Since(contact) > maxContactAge {
		errs = append(errs, fmt.Errorf("no contact with the leader for more than %s", maxContactAge))
	}
	return errors.Join(errs...)
}

var _ grpc.ServiceRegistrar = (*Server)(nil)
