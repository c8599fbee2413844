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

// Leader is the sequencer of a term, as sessions use it. Its methods are
// documented there.
type Leader interface {
	Term() uint64
	Ready() <-chan struct{}
	Attach(ctx context.Context, h sequencer.Hello, s sequencer.Session) (sequencer.Welcome, error)
	Detach(id fsm.WorkerID, s sequencer.Session)
	Report(ctx context.Context, id fsm.WorkerID, s sequencer.Session, r *dtaskv1.Reports, leaving bool) error
	TryReport(id fsm.WorkerID, s sequencer.Session, r *dtaskv1.Reports, leaving bool) (accepted bool, err error)
	ReturnUndelivered(ctx context.Context, id fsm.WorkerID, s sequencer.Session, attempts []fsm.AttemptRef) error
	AllowReconnectsUntil(until time.Time)
}

// Config configures a Service.
type Config struct {
	// Current returns the current term, or nil while this replica is not the
	// leader.
	Current func() Leader
	Machine *fsm.Machine
	Logger  *slog.Logger

	HeartbeatInterval time.Duration // between two heartbeats of a worker; default 1 s
	LivenessTimeout   time.Duration // sent to workers; default 3 s
	Lease             time.Duration // sent to workers; default 30 s, at least LivenessTimeout
	AdmissionRate     int           // new sessions per second; default 2000, twice the rate that a new leader's grace period assumes
	HelloTimeout      time.Duration // for the first message; default 5 s

	// Authorize returns what a worker may do that opens a session, by its hello; the
	// context is that of its stream. It is called for every session of a stream, and
	// again when the session is open, so that a grant that is taken meanwhile is missed
	// by no session: see EndSessions. Its error ends the session, and the stream
	// continues. nil: the cluster has no identities.
	Authorize func(ctx context.Context, h *dtaskv1.Hello) (Grant, error)

	// Elected reports whether this replica was elected and its term is about to start.
	// Sessions that are opened meanwhile wait until TermChanged is closed, for a short
	// time. Optional; both are set or none.
	Elected func() bool
	// TermChanged returns a channel that is closed when Current returns another value.
	TermChanged func() <-chan struct{}
	// AwaitSuccessor returns when this replica knows the leader of a later term, or after
	// a short time. Sessions that end with their term wait for it, so that workers learn
	// where to go. Optional.
	AwaitSuccessor func(ctx context.Context, term uint64)

	// Guard runs the opening of a session, and its end, and converts an error or a panic
	// into a gRPC status, as an interceptor does for a call. Optional.
	Guard func(ctx context.Context, call func() error) error
}

// Service is the WorkerService. Safe for concurrent use.
type Service struct {
	dtaskv1.UnimplementedWorkerServiceServer

	cfg   Config
	admit *admission
	terms atomic.Pointer[termFence] // of the last term with a session

	serving atomic.Int64 // sessions whose end was not sent

	mu   sync.Mutex                // guards open
	open map[fsm.WorkerID]*session // the latest session of each worker

	offered atomic.Pointer[offer] // see OfferTrust; nil: nothing
}

// ForeignClusterError is returned to a worker of another cluster; the operator
// must check its --join.
type ForeignClusterError struct {
	ClusterID string // of this coordinator
}

// Error implements error.
func (ForeignClusterError) Error() string { return "session: worker belongs to another cluster" }

// Errors that end a session; package api converts them into statuses.
var (
	// ErrNoHello is returned if the first message is late or not a hello.
	ErrNoHello = errors.New("session: first message must be a hello")
)

