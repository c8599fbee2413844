package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Bounds of the messages of one session that wait because the sequencer is
// overloaded. A worker reports what its slots held and then waits, so that only
// a faulty worker reaches these bounds.
const (
	maxPending         = 1024
	maxPendingBytes    = 8 << 20
	overloadRetryDelay = time.Second
)

// streamSlot is the part of a multiplexed stream that belongs to one session.
//
// The stream's receiving goroutine handles the session's messages as they
// arrive. Only reports may have to wait until the sequencer accepts them. They
// wait here, in order, with a goroutine of their own, and delay no other
// session.
type streamSlot struct {
	m      *muxStream
	number uint32
	ctx    context.Context //nolint:containedctx // the session's lifetime, as a stream has one
	cancel context.CancelCauseFunc
	hello  chan *dtaskv1.SessionRequest // size 1: the first message

	open    atomic.Bool // the session may send: its welcome is queued
	queued  atomic.Bool // the slot is in the stream's queue
	ended   atomic.Bool // the end of the session is queued: nothing may follow
	session *session    // set before open

	mu       sync.Mutex // guards the rest
	greeted  bool       // the first message has arrived
	attached bool       // the worker is attached
	draining bool       // a goroutine hands pending over; new reports join it
	pending  []*dtaskv1.SessionRequest
	bytes    int // of pending
}

// wake queues the slot, if it is open and not queued yet.
func (s *streamSlot) wake() {
	if s.open.Load() && !s.queued.Swap(true) {
		s.m.out.Add(s)
	}
}

// wakeDeferred is wake for a slot that shares the next message with others: it
// is sent when the queue is flushed.
func (s *streamSlot) wakeDeferred() {
	if s.open.Load() && !s.queued.Swap(true) {
		s.m.out.AddDeferred(s)
	}
}

// receive handles a message of the worker. It does not block.
func (s *streamSlot) receive(m *dtaskv1.SessionRequest) {
	s.mu.Lock()
	switch {
	case !s.greeted:
		s.greeted = true
		s.mu.Unlock()
		s.hello <- m
	case !s.attached:
		s.addPendingLocked(m)
		s.mu.Unlock()
	default:
		draining := s.draining
		s.mu.Unlock()
		s.session.touch()
		if s.session.handle(m) {
			s.report(m, draining)
		}
	}
}

// report passes reports to the sequencer, or to a goroutine if it is
// overloaded. Only the stream's receiving goroutine calls it, so that draining
// cannot become true meanwhile.
func (s *streamSlot) report(m *dtaskv1.SessionRequest, draining bool) {
	x := s.session
	if !draining {
		accepted, err := x.leader.TryReport(x.worker, x, m.GetReports(), m.GetLeaving())
		if err != nil {
			s.cancel(err)
		}
		if accepted || err != nil {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addPendingLocked(m)
	if !s.draining {
		s.draining = true
		s.m.sessions.Go(s.drain)
	}
}

// addPendingLocked adds a message to those that wait. A worker that exceeds the
// bounds has to open another session, in which it repeats whatever was not
// acknowledged.
func (s *streamSlot) addPendingLocked(m *dtaskv1.SessionRequest) {
	s.pending = append(s.pending, m)
	s.bytes += proto.Size(m)
	if len(s.pending) > maxPending || s.bytes > maxPendingBytes {
		s.pending, s.bytes = nil, 0
		s.cancel(&sequencer.BusyError{What: "this worker sends more than the leader can queue", RetryAfter: overloadRetryDelay})
	}
}

// start lets the session send, and handles all messages since its hello.
func (s *streamSlot) start(x *session, first *dtaskv1.SessionRequest) {
	s.mu.Lock()
	s.session = x
	s.attached = true
	early := s.pending
	s.pending, s.bytes = nil, 0
	if hasReports(first) {
		s.addPendingLocked(first)
	}
	for _, m := range early {
		if x.handle(m) {
			s.addPendingLocked(m)
		}
	}
	s.draining = len(s.pending) > 0
	draining := s.draining
	s.mu.Unlock()
	s.open.Store(true)
	s.wake()
	if draining {
		s.drain()
	}
}

// drain passes pending reports to the sequencer until none is left.
func (s *streamSlot) drain() {
	for s.ctx.Err() == nil {
		s.mu.Lock()
		if len(s.pending) == 0 {
			s.pending, s.draining = nil, false
			s.mu.Unlock()
			return
		}
		m := s.pending[0]
		s.mu.Unlock()
		s.session.report(s.ctx, m)
		s.mu.Lock()
		if len(s.pending) > 0 { // otherwise the bounds were exceeded
			s.pending = s.pending[1:]
			s.bytes -= proto.Size(m)
		}
		s.mu.Unlock()
	}
}
