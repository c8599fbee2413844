package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// livenessTimeout is how long a leader may be silent.
	livenessTimeout = 2 * time.Second
	// minBackoff and maxBackoff bound the growing delay of a worker that found
	// no leader, as in real workers.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

var errLivenessTimeout = errors.New("load: liveness timeout")

// session is one registration of a worker. The worker's lock guards it, except
// the immutable fields.
type session struct {
	w      *simulated
	addr   string
	conn   *shared
	over   chan error // size 1: why it ended; the first reason counts
	stream *muxStream
	number uint32      // in the stream
	queued atomic.Bool // in the stream's queue

	release func() // others may open a session now

	greeted      bool // hello was sent
	welcomed     bool
	heartbeat    uint64
	heartbeatDue bool
	lastContact  time.Time
}

// end ends a session.
func (s *session) end(err error) {
	select {
	case s.over <- err:
	default: // it has ended
	}
}

// run opens one session after another until ctx is done.
func (w *simulated) run(ctx context.Context) {
	pause := minBackoff
	for turn := w.index; ctx.Err() == nil; turn++ {
		addr := w.l.conns.leader()
		if addr == "" {
			addr = w.l.cfg.Addrs[turn%len(w.l.cfg.Addrs)]
		}
		welcomed, err := w.session(ctx, addr)
		if welcomed {
			pause = minBackoff
		}
		wait, requested := w.after(addr, err, pause)
		if !requested {
			pause = min(pause*13/10, maxBackoff)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// after learns from the end of a session, and returns how long to wait, and
// whether a coordinator requested that delay.
func (w *simulated) after(addr string, err error, pause time.Duration) (wait time.Duration, requested bool) {
	d := errorDetail(err)
	spread := pause/2 + rand.N(pause/2) //nolint:gosec // spread, not secrecy
	switch {
	case isBusy(err):
		wait = time.Duration(d.GetRetryAfterMs()) * time.Millisecond
		return wait + rand.N(min(wait/2, minBackoff)+1), true //nolint:gosec // as above
	case d.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER && d.GetLeaderAddress() != "" && d.GetLeaderAddress() != addr:
		w.l.conns.setLeader(d.GetLeaderAddress())
		return rand.N(minBackoff), true //nolint:gosec // as above
	}
	w.l.conns.forget(addr)
	return spread, false
}

// errorDetail returns the detail of a coordinator's error, or nil.
func errorDetail(err error) (d *dtaskv1.ErrorDetail) {
	for _, detail := range status.Convert(err).Details() {
		if x, ok := detail.(*dtaskv1.ErrorDetail); ok {
			d = x
		}
	}
	return d
}

// isBusy reports whether a coordinator asked for another try later.
func isBusy(err error) bool {
	return errorDetail(err).GetReason() == dtaskv1.ErrorReason_ERROR_REASON_BUSY
}

// session opens one session, and returns why it ended.
func (w *simulated) session(ctx context.Context, addr string) (welcomed bool, err error) {
	select {
	case w.l.opening <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx) //nolint:wrapcheck // the load ends
	}
	release := sync.OnceFunc(func() { <-w.l.opening })
	defer release()
	conn, err := w.l.conns.acquire(addr, w.index)
	if err != nil {
		return false, err
	}
	s := &session{w: w, addr: addr, conn: conn, release: release, over: make(chan error, 1), lastContact: time.Now()}
	err = w.hold(ctx, s)
	w.mu.Lock()
	w.s = nil
	welcomed = s.welcomed
	w.mu.Unlock()
	if welcomed {
		w.l.counts.open.Add(-1)
		if ctx.Err() == nil {
			w.l.lost(err)
		}
	}
	// A connection of one's own ends with the session, as that of a real worker does, unless the
	// leader only asked for patience.
	if w.l.cfg.Own && !isBusy(err) || errors.Is(err, errLivenessTimeout) && conn.silent(time.Now(), livenessTimeout) {
		w.l.conns.discard(addr, w.index, conn)
	}
	return welcomed, err
}

// hold keeps a session open until it ends, and returns why.
func (w *simulated) hold(ctx context.Context, s *session) (err error) {
	if w.l.cfg.Own {
		if s.stream, err = openMuxStream(ctx, w.l, s.conn); err == nil {
			defer s.stream.cancel()
		}
	} else {
		s.stream, err = s.conn.mux(ctx, w.l)
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.s, w.sent = s, 0
	s.stream.add(s) // under the lock: flush must not queue it before
	w.mu.Unlock()
	defer s.stream.leave(s)
	select {
	case err := <-s.over:
		return err
	case <-ctx.Done():
		return context.Cause(ctx) //nolint:wrapcheck // read by the caller
	}
}

// handle applies a message of the leader.
func (w *simulated) handle(s *session, m *dtaskv1.SessionResponse) error {
	w.mu.Lock()
	if older(m.GetFence(), w.fence) {
		w.mu.Unlock()
		return errors.New("load: leader is deposed")
	}
	w.fence = m.GetFence()
	now := time.Now()
	s.lastContact = now
	s.conn.lastContact.Store(now.UnixNano())
	if !s.welcomed {
		s.welcomed = true
		s.release()
		w.l.conns.setLeader(s.addr)
		w.l.noteOpen()
	}
	err := w.applyLocked(m, now)
	w.flush()
	return err
}

// applyLocked applies the parts of a message.
func (w *simulated) applyLocked(m *dtaskv1.SessionResponse, now time.Time) error {
	if m.GetAck() != nil {
		w.acknowledgedLocked(m.GetAck())
	}
	for _, stop := range m.GetStops() {
		w.stopLocked(attemptOf(stop.GetAttempt()), now)
	}
	if err := w.assignedLocked(m.GetAssignments(), now); err != nil {
		return err
	}
	for _, a := range m.GetStealRequests() {
		w.releaseLocked(attemptOf(a))
	}
	return nil
}

func (l *Load) noteOpen() {
	l.counts.open.Add(1)
	l.counts.sessions.Add(1)
	select {
	case l.opened <- struct{}{}:
	default: // a token is there already
	}
}

func older(a, b *dtaskv1.Fence) bool {
	return a.GetEpoch() < b.GetEpoch() || a.GetEpoch() == b.GetEpoch() && a.GetTerm() < b.GetTerm()
}

// sendHeartbeat queues a heartbeat, or ends the session if the leader has been
// silent since the given time.
func (w *simulated) sendHeartbeat(since time.Time) {
	w.mu.Lock()
	s := w.s
	switch {
	case s == nil:
	case s.lastContact.Before(since):
		s.end(errLivenessTimeout)
	case s.welcomed:
		s.heartbeatDue = true
	}
	w.flush()
}

// flush unlocks, and queues the session if it has anything to send.
func (w *simulated) flush() {
	s := w.s
	ready := s != nil && w.hasDataLocked(s)
	w.mu.Unlock()
	if ready {
		s.stream.queue(s)
	}
}

// hasDataLocked reports whether there is anything to send.
func (w *simulated) hasDataLocked(s *session) bool {
	return !s.greeted || s.welcomed && (s.heartbeatDue || w.sent < len(w.outcomes))
}

// next returns the next message of a session, or nil.
func (w *simulated) next(s *session) *dtaskv1.SessionRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.s != s {
		return nil
	}
	return w.nextLocked(s)
}

// nextLocked returns the next message, or nil.
func (w *simulated) nextLocked(s *session) *dtaskv1.SessionRequest {
	if !w.hasDataLocked(s) {
		return nil
	}
	m := &dtaskv1.SessionRequest{Fence: w.fence}
	if !s.greeted {
		s.greeted, s.heartbeat = true, 1
		m.Heartbeat, m.Hello = 1, w.helloLocked()
		return m
	}
	if s.heartbeatDue {
		s.heartbeatDue = false
		s.heartbeat++
		m.Heartbeat = s.heartbeat
	}
	if w.sent < len(w.outcomes) {
		outcomes := columns.NewOutcomes(w.first+uint64(w.sent), len(w.outcomes)-w.sent) //nolint:gosec // not negative
		for ; w.sent < len(w.outcomes); w.sent++ {
			columns.AddOutcome(outcomes, &w.outcomes[w.sent])
		}
		m.Reports = &dtaskv1.Reports{Outcomes: outcomes}
	}
	return m
}
