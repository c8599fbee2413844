package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// maxReceive bounds one message of any service; maxMessage one of a
	// submission.
	maxReceive = 4 << 20
	maxMessage = 1 << 20
	// window is how much of a stream or a connection may be on its way. With a fixed one gRPC does
	// not measure what the network holds, by a ping for each message that comes: two more messages
	// for each report of a worker.
	window = 1 << 20
	// maxStreams bounds the calls of one connection: the sessions of many
	// workers may share one.
	maxStreams = 20_000
	// maxBehind is how many entries a replica that is ready may have in its log
	// and not yet applied.
	maxBehind = 100_000
	// maxSilence is for how long a ready follower may not have heard its leader.
	maxSilence = 5 * time.Second
)

// Server is the gRPC server of a replica. Its methods are safe for concurrent
// use.
type Server struct {
	cfg     Config
	grpc    *grpc.Server
	health  *health.Server
	started time.Time
	uploads *semaphore.Weighted // bytes of submissions that are being received
	waits   *semaphore.Weighted // jobs that calls of WaitJobs wait for
	limit   *submitLimit

	leaderWaits *semaphore.Weighted // calls that wait for a leader

	refused         refusals
	aggregatedCache aggregatedCache

	stopping chan struct{} // closed by Serve when streams should end
	stop     sync.Once
}

// NewServer makes a server with JobService, AdminService and the standard
// health service. Others are added with RegisterService before Serve.
func NewServer(cfg Config) (*Server, error) {
	cfg.Defaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, health: health.NewServer(), started: time.Now(),
		uploads: semaphore.NewWeighted(cfg.UploadBytes), waits: semaphore.NewWeighted(maxWaits), limit: newSubmitLimit(cfg.SubmitRate, cfg.SubmitBurst),
		leaderWaits: semaphore.NewWeighted(maxLeaderWaits), stopping: make(chan struct{}),
	}
	s.grpc = grpc.NewServer(append([]grpc.ServerOption{
		grpc.ChainUnaryInterceptor(s.unary),
		grpc.ChainStreamInterceptor(s.stream),
		grpc.MaxRecvMsgSize(maxReceive),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.InTapHandle(s.enter),
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.WaitForHandlers(true),
		// Clients that ping more often are cut off; a connection whose other
		// end is gone without a word is found out.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: 5 * time.Minute}),
	}, cfg.Options...)...)
	dtaskv1.RegisterJobServiceServer(s.grpc, &jobs{Server: s})
	dtaskv1.RegisterAdminServiceServer(s.grpc, &admin{Server: s})
	healthv1.RegisterHealthServer(s.grpc, s.health)
	return s, nil
}

// RegisterService adds a service: Server is a grpc.ServiceRegistrar. Errors of
// its handlers go through the same table. Not after Serve.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	s.grpc.RegisterService(desc, impl)
}

// Serve answers calls on l until ctx is done or l fails, and closes l. Watches
// and logs are ended then; other calls have Config.StopLimit to end. All that
// it started has ended when it returns. It is called once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	failed := make(chan error, 1) // size 1: Serve may end after the select
	go func() { failed <- s.grpc.Serve(l) }()
	var err error
	select {
	case <-ctx.Done():
		s.shutDown()
		err = <-failed
	case err = <-failed:
		s.shutDown()
	}
	// Whoever shares the port may close it first when ctx is done.
	closed := ctx.Err() != nil && errors.Is(err, net.ErrClosed)
	if err != nil && !closed && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving gRPC: %w", err)
	}
	return nil
}

func (s *Server) shutDown() {
	s.health.Shutdown()
	s.stop.Do(func() { close(s.stopping) })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.grpc.GracefulStop()
	}()
	limit := time.NewTimer(s.cfg.StopLimit)
	defer limit.Stop()
	select {
	case <-ended:
	case <-limit.C:
		s.grpc.Stop()
		<-ended
	}
}

// Ready gives all reasons why this replica should get no calls now, joined; nil
// if there are none.
func (s *Server) Ready() error {
	raft := s.cfg.Raft()
	if raft == nil {
		return errors.New("consensus does not run yet")
	}
	var errs []error
	state := raft.State()
	if state == "shutdown" {
		errs = append(errs, errors.New("consensus has stopped"))
	}
	if id, _ := raft.Leader(); id == "" {
		errs = append(errs, errors.New("no leader is known"))
	}
	if applied, last := s.cfg.Machine.Index(), raft.LastIndex(); last > applied+maxBehind {
		errs = append(errs, fmt.Errorf("%d log entries are not applied yet", last-applied))
	}
	if heard := raft.LastContact(); state == "follower" && time.Since(heard) > maxSilence {
		errs = append(errs, fmt.Errorf("the leader was not heard for more than %s", maxSilence))
	}
	return errors.Join(errs...)
}

var _ grpc.ServiceRegistrar = (*Server)(nil)
