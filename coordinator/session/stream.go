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

// session is one stream, or one of those in a carrier. It implements
// sequencer.Session.
type session struct {
	service *Service
	leader  Leader
	stream  dtaskv1.WorkerService_SessionServer // nil if it is in a carrier
	lane    *lane                               // nil if it has a stream of its own
	over    <-chan struct{}                     // closed when the stream, or its part of the carrier, has ended
	cancel  context.CancelCauseFunc
	fence   *dtaskv1.Fence
	worker  fsm.WorkerID // known once it is attached

	hello chan *dtaskv1.SessionRequest // size 1: the first message
	begun chan struct{}                // closed once the worker is attached

	heard atomic.Int64 // ns since started
	busy  atomic.Bool  // a report waits for room: the worker is not silent, we are slow

	mu      sync.Mutex // guards the rest
	pending sequencer.WorkerMessage
	greet   *dtaskv1.Welcome
	beat    uint64 // to be answered; 0 = none
	logs    []*dtaskv1.LogRequest
	readers map[uint64]*logReader
	lastLog uint64
	filled  int           // bytes of the assignments in the last message, about; of who sends
	sending bool          // pumpOut has taken something and has not come back for more
	inline  bool          // the receiver sends the answer to a beat itself
	news    chan struct{} // size 1: something is pending

	quiet   atomic.Int32 // beats since there was anything else to send
	pumping atomic.Bool  // there is a pumpOut, or there will be
	pump    func()       // starts one; for who has made pumping true
}

// quietBeats is after how many beats with nothing else between them the receiver
// answers them itself, and nobody waits for something to send. A worker that has
// heard nothing but answers since then has read them, or left, so that sending one
// more does not wait for it.
const quietBeats = 2

// started is where the monotonic readings of all sessions begin.
var started = time.Now()

func newSession(s *Service, leader Leader, over <-chan struct{}, cancel context.CancelCauseFunc) *session {
	x := &session{
		service: s, leader: leader, over: over, cancel: cancel,
		hello: make(chan *dtaskv1.SessionRequest, 1), begun: make(chan struct{}), news: make(chan struct{}, 1),
		readers: make(map[uint64]*logReader),
	}
	x.pumping.Store(true) // until send has begun with one
	x.hear()
	return x
}

func (x *session) hear() { x.heard.Store(int64(time.Since(started))) }

// LastContact implements sequencer.Session.
func (x *session) LastContact() time.Time {
	if x.busy.Load() {
		return time.Now()
	}
	return started.Add(time.Duration(x.heard.Load()))
}

// Close implements sequencer.Session.
func (x *session) Close(reason error) { x.cancel(reason) }

// Send implements sequencer.Session.
func (x *session) Send(m sequencer.WorkerMessage) {
	x.mu.Lock()
	p := &x.pending
	p.Assign = append(p.Assign, m.Assign...)
	p.Stop = append(p.Stop, m.Stop...)
	p.MayBegin = append(p.MayBegin, m.MayBegin...)
	p.AckThrough = max(p.AckThrough, m.AckThrough)
	p.Exceptions = append(p.Exceptions, m.Exceptions...)
	p.Checkpoints = append(p.Checkpoints, m.Checkpoints...)
	p.StealRequests = append(p.StealRequests, m.StealRequests...)
	if m.Drain != nil {
		p.Drain = m.Drain
	}
	x.mu.Unlock()
	x.quiet.Store(0)
	if x.lane != nil {
		x.lane.join()
	}
}

// Flush implements sequencer.Session.
func (x *session) Flush() {
	if x.lane != nil {
		x.lane.c.out.Flush()
		return
	}
	x.wake()
}

// signal says that there is something to send.
func (x *session) signal() {
	x.quiet.Store(0)
	x.wake()
}

// wake makes pumpOut look, and begins one if there is none; or the carrier.
func (x *session) wake() {
	if x.lane != nil {
		x.lane.wake()
		return
	}
	select {
	case x.news <- struct{}{}:
	default: // a token is there already
	}
	if x.pumping.CompareAndSwap(false, true) {
		x.pump()
	}
}

// answer answers a beat.
func (x *session) answer(beat uint64) {
	quiet := x.quiet.Add(1)
	x.mu.Lock()
	if x.lane != nil || quiet <= quietBeats || x.sending || x.inline || !x.idleLocked() {
		x.beat = beat
		x.mu.Unlock()
		x.wake()
		return
	}
	x.inline = true
	x.mu.Unlock()
	err := x.stream.Send(&dtaskv1.SessionResponse{Fence: x.fence, Beat: beat})
	x.mu.Lock()
	x.inline = false
	idle := x.idleLocked()
	x.mu.Unlock()
	switch {
	case err != nil:
		x.cancel(nil) // the worker has gone; it comes back by itself
	case !idle || quiet == quietBeats+1: // so that it sees that it may end
		x.wake()
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
		Draining:            w.Draining,
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
	if reporting(first) {
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
	if x.heed(m) {
		x.report(ctx, m)
	}
}

// heed does what a message asks for that never waits, and says whether it carries
// reports as well.
func (x *session) heed(m *dtaskv1.SessionRequest) (reports bool) {
	if x.deposed(m.GetFence()) {
		x.cancel(sequencer.ErrTermEnded)
		return false
	}
	if b := m.GetBeat(); b > 0 {
		x.answer(b)
	}
	if d := m.GetLogData(); d != nil {
		x.logData(d)
	}
	return reporting(m)
}

// reporting says whether a message carries anything for the sequencer.
func reporting(m *dtaskv1.SessionRequest) bool { return m.GetReports() != nil || m.GetLeaving() }

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
	x.pump = func() {
		go func() { // ends when the handler has returned
			if ended, err := x.pumpOut(ctx); ended {
				sent <- err
			}
		}()
	}
	x.pump()
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return ending(ctx)
	}
}

