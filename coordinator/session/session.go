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

// session is one registration of a worker. It implements sequencer.Session.
type session struct {
	service *Service
	leader  Leader
	slot    *streamSlot
	fence   *dtaskv1.Fence
	worker  fsm.WorkerID // known once the worker is attached
	name    string       // of the worker, likewise

	lastContact atomic.Int64 // ns since started
	overloaded  atomic.Bool  // a report waits for the sequencer: the worker is not silent, the leader is slow

	mu         sync.Mutex              // guards the rest
	pending    sequencer.WorkerMessage // without stops
	stops      []pendingStop           // in the order in which they were queued
	assigned   uint64                  // assignments ever queued
	sent       uint64                  // of them, those that were sent
	greeting   *dtaskv1.Welcome
	superseded []sequencer.Stop // attempts of its hello that are no longer live; sent with the welcome
	heartbeat  uint64           // to be answered; 0 = none
	logs       []*dtaskv1.LogRequest
	readers    map[uint64]*logReader
	lastLog    uint64
	trusts     []byte         // identifies the CAs that the worker has stored; nil: unknown
	trust      *dtaskv1.Trust // to be sent; nil: nothing
}

// pendingStop is a stop that is sent once a number of assignments were.
type pendingStop struct {
	sequencer.Stop

	after uint64
}

// started is the origin of the monotonic timestamps of all sessions.
var started = time.Now()

func newSession(s *Service, leader Leader, slot *streamSlot) *session {
	x := &session{service: s, leader: leader, slot: slot, readers: make(map[uint64]*logReader)}
	x.touch()
	return x
}

// touch records that the worker was heard from.
func (x *session) touch() { x.lastContact.Store(int64(time.Since(started))) }

// LastContact implements sequencer.Session.
func (x *session) LastContact() time.Time {
	if x.overloaded.Load() {
		return time.Now()
	}
	return started.Add(time.Duration(x.lastContact.Load()))
}

// Close implements sequencer.Session.
func (x *session) Close(reason error) { x.slot.cancel(reason) }

// Send implements sequencer.Session. It never blocks: m joins what has not been
// sent yet.
func (x *session) Send(m sequencer.WorkerMessage) {
	x.mu.Lock()
	p := &x.pending
	p.Assignments = append(p.Assignments, m.Assignments...)
	x.assigned += uint64(len(m.Assignments))
	for _, stop := range m.Stops {
		x.stops = append(x.stops, pendingStop{Stop: stop, after: x.assigned})
	}
	p.StartGrants = append(p.StartGrants, m.StartGrants...)
	p.AckThrough = max(p.AckThrough, m.AckThrough)
	p.Exceptions = append(p.Exceptions, m.Exceptions...)
	p.Checkpoints = append(p.Checkpoints, m.Checkpoints...)
	p.StealRequests = append(p.StealRequests, m.StealRequests...)
	if m.Drain != nil {
		p.Drain = m.Drain
	}
	x.mu.Unlock()
	x.slot.wakeDeferred()
}

// Flush implements sequencer.Session.
func (x *session) Flush() { x.slot.m.out.Flush() }

// welcome queues the first message.
func (x *session) welcome(w sequencer.Welcome, beat uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.greeting = &dtaskv1.Welcome{
		WorkerId:            uint32(w.Worker),
		HeartbeatIntervalMs: x.service.cfg.HeartbeatInterval.Milliseconds(),
		LivenessTimeoutMs:   x.service.cfg.LivenessTimeout.Milliseconds(),
		LeaseMs:             x.service.cfg.Lease.Milliseconds(),
		Draining:            w.Draining,
	}
	for _, a := range w.Stop {
		x.superseded = append(x.superseded, sequencer.Stop{Attempt: a, Reason: dtaskv1.StopReason_STOP_REASON_SUPERSEDED})
	}
	x.heartbeat = beat
}

// handle applies the parts of a message that never block, and reports whether
// it also contains reports.
func (x *session) handle(m *dtaskv1.SessionRequest) (reports bool) {
	if x.deposed(m.GetFence()) {
		x.slot.cancel(sequencer.ErrTermEnded)
		return false
	}
	x.noteTrust(m.GetTrust()) // before the answer: the worker knows then that it is noted
	if b := m.GetHeartbeat(); b > 0 {
		x.mu.Lock()
		x.heartbeat = b
		x.mu.Unlock()
		x.slot.wake()
	}
	if d := m.GetLogData(); d != nil {
		x.logData(d)
	}
	return hasReports(m)
}

