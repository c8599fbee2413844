package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Leader is a term of leadership, as sessions use it.
type Leader interface {
	Term() uint64
	Ready() <-chan struct{}
	Attach(ctx context.Context, h sequencer.Hello, s sequencer.Session) (sequencer.Welcome, error)
	Detach(id fsm.WorkerID, s sequencer.Session)
	Report(ctx context.Context, id fsm.WorkerID, s sequencer.Session, r *dtaskv1.Reports, leaving bool) error
	Undelivered(ctx context.Context, id fsm.WorkerID, s sequencer.Session, attempts []fsm.AttemptRef) error
}

// Config is what a Service needs.
type Config struct {
	// Current is the present term, or nil while this replica does not lead.
	Current func() Leader
	Machine *fsm.Machine
	Logger  *slog.Logger

	HeartbeatInterval time.Duration // workers beat this often; default 1 s
	Silence           time.Duration // told to workers; default 3 s
	Lease             time.Duration // told to workers; default 30 s, or Silence if that is longer
	AdmissionRate     int           // new sessions a second; default 1000
	HelloTimeout      time.Duration // for the first message; default 5 s
}

// Service is the WorkerService. Safe for concurrent use.
type Service struct {
	dtaskv1.UnimplementedWorkerServiceServer

	cfg   Config
	admit *rate.Limiter
	mu    sync.Mutex                // guards open
	open  map[fsm.WorkerID]*session // the latest session of each worker
}

// Errors that end a session or refuse one; package api turns them into statuses.
var (
	// ErrForeignCluster refuses a worker that belongs to another cluster.
	ErrForeignCluster = errors.New("session: this worker belongs to another cluster")
	// ErrNoHello ends a stream whose first message is late or not a hello.
	ErrNoHello = errors.New("session: the first message must be a hello")
)

// New makes the service.
func New(cfg Config) *Service {
	setDefault(&cfg.HeartbeatInterval, time.Second)
	setDefault(&cfg.Silence, 3*time.Second)
	setDefault(&cfg.Lease, max(30*time.Second, cfg.Silence))
	setDefault(&cfg.HelloTimeout, 5*time.Second)
	if cfg.AdmissionRate == 0 {
		cfg.AdmissionRate = 1000
	}
	return &Service{
		cfg:   cfg,
		admit: rate.NewLimiter(rate.Limit(cfg.AdmissionRate), max(16, cfg.AdmissionRate/10)),
		open:  make(map[fsm.WorkerID]*session),
	}
}

func setDefault(d *time.Duration, to time.Duration) {
	if *d == 0 {
		*d = to
	}
}

// Session implements dtaskv1.WorkerServiceServer.
func (s *Service) Session(stream dtaskv1.WorkerService_SessionServer) error {
	leader := s.cfg.Current()
	if leader == nil {
		return sequencer.ErrTermOver
	}
	if !s.admit.Allow() {
		wait := 50*time.Millisecond + rand.N(500*time.Millisecond) //nolint:gosec // spreads reconnects, guards nothing
		return &sequencer.BusyError{What: "many workers come back at once", RetryAfter: wait}
	}
	return s.serve(stream, leader)
}

// serve is one session.
func (s *Service) serve(stream dtaskv1.WorkerService_SessionServer, leader Leader) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	select {
	case <-leader.Ready():
	case <-ctx.Done():
		return nil
	case <-time.After(s.cfg.HelloTimeout):
		return &sequencer.BusyError{What: "the leader is not ready yet", RetryAfter: 100 * time.Millisecond}
	}
	x := newSession(s, leader, stream, cancel)
	go x.pumpIn(ctx) // ends when this handler has returned: see the package comment

	var hello *dtaskv1.SessionRequest
	select {
	case hello = <-x.hello:
	case <-ctx.Done():
		return ending(ctx)
	case <-time.After(s.cfg.HelloTimeout):
		return ErrNoHello
	}
	return s.attached(ctx, x, hello)
}

func (s *Service) attached(ctx context.Context, x *session, first *dtaskv1.SessionRequest) error {
	h := first.GetHello()
	if h.GetName() == "" || h.GetIncarnation() == "" {
		return ErrNoHello
	}
	x.fence = s.fence(x.leader)
	if id := first.GetFence().GetClusterId(); id != "" && id != x.fence.GetClusterId() {
		return ErrForeignCluster
	}
	if x.deposed(first.GetFence()) {
		return sequencer.ErrTermOver
	}
	welcome, err := x.leader.Attach(ctx, helloOf(h), x)
	if err != nil {
		return err
	}
	x.worker = welcome.Worker
	s.register(ctx, x)
	defer func() {
		s.unregister(x)
		x.leader.Detach(x.worker, x)
	}()
	s.cfg.Logger.InfoContext(ctx, "session opened", "worker", h.GetName(), "worker_id", uint32(x.worker), "slots", h.GetSlots(),
		"held", len(h.GetHeld()), "term", x.leader.Term())
	x.welcome(welcome, first.GetBeat())
	close(x.begun)
	err = x.send(ctx)
	s.cfg.Logger.InfoContext(ctx, "session ended", "worker", h.GetName(), "worker_id", uint32(x.worker), "reason", fmt.Sprint(err))
	return err
}

// fence is what this term's messages carry.
func (s *Service) fence(leader Leader) *dtaskv1.Fence {
	f := &dtaskv1.Fence{Term: leader.Term()}
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		f.ClusterId, f.Epoch = st.ClusterID(), st.Epoch()
	})
	return f
}

// register makes a session the one of its worker, unless another one has taken
// its place already, which ended ctx.
func (s *Service) register(ctx context.Context, x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		s.open[x.worker] = x
	}
}

func (s *Service) unregister(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[x.worker] == x {
		delete(s.open, x.worker)
	}
}

func (s *Service) session(id fsm.WorkerID) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[id]
}

// ending is why a session's context is done; nil if the worker went away.
func ending(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func helloOf(h *dtaskv1.Hello) sequencer.Hello {
	out := sequencer.Hello{
		Name: h.GetName(), Incarnation: h.GetIncarnation(), Slots: min(h.GetSlots(), 65535),
		Version: h.GetVersion(), Address: h.GetAddress(),
		Labels: labels(h.GetLabels()), Resources: resources(h.GetResources()),
	}
	for _, a := range h.GetHeld() {
		out.Held = append(out.Held, sequencer.AttemptOf(a))
	}
	for _, a := range h.GetEnded() {
		out.Ended = append(out.Ended, sequencer.AttemptOf(a))
	}
	return out
}
