package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// session is one stream. It implements sequencer.Session.
type session struct {
	service *Service
	leader  Leader
	stream  dtaskv1.WorkerService_SessionServer
	cancel  context.CancelCauseFunc
	fence   *dtaskv1.Fence
	worker  fsm.WorkerID // known once it is attached

	hello chan *dtaskv1.SessionRequest // size 1: the first message
	begun chan struct{}                // closed once the worker is attached

	heard atomic.Int64 // ns since started
	busy  atomic.Bool  // a report waits for room: the worker is not silent, we are slow

	mu      sync.Mutex // guards the rest
	pending sequencer.Outgoing
	greet   *dtaskv1.Welcome
	beat    uint64 // to be answered; 0 = none
	logs    []*dtaskv1.LogRequest
	readers map[uint64]*logReader
	lastLog uint64
	news    chan struct{} // size 1: something is pending
}

// started is where the monotonic readings of all sessions begin.
var started = time.Now()

func newSession(s *Service, leader Leader, stream dtaskv1.WorkerService_SessionServer, cancel context.CancelCauseFunc) *session {
	x := &session{
		service: s, leader: leader, stream: stream, cancel: cancel,
		hello: make(chan *dtaskv1.SessionRequest, 1), begun: make(chan struct{}), news: make(chan struct{}, 1),
		readers: make(map[uint64]*logReader),
	}
	x.hear()
	return x
}

func (x *session) hear() { x.heard.Store(int64(time.Since(started))) }

// LastHeard implements sequencer.Session.
func (x *session) LastHeard() time.Time {
	if x.busy.Load() {
		return time.Now()
	}
	return started.Add(time.Duration(x.heard.Load()))
}

// Close implements sequencer.Session.
func (x *session) Close(reason error) { x.cancel(reason) }

// Send implements sequencer.Session.
func (x *session) Send(m sequencer.Outgoing) {
	x.mu.Lock()
	p := &x.pending
	p.Assign = append(p.Assign, m.Assign...)
	p.Stop = append(p.Stop, m.Stop...)
	p.MayBegin = append(p.MayBegin, m.MayBegin...)
	p.AckThrough = max(p.AckThrough, m.AckThrough)
	p.Exceptions = append(p.Exceptions, m.Exceptions...)
	x.mu.Unlock()
	x.signal()
}

func (x *session) signal() {
	select {
	case x.news <- struct{}{}:
	default: // a token is there already
	}
}

// welcome queues the first message.
func (x *session) welcome(w sequencer.Welcome, beat uint64) {
	x.mu.Lock()
	x.greet = &dtaskv1.Welcome{
		WorkerId:            uint32(w.Worker),
		HeartbeatIntervalMs: x.service.cfg.HeartbeatInterval.Milliseconds(),
		SilenceMs:           x.service.cfg.Silence.Milliseconds(),
		LeaseMs:             x.service.cfg.Lease.Milliseconds(),
	}
	for _, a := range w.Stop {
		x.pending.Stop = append(x.pending.Stop, sequencer.StopOrder{Attempt: a, Reason: dtaskv1.StopReason_STOP_REASON_SUPERSEDED})
	}
	x.beat = max(x.beat, beat)
	x.mu.Unlock()
	x.signal()
}

// pumpIn receives until the stream ends. The first message goes to the handler;
// the others are handled once the worker is attached.
func (x *session) pumpIn(ctx context.Context) {
	first, err := x.stream.Recv()
	if err != nil {
		x.cancel(nil)
		return
	}
	x.hear()
	x.hello <- first
	select {
	case <-x.begun:
	case <-ctx.Done():
		return
	}
	if r := first.GetReports(); r != nil || first.GetLeaving() {
		x.report(ctx, first)
	}
	for {
		m, err := x.stream.Recv()
		if err != nil {
			x.cancel(nil)
			return
		}
		x.hear()
		x.receive(ctx, m)
	}
}