// hasReports reports whether a message contains anything for the sequencer.
func hasReports(m *dtaskv1.SessionRequest) bool { return m.GetReports() != nil || m.GetLeaving() }

// deposed reports whether the worker has seen a later leader than this one,
// which has not noticed yet that its term ended.
func (x *session) deposed(f *dtaskv1.Fence) bool {
	return f.GetEpoch() > x.fence.GetEpoch() || f.GetEpoch() == x.fence.GetEpoch() && f.GetTerm() > x.fence.GetTerm()
}

// report passes reports to the sequencer, and waits until it accepts them.
func (x *session) report(ctx context.Context, m *dtaskv1.SessionRequest) {
	x.overloaded.Store(true)
	err := x.leader.Report(ctx, x.worker, x, m.GetReports(), m.GetLeaving())
	x.touch()
	x.overloaded.Store(false)
	if err != nil {
		x.slot.cancel(err)
	}
}

// next returns the next message and the approximate size of its assignments, or
// nil if nothing is pending. It queues the slot again if it leaves anything
// pending.
//
// A stop is sent in a later message than the assignments that were queued before
// it: a worker handles the stops of a message first, and it may be for one of
// them. It does not wait for assignments that come after it. The stops of attempts
// that the worker held before are part of the welcome, which lets it start the
// others.
func (x *session) next() (m *dtaskv1.SessionResponse, assigned int) {
	x.mu.Lock()
	p := x.pending
	x.pending = sequencer.WorkerMessage{}
	m = &dtaskv1.SessionResponse{
		Fence: x.fence, Heartbeat: x.heartbeat, Welcome: x.greeting, StartGrants: attemptRefs(p.StartGrants), Drain: p.Drain, CheckpointResults: p.Checkpoints,
		StealRequests: attemptRefs(p.StealRequests), Stops: stops(x.superseded), Trust: x.trust,
	}
	x.heartbeat, x.greeting, x.superseded, x.trust = 0, nil, nil, nil
	if len(x.logs) > 0 {
		m.LogRequest = x.logs[0]
		x.logs = x.logs[1:]
	}
	m.Stops = append(m.GetStops(), stops(x.readyStops())...)
	more := len(x.logs) > 0 || len(x.stops) > 0
	x.mu.Unlock()

	if p.AckThrough > 0 {
		m.Ack = &dtaskv1.Ack{Through: p.AckThrough, Exceptions: p.Exceptions}
	}
	if len(p.Assignments) > 0 {
		var rest []fsm.AssignItem
		m.Assignments, rest, assigned = x.assignments(p.Assignments)
		x.mu.Lock()
		x.sent += uint64(len(p.Assignments) - len(rest)) //nolint:gosec // rest is a part of them
		if len(rest) > 0 {
			x.pending.Assignments = append(rest, x.pending.Assignments...)
			more = true
		}
		x.mu.Unlock()
	}
	if more {
		x.slot.wake()
	}
	if m.GetHeartbeat() == 0 && m.GetWelcome() == nil && m.GetAck() == nil && m.GetAssignments() == nil && m.GetLogRequest() == nil && m.GetDrain() == nil && m.GetTrust() == nil &&
		len(m.GetStops())+len(m.GetStartGrants())+len(m.GetCheckpointResults())+len(m.GetStealRequests()) == 0 {
		return nil, 0
	}
	return m, assigned
}

// readyStops removes and returns the stops whose assignments were sent. x.mu must
// be held.
func (x *session) readyStops() (ready []sequencer.Stop) {
	for len(x.stops) > 0 && x.stops[0].after <= x.sent {
		ready = append(ready, x.stops[0].Stop)
		x.stops = x.stops[1:]
	}
	return ready
}

// assignments builds the assignments of one message, and returns those that did
// not fit. Attempts whose job no longer exists are reported to the leader.
func (x *session) assignments(items []fsm.AssignItem) (a *dtaskv1.Assignments, rest []fsm.AssignItem, size int) {
	var (
		taken int
		gone  []fsm.AttemptRef
	)
	x.service.cfg.Machine.Read(func(st *fsm.State, _ uint64) {
		a, taken, size, gone = assignments(st, items)
	})
	if len(gone) > 0 {
		if err := x.leader.ReturnUndelivered(x.slot.ctx, x.worker, x, gone); err != nil {
			x.slot.cancel(err)
		}
	}
	if len(a.GetTasks()) == 0 {
		a = nil
	}
	return a, items[taken:], size
}
