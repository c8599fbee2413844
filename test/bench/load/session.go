package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/status"

	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// patience is how long a leader may say nothing.
	patience = 2 * time.Second
	// firstPause and longestPause are how long a worker waits that found no
	// leader: longer each time, as real ones do.
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

var errSilent = errors.New("load: the leader says nothing")

// session is one stream of a worker. Its worker's lock guards it.
type session struct {
	stream   dtaskv1.WorkerService_SessionClient
	conn     *shared
	cancel   context.CancelCauseFunc
	welcomed bool
	sending  bool // somebody sends, and looks again afterwards
	beat     uint64
	beatDue  bool
	heard    time.Time
}

// run makes one session after another until ctx is done.
func (w *simulated) run(ctx context.Context) {
	pause := firstPause
	for turn := w.index; ctx.Err() == nil; turn++ {
		addr := w.l.conns.leader()
		if addr == "" {
			addr = w.l.cfg.Addrs[turn%len(w.l.cfg.Addrs)]
		}
		welcomed, err := w.session(ctx, addr)
		if welcomed {
			pause = firstPause
		}
		wait, told := w.after(addr, err, pause)
		if !told {
			pause = min(pause*13/10, longestPause)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// after learns from the end of a session and says how long to wait; told means
// that a coordinator said so.
func (w *simulated) after(addr string, err error, pause time.Duration) (wait time.Duration, told bool) {
	var d *dtaskv1.ErrorDetail
	for _, detail := range status.Convert(err).Details() {
		if x, ok := detail.(*dtaskv1.ErrorDetail); ok {
			d = x
		}
	}
	spread := pause/2 + rand.N(pause/2) //nolint:gosec // spread, not secrecy
	switch {
	case d.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_BUSY:
		wait = time.Duration(d.GetRetryAfterMs()) * time.Millisecond
		return wait + rand.N(min(wait/2, firstPause)+1), true //nolint:gosec // as above
	case d.GetReason() == dtaskv1.ErrorReason_ERROR_REASON_NOT_LEADER && d.GetLeaderAddress() != "" && d.GetLeaderAddress() != addr:
		w.l.conns.setLeader(d.GetLeaderAddress())
		return rand.N(firstPause), true //nolint:gosec // as above
	}
	w.l.conns.forget(addr)
	return spread, false
}

// session holds one stream until it ends, and says why.
func (w *simulated) session(ctx context.Context, addr string) (welcomed bool, err error) {
	conn, err := w.l.conns.take(addr, w.index)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := dtaskv1.NewWorkerServiceClient(conn).Session(ctx)
	if err != nil {
		return false, err //nolint:wrapcheck // looked into by the caller
	}
	s := &session{stream: stream, conn: conn, cancel: cancel, heard: time.Now(), beat: 1}
	w.mu.Lock()
	w.s, w.sent = s, 0
	hello := &dtaskv1.SessionRequest{Fence: w.fence, Beat: 1, Hello: w.helloLocked()}
	s.sending = true
	w.mu.Unlock()
	err = stream.Send(hello)
	if err == nil {
		err = w.receive(s, addr)
	} else {
		_, err = stream.Recv() // has the reason
	}
	w.mu.Lock()
	w.s = nil
	welcomed = s.welcomed
	w.mu.Unlock()
	if welcomed {
		w.l.counts.open.Add(-1)
		switch {
		case errors.Is(context.Cause(ctx), errSilent):
			w.l.lost(errSilent)
		case ctx.Err() == nil:
			w.l.lost(err)
		}
	}
	if errors.Is(context.Cause(ctx), errSilent) && conn.silent(time.Now(), patience) {
		w.l.conns.leave(addr, w.index, conn)
	}
	return welcomed, err
}

// receive handles what comes until the stream ends.
func (w *simulated) receive(s *session, addr string) error {
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return err //nolint:wrapcheck // looked into by the caller
		}
		w.l.counts.received.Add(1)
		w.mu.Lock()
		if older(m.GetFence(), w.fence) {
			w.mu.Unlock()
			return errors.New("load: a deposed leader")
		}
		w.fence = m.GetFence()
		now := time.Now()
		s.heard = now
		s.conn.heard.Store(now.UnixNano())
		if !s.welcomed {
			s.welcomed, s.sending = true, false
			w.l.conns.setLeader(addr)
			w.l.noteOpen()
		}
		err = w.heedLocked(m, now)
		w.flush()
		if err != nil {
			return err
		}
	}
}

// heedLocked gives a message its effect.
func (w *simulated) heedLocked(m *dtaskv1.SessionResponse, now time.Time) error {
	if m.GetAck() != nil {
		w.acknowledgedLocked(m.GetAck())
	}
	for _, stop := range m.GetStops() {
		w.stopLocked(attemptOf(stop.GetAttempt()), now)
	}
	if err := w.assignedLocked(m.GetAssignments(), now); err != nil {
		return err
	}
	for _, a := range m.GetGiveBack() {
		w.giveBackLocked(attemptOf(a))
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

// beatNow sends a heartbeat, or leaves a leader that said nothing since a moment.
func (w *simulated) beatNow(since time.Time) {
	w.mu.Lock()
	s := w.s
	switch {
	case s == nil:
	case s.heard.Before(since):
		s.cancel(errSilent)
	case s.welcomed:
		s.beatDue = true
	}
	w.flush()
}

// flush sends what waits, as one message, and unlocks. While one goroutine sends,
// others leave their news to it.
func (w *simulated) flush() {
	for s := w.s; s != nil && s == w.s && !s.sending; {
		m := w.nextLocked(s)
		if m == nil {
			break
		}
		s.sending = true
		w.mu.Unlock()
		err := s.stream.Send(m)
		w.l.counts.sent.Add(1)
		w.mu.Lock()
		if err != nil {
			break // the stream has ended; whoever receives hears why
		}
		s.sending = false
	}
	w.mu.Unlock()
}

// nextLocked makes the next message, or nil.
func (w *simulated) nextLocked(s *session) *dtaskv1.SessionRequest {
	if !s.beatDue && w.sent == len(w.outcomes) {
		return nil
	}
	m := &dtaskv1.SessionRequest{Fence: w.fence}
	if s.beatDue {
		s.beatDue = false
		s.beat++
		m.Beat = s.beat
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