func (x *session) receive(ctx context.Context, m *dtaskv1.SessionRequest) {
	if x.deposed(m.GetFence()) {
		x.cancel(sequencer.ErrTermOver)
		return
	}
	if b := m.GetBeat(); b > 0 {
		x.mu.Lock()
		x.beat = b
		x.mu.Unlock()
		x.signal()
	}
	if d := m.GetLogData(); d != nil {
		x.logData(d)
	}
	if m.GetReports() != nil || m.GetLeaving() {
		x.report(ctx, m)
	}
}

// deposed reports whether the worker has seen a later leader than this one, which
// then just does not know yet.
func (x *session) deposed(f *dtaskv1.Fence) bool {
	return f.GetEpoch() > x.fence.GetEpoch() || f.GetEpoch() == x.fence.GetEpoch() && f.GetTerm() > x.fence.GetTerm()
}

func (x *session) report(ctx context.Context, m *dtaskv1.SessionRequest) {
	x.busy.Store(true)
	err := x.leader.Report(ctx, x.worker, x, m.GetReports(), m.GetLeaving())
	x.hear()
	x.busy.Store(false)
	if err != nil {
		x.cancel(err)
	}
}

// send sends until the session ends, and gives the reason. It does not wait for
// a Send that waits for the worker to read: only the return of the handler ends
// that one.
func (x *session) send(ctx context.Context) error {
	sent := make(chan error, 1)
	go func() { sent <- x.pumpOut(ctx) }() // ends when the handler has returned
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return ending(ctx)
	}
}

// pumpOut sends until the session ends, and gives the reason.
func (x *session) pumpOut(ctx context.Context) error {
	for {
		select {
		case <-x.news:
		case <-ctx.Done():
			return ending(ctx)
		}
		for {
			m := x.next(ctx)
			if m == nil {
				break
			}
			if err := x.stream.Send(m); err != nil {
				return nil //nolint:nilerr // the worker has gone; it comes back by itself
			}
		}
	}
}

// next takes what is pending, as one message; nil if there is nothing.
//
// Assignments go before stops: a stop may be for an attempt that is still
// pending here, and would otherwise reach the worker before what it stops.
func (x *session) next(ctx context.Context) *dtaskv1.SessionResponse {
	x.mu.Lock()
	p := x.pending
	x.pending = sequencer.Outgoing{}
	m := &dtaskv1.SessionResponse{
		Fence: x.fence, Beat: x.beat, Welcome: x.greet, MayBegin: attemptsTo(p.MayBegin),
	}
	x.beat, x.greet = 0, nil
	if len(x.logs) > 0 {
		m.LogRequest = x.logs[0]
		x.logs = x.logs[1:]
	}
	if len(p.Assign) > 0 && len(p.Stop) > 0 {
		x.pending.Stop, p.Stop = p.Stop, nil
		x.signal() // should nothing go out now, they still must
	}
	x.mu.Unlock()

	if p.AckThrough > 0 {
		m.Ack = &dtaskv1.Ack{Through: p.AckThrough, Exceptions: p.Exceptions}
	}
	m.Stops = stopsTo(p.Stop)
	if len(p.Assign) > 0 {
		m.Assignments = x.fill(ctx, p.Assign)
	}
	if m.GetBeat() == 0 && m.GetWelcome() == nil && m.GetAck() == nil && len(m.GetStops()) == 0 &&
		m.GetAssignments() == nil && len(m.GetMayBegin()) == 0 && m.GetLogRequest() == nil {
		return nil
	}
	return m
}

// fill makes the assignments of one message; what does not fit stays pending.
func (x *session) fill(ctx context.Context, items []fsm.AssignItem) *dtaskv1.Assignments {
	var (
		a     *dtaskv1.Assignments
		taken int
		gone  []fsm.AttemptRef
	)
	x.service.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		a, taken, gone = assignments(st, items)
	})
	if taken < len(items) {
		x.mu.Lock()
		x.pending.Assign = append(items[taken:], x.pending.Assign...)
		x.mu.Unlock()
		x.signal()
	}
	if len(gone) > 0 {
		if err := x.leader.Undelivered(ctx, x.worker, x, gone); err != nil {
			x.cancel(err)
		}
	}
	if len(a.GetTasks()) == 0 {
		return nil
	}
	return a
}