// pumpOut sends until the session ends, and gives the reason; or until there has
// been nothing but beats for a while: then another one begins with what comes next.
func (x *session) pumpOut(ctx context.Context) (ended bool, err error) {
	for {
		select {
		case <-x.news:
		case <-ctx.Done():
			return true, ending(ctx)
		}
		for {
			m, more := x.next(ctx)
			if !more {
				break
			}
			if m == nil {
				continue
			}
			if err := x.stream.Send(m); err != nil {
				return true, nil //nolint:nilerr // the worker has gone; it comes back by itself
			}
		}
		if x.quiet.Load() > quietBeats && x.rests() {
			return false, nil
		}
	}
}

// rests reports whether pumpOut may end: nothing is to be sent, or another one has
// begun.
func (x *session) rests() bool {
	x.pumping.Store(false)
	x.mu.Lock()
	idle := x.idleLocked()
	x.mu.Unlock()
	return idle || !x.pumping.CompareAndSwap(false, true)
}

// next takes what is pending, as one message. Without more there was nothing; with
// more and no message, nothing of it was left to send.
//
// Assignments go before stops: a stop may be for an attempt that is still
// pending here, and would otherwise reach the worker before what it stops.
func (x *session) next(ctx context.Context) (m *dtaskv1.SessionResponse, more bool) {
	x.mu.Lock()
	if x.sending = !x.inline && !x.idleLocked(); !x.sending {
		x.mu.Unlock()
		return nil, false // after a beat that is being answered it is looked again
	}
	p := x.pending
	x.pending = sequencer.WorkerMessage{}
	m = &dtaskv1.SessionResponse{
		Fence: x.fence, Beat: x.beat, Welcome: x.greet, MayBegin: attemptsTo(p.MayBegin), Drain: p.Drain, Checkpoints: p.Checkpoints,
		GiveBack: attemptsTo(p.StealRequests),
	}
	x.beat, x.greet = 0, nil
	if len(x.logs) > 0 {
		m.LogRequest = x.logs[0]
		x.logs = x.logs[1:]
	}
	if len(p.Assign) > 0 && len(p.Stop) > 0 {
		x.pending.Stop, p.Stop = p.Stop, nil
	}
	x.mu.Unlock()

	x.filled = 0
	if p.AckThrough > 0 {
		m.Ack = &dtaskv1.Ack{Through: p.AckThrough, Exceptions: p.Exceptions}
	}
	m.Stops = stopsTo(p.Stop)
	if len(p.Assign) > 0 {
		m.Assignments = x.fill(ctx, p.Assign)
	}
	if m.GetBeat() == 0 && m.GetWelcome() == nil && m.GetAck() == nil && len(m.GetStops()) == 0 &&
		m.GetAssignments() == nil && len(m.GetMayBegin()) == 0 && m.GetLogRequest() == nil && m.GetDrain() == nil && len(m.GetCheckpoints()) == 0 &&
		len(m.GetGiveBack()) == 0 {
		return nil, true // all that was to be assigned is gone
	}
	return m, true
}

// more says whether anything waits to be sent.
func (x *session) more() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.idleLocked()
}

// idleLocked says that nothing waits to be sent. It is asked after each message, so
// it costs no memory.
func (x *session) idleLocked() bool {
	p := &x.pending
	return x.beat == 0 && x.greet == nil && len(x.logs) == 0 && len(p.Assign) == 0 && len(p.Stop) == 0 && len(p.MayBegin) == 0 && p.AckThrough == 0 &&
		p.Drain == nil && len(p.Checkpoints) == 0 && len(p.StealRequests) == 0
}

// fill makes the assignments of one message; what does not fit stays pending.
func (x *session) fill(ctx context.Context, items []fsm.AssignItem) *dtaskv1.Assignments {
	var (
		a     *dtaskv1.Assignments
		taken int
		gone  []fsm.AttemptRef
	)
	x.service.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		a, taken, x.filled, gone = assignments(st, items)
	})
	if taken < len(items) {
		x.mu.Lock()
		x.pending.Assign = append(items[taken:], x.pending.Assign...)
		x.mu.Unlock()
	}
	if len(gone) > 0 {
		if err := x.leader.ReturnUndelivered(ctx, x.worker, x, gone); err != nil {
			x.cancel(err)
		}
	}
	if len(a.GetTasks()) == 0 {
		return nil
	}
	return a
}
