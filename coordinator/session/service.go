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
	Silence           time.Duration // told to workers; default 3 s
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
	setDefault(&cfg.Silence, 3*time.Second)
	setDefault(&cfg.Lease, max(30*time.Second, cfg.Silence))
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

// Enter decides about a stream of Session before it is made, and without waiting:
// what is refused here has cost next to nothing. The context that it gives is that
// of the stream. Without Enter, Session decides itself.
func (s *Service) Enter(ctx context.Context) (context.Context, error) {
	leader := s.cfg.Current()
	if leader == nil {
		return ctx, sequencer.ErrTermEnded
	}
	entered, err := s.admit.enter(ctx)
	return entered, heldOff(leader, err)
}

// heldOff tells the leader that a worker was told to come later, which is no
// reason to give it up.
func heldOff(leader Leader, err error) error {
	if busy, ok := errors.AsType[*sequencer.BusyError](err); ok {
		leader.AllowReconnectsUntil(time.Now().Add(busy.RetryAfter))
	}
	return err
}

// Session implements dtaskv1.WorkerServiceServer.
func (s *Service) Session(stream dtaskv1.WorkerService_SessionServer) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	return s.serve(ctx, func(leader Leader) *session {
		x := newSession(s, leader, stream.Context().Done(), cancel)
		x.stream = stream
		go x.pumpIn(ctx) // ends when this handler has returned: see the package comment
		return x
	})
}

// serve is one session. begin makes it, once its leader is ready.
func (s *Service) serve(ctx context.Context, begin func(Leader) *session) error {
	leader := s.cfg.Current()
	if leader == nil {
		return sequencer.ErrTermEnded
	}
	p, err := s.admit.admit(ctx)
	if err != nil {
		return heldOff(leader, err)
	}
	defer p.over()
	select {
	case <-leader.Ready():
	case <-ctx.Done():
		return nil
	case <-time.After(s.cfg.HelloTimeout):
		return &sequencer.BusyError{What: "the leader is not ready yet", RetryAfter: 100 * time.Millisecond}
	}
	x := begin(leader)
	hello, err := x.awaitHello(ctx, p)
	if err != nil || hello == nil {
		return err
	}
	return s.attached(ctx, x, hello, p)
}

// awaitHello waits for the first message; nil without an error if the worker went
// away. One that does not say it soon is in nobody's way meanwhile.
func (x *session) awaitHello(ctx context.Context, p *pass) (*dtaskv1.SessionRequest, error) {
	limit := x.service.cfg.HelloTimeout
	timer := time.NewTimer(min(helloSoon, limit))
	defer timer.Stop()
	for waited := min(helloSoon, limit); ; waited = limit {
		select {
		case hello := <-x.hello:
			return hello, nil
		case <-ctx.Done():
			return nil, ending(ctx)
		case <-timer.C:
		}
		p.over()
		if waited == limit {
			return nil, ErrNoHello
		}
		timer.Reset(limit - waited)
	}
}

func (s *Service) attached(ctx context.Context, x *session, first *dtaskv1.SessionRequest, p *pass) error {
	h := first.GetHello()
	if h.GetName() == "" || h.GetIncarnation() == "" {
		return ErrNoHello
	}
	x.fence = s.fence(x.leader)
	if id := first.GetFence().GetClusterId(); id != "" && id != x.fence.GetClusterId() {
		return ErrForeignCluster
	}
	if x.deposed(first.GetFence()) {
		return sequencer.ErrTermEnded
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
	p.over()
	if x.lane == nil {
		err = x.send(ctx)
	} else {
		err = x.carried(ctx, first)
	}
	s.cfg.Logger.InfoContext(ctx, "session ended", "worker", h.GetName(), "worker_id", uint32(x.worker), "reason", fmt.Sprint(err))
	return err
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
