package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

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
	TryReport(id fsm.WorkerID, s sequencer.Session, r *dtaskv1.Reports, leaving bool) (taken bool, err error)
	ReturnUndelivered(ctx context.Context, id fsm.WorkerID, s sequencer.Session, attempts []fsm.AttemptRef) error
	AllowReconnectsUntil(until time.Time)
}

// Config is what a Service needs.
type Config struct {
	// Current is the present term, or nil while this replica does not lead.
	Current func() Leader
	Machine *fsm.Machine
	Logger  *slog.Logger

	HeartbeatInterval time.Duration // workers beat this often; default 1 s
	LivenessTimeout   time.Duration // told to workers; default 3 s
	Lease             time.Duration // told to workers; default 30 s, or Silence if that is longer
	AdmissionRate     int           // new sessions a second; default 2000, twice what a new leader's patience counts on
	HelloTimeout      time.Duration // for the first message; default 5 s

	// Guard makes the status that the caller sees of what call returns, or of its
	// panic: what is around a call of gRPC is around each session of a carrier.
	// Optional.
	Guard func(ctx context.Context, call func() error) error
}

// Service is the WorkerService. Safe for concurrent use.
type Service struct {
	dtaskv1.UnimplementedWorkerServiceServer

	cfg   Config
	admit *admission
	terms atomic.Pointer[termFence] // of the latest term that had a session
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
	setDefault(&cfg.LivenessTimeout, 3*time.Second)
	setDefault(&cfg.Lease, max(30*time.Second, cfg.LivenessTimeout))
	setDefault(&cfg.HelloTimeout, 5*time.Second)
	if cfg.AdmissionRate == 0 {
		cfg.AdmissionRate = 2000
	}
	if cfg.Guard == nil {
		cfg.Guard = func(_ context.Context, call func() error) error { return call() }
	}
	return &Service{
		cfg:   cfg,
		admit: newAdmission(cfg.AdmissionRate),
		open:  make(map[fsm.WorkerID]*session),
	}
}

func setDefault(d *time.Duration, to time.Duration) {
	if *d == 0 {
		*d = to
	}
}

// Enter decides whether a stream may be opened, before anything is allocated for it and
// without waiting. The context that it returns belongs to the stream and holds the turn of
// its first session.
func (s *Service) Enter(ctx context.Context) (context.Context, error) {
	t, err := s.enter()
	if err != nil {
		return ctx, err
	}
	t.unused = time.AfterFunc(helloGrace, t.end)
	return context.WithValue(ctx, turnKey{}, t), nil
}

// enter returns a turn for a session, or an error with the delay after which to retry.
func (s *Service) enter() (*turn, error) {
	leader := s.cfg.Current()
	if leader == nil {
		return nil, sequencer.ErrTermEnded
	}
	t, err := s.admit.enter()
	if busy, ok := errors.AsType[*sequencer.BusyError](err); ok {
		// A worker that was told to wait must not be marked down because it waits.
		leader.AllowReconnectsUntil(time.Now().Add(busy.RetryAfter))
	}
	return t, err
}

// serve runs one session until it ends, and returns the reason.
func (s *Service) serve(slot *streamSlot, t *turn) error {
	defer t.end()
	ctx := slot.ctx
	if err := t.wait(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	leader := s.cfg.Current()
	if leader == nil {
		return sequencer.ErrTermEnded
	}
	select {
	case <-leader.Ready():
	case <-ctx.Done():
		return nil
	case <-time.After(s.cfg.HelloTimeout):
		return &sequencer.BusyError{What: "the leader is not ready yet", RetryAfter: 100 * time.Millisecond}
	}
	first, err := slot.awaitHello(s.cfg.HelloTimeout, t)
	if err != nil || first == nil {
		return err
	}
	x := newSession(s, leader, slot)
	h := first.GetHello()
	welcome, err := x.attach(ctx, first)
	if err != nil {
		return err
	}
	defer func() {
		s.unregister(x)
		leader.Detach(x.worker, x)
	}()
	s.register(ctx, x)
	log := s.cfg.Logger.With("worker", h.GetName(), "worker_id", uint32(x.worker))
	log.InfoContext(ctx, "session opened", "slots", h.GetSlots(), "held", len(h.GetHeld()), "term", leader.Term())
	t.end()
	x.welcome(welcome, first.GetHeartbeat())
	slot.start(x, first)
	<-ctx.Done()
	err = ending(ctx)
	log.InfoContext(ctx, "session ended", "reason", fmt.Sprint(err))
	return err
}

// awaitHello waits for the first message; nil without an error if the worker disconnected.
// A worker that doesn't send it within helloGrace no longer counts as being admitted.
func (s *streamSlot) awaitHello(limit time.Duration, t *turn) (*dtaskv1.SessionRequest, error) {
	grace := time.AfterFunc(helloGrace, t.end)
	defer grace.Stop()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case hello := <-s.hello:
		return hello, nil
	case <-s.ctx.Done():
		return nil, ending(s.ctx)
	case <-timer.C:
		return nil, ErrNoHello
	}
}

// attach checks the first message and attaches the worker to the leader.
func (x *session) attach(ctx context.Context, first *dtaskv1.SessionRequest) (sequencer.Welcome, error) {
	h := first.GetHello()
	if h.GetName() == "" || h.GetIncarnation() == "" {
		return sequencer.Welcome{}, ErrNoHello
	}
	x.fence = x.service.fence(x.leader)
	if id := first.GetFence().GetClusterId(); id != "" && id != x.fence.GetClusterId() {
		return sequencer.Welcome{}, ErrForeignCluster
	}
	if x.deposed(first.GetFence()) {
		return sequencer.Welcome{}, sequencer.ErrTermEnded
	}
	welcome, err := x.leader.Attach(ctx, helloOf(h), x)
	x.worker = welcome.Worker
	return welcome, err
}

// termFence is what the messages of a term carry; nothing in it changes while
// the term lasts.
type termFence struct {
	leader Leader
	fence  *dtaskv1.Fence
}

// fence is what this term's messages carry. It is read from the state once: when
// thousands of workers come back they must not queue up before it.
func (s *Service) fence(leader Leader) *dtaskv1.Fence {
	if known := s.terms.Load(); known != nil && known.leader == leader {
		return known.fence
	}
	f := &dtaskv1.Fence{Term: leader.Term()}
	s.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		f.ClusterId, f.Epoch = st.ClusterID(), st.Epoch()
	})
	s.terms.Store(&termFence{leader: leader, fence: f})
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
		Name: h.GetName(), Incarnation: h.GetIncarnation(), Slots: min(h.GetSlots(), 65535), Prefetch: min(h.GetPrefetch(), 65535),
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