// New returns a Service.
func New(cfg Config) *Service {
	setDefault(&cfg.HeartbeatInterval, time.Second)
	setDefault(&cfg.LivenessTimeout, 3*time.Second)
	setDefault(&cfg.Lease, max(30*time.Second, cfg.LivenessTimeout))
	setDefault(&cfg.HelloTimeout, 5*time.Second)
	if cfg.AdmissionRate == 0 {
		cfg.AdmissionRate = 2000
	}
	if cfg.Elected == nil {
		cfg.Elected, cfg.TermChanged = func() bool { return false }, func() <-chan struct{} { return nil }
	}
	if cfg.AwaitSuccessor == nil {
		cfg.AwaitSuccessor = func(context.Context, uint64) {}
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

// Enter decides whether a stream may be opened, before anything is allocated
// for it and without waiting. The context that it returns belongs to the stream
// and holds the turn of its first session.
func (s *Service) Enter(ctx context.Context) (context.Context, error) {
	t, err := s.enter()
	if err != nil {
		return ctx, err
	}
	t.unused = time.AfterFunc(helloGrace, t.end)
	return context.WithValue(ctx, turnKey{}, t), nil
}

// enter returns a turn for a session, or an error with the delay after which to
// retry.
func (s *Service) enter() (*turn, error) {
	leader := s.cfg.Current()
	if leader == nil && !s.cfg.Elected() {
		return nil, sequencer.ErrTermEnded
	}
	t, err := s.admit.enter()
	if busy, ok := errors.AsType[*sequencer.BusyError](err); ok && leader != nil {
		// A rejected worker must not be marked down because it waits.
		leader.AllowReconnectsUntil(time.Now().Add(busy.RetryAfter))
	}
	return t, err
}

// begin opens a session. It returns nil, and why, if the session ended before it was open.
func (s *Service) begin(slot *streamSlot, t *turn) (opened *session, err error) {
	defer t.end()
	ctx := slot.ctx
	if err := t.wait(ctx); err != nil || ctx.Err() != nil {
		return nil, err
	}
	leader, err := s.awaitTerm(ctx)
	if leader == nil {
		return nil, err
	}
	select {
	case <-leader.Ready():
	case <-ctx.Done():
		return nil, nil //nolint:nilnil // the worker is gone
	case <-time.After(s.cfg.HelloTimeout):
		return nil, &sequencer.BusyError{What: "leader is not ready", RetryAfter: 100 * time.Millisecond}
	}
	first, err := slot.awaitHello(s.cfg.HelloTimeout, t)
	if err != nil || first == nil {
		return nil, err
	}
	x := newSession(s, leader, slot)
	h := first.GetHello()
	welcome, err := x.attach(ctx, first)
	if err != nil {
		return nil, err
	}
	defer func() {
		if opened == nil {
			s.detach(x)
		}
	}()
	s.register(ctx, x)
	if _, err := s.authorize(ctx, h); err != nil {
		return nil, err
	}
	s.logOf(x).InfoContext(ctx, "session opened", "slots", h.GetSlots(), "held", len(h.GetHeld()), "term", leader.Term())
	t.end()
	x.welcome(welcome, first.GetHeartbeat())
	x.noteTrust(first.GetTrust())
	x.offerTrust()
	slot.start(x, first)
	return x, nil
}

// close takes an open session out of service after its context has ended, and returns the
// reason.
func (s *Service) close(x *session) error {
	defer s.detach(x)
	ctx := x.slot.ctx
	err := ending(ctx)
	s.logOf(x).InfoContext(ctx, "session ended", "reason", fmt.Sprint(err))
	if errors.Is(err, sequencer.ErrTermEnded) {
		s.cfg.AwaitSuccessor(x.slot.m.stream.Context(), x.leader.Term())
	}
	return err
}

// detach makes a worker one without a session, unless it has another one.
func (s *Service) detach(x *session) {
	s.unregister(x)
	x.leader.Detach(x.worker, x)
}

// logOf returns the log of a session.
func (s *Service) logOf(x *session) *slog.Logger {
	return s.cfg.Logger.With("worker", x.name, "worker_id", uint32(x.worker))
}

// endedPollInterval is how often AwaitEnded counts the sessions.
const endedPollInterval = 2 * time.Millisecond

// AwaitEnded returns when all sessions have ended and their ends are queued, or ctx is
// done. A replica that stops calls it after its term has ended: until then, it must know
// the next leader.
func (s *Service) AwaitEnded(ctx context.Context) {
	poll := time.NewTicker(endedPollInterval)
	defer poll.Stop()
	for s.serving.Load() > 0 {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}

// maxTermWait is how long a session waits for the term of a replica that was elected.
const maxTermWait = 300 * time.Millisecond

// awaitTerm returns the current term; nil outside of one, and then without an error if the
// worker disconnected. Workers that were redirected to this replica arrive within
// milliseconds of its election, before its term has started.
func (s *Service) awaitTerm(ctx context.Context) (Leader, error) {
	timeout := time.NewTimer(maxTermWait)
	defer timeout.Stop()
	for {
		changed := s.cfg.TermChanged() // before Current: a later change is not missed
		if leader := s.cfg.Current(); leader != nil {
			return leader, nil
		}
		if !s.cfg.Elected() {
			return nil, sequencer.ErrTermEnded
		}
		select {
		case <-changed:
		case <-timeout.C:
			return nil, sequencer.ErrTermEnded
		case <-ctx.Done():
			return nil, ending(ctx)
		}
	}
}

// awaitHello waits for the first message; nil without an error if the worker
// disconnected. A worker that doesn't send it within helloGrace no longer
// counts as being admitted.
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
		return sequencer.Welcome{}, ForeignClusterError{ClusterID: x.fence.GetClusterId()}
	}
	if x.deposed(first.GetFence()) {
		return sequencer.Welcome{}, sequencer.ErrTermEnded
	}
	grant, err := x.service.authorize(ctx, h)
	if err != nil {
		return sequencer.Welcome{}, err
	}
	welcome, err := x.leader.Attach(ctx, helloOf(ctx, h, &grant), x)
	x.worker, x.name = welcome.Worker, h.GetName()
	return welcome, err
}

// termFence is the fence of a term's messages. It is immutable.
type termFence struct {
	leader Leader
	fence  *dtaskv1.Fence
}

// fence returns the fence of this term's messages. It reads the state once per
// term: thousands of workers that reconnect must not contend for it.
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

// register makes a session the one of its worker, unless another session has
// replaced it already and ended ctx.
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

// ending returns why a session's context is done; nil if the worker
// disconnected.
func ending(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
