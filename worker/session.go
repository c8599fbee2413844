package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// patience is how long a leader may say nothing. Keepalive of the transport
	// cannot do this: its shortest period is longer.
	patience        = 2 * time.Second
	defaultInterval = time.Second
	leastInterval   = 10 * time.Millisecond
)

// session is one registration with one leader. Its loop owns its state; the two
// pumps touch the stream and their channels only.
type session struct {
	w    *Worker
	addr string
	log  *slog.Logger

	in   chan *dtaskv1.SessionResponse // from pumpIn; unbuffered, so that a slow worker slows the leader
	out  chan *dtaskv1.SessionRequest  // to pumpOut; size 1, and never sent to while a send is in flight
	sent chan struct{}                 // from pumpOut after each send; size 1 as above
	logs chan *dtaskv1.LogData         // from goroutines that read logs; unbuffered, so that they wait for the stream

	welcomed bool
	idle     bool // no send is in flight
	dirty    bool // the ledger may have something to send
	beatDue  bool
	leaving  bool // it was said in this session
	farewell uint64
	beat     uint64
	beats    map[uint64]time.Time // when unanswered beats were sent
	silence  *time.Timer
	wait     time.Duration // patience of this session
	ticker   *time.Ticker
	piece    *dtaskv1.LogData // to be sent next
	readers  map[uint64]context.CancelFunc
	reading  sync.WaitGroup
}

// session makes one session with the replica at addr and returns when it has
// ended, with all its goroutines, and why.
func (w *Worker) session(ctx context.Context, addr string) (welcomed bool, err error) {
	conn, err := w.connect(addr)
	if err != nil {
		return false, err
	}
	defer func() { w.conns.giveBack(conn, ctx.Err() != nil || errorDetail(err) != nil) }()
	welcomed, err = w.sessionOver(ctx, addr, conn, w.shares)
	if errors.Is(err, errNoCarriers) {
		conn.isPlain()
		return w.sessionOver(ctx, addr, conn, false)
	}
	return welcomed, err
}

// sessionOver makes the session over a connection.
func (w *Worker) sessionOver(ctx context.Context, addr string, conn *connection, shared bool) (welcomed bool, err error) {
	ctx, cancel := context.WithCancelCause(w.authorized(ctx))
	s := &session{
		w: w, addr: addr, log: w.log.With("coordinator", addr),
		in: make(chan *dtaskv1.SessionResponse), out: make(chan *dtaskv1.SessionRequest, 1),
		sent: make(chan struct{}, 1), logs: make(chan *dtaskv1.LogData),
		beats: map[uint64]time.Time{}, readers: map[uint64]context.CancelFunc{}, wait: patience,
	}
	// One watchdog for everything that can hang: connecting, sending, hearing.
	s.silence = time.AfterFunc(patience, func() { cancel(errSilent) })
	s.ticker = time.NewTicker(defaultInterval)
	var pumps sync.WaitGroup
	leave := func() {}
	defer func() {
		s.silence.Stop()
		s.ticker.Stop()
		cancel(nil)
		leave()
		pumps.Wait()
		s.reading.Wait()
	}()
	over, leave, err := conn.begin(ctx, shared)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return false, fmt.Errorf("opening a session: %w", err)
	}
	pumps.Go(func() { cancel(s.pumpIn(ctx, over)) })
	pumps.Go(func() { s.pumpOut(ctx, over, cancel) })
	err = s.loop(ctx)
	if s.welcomed {
		w.ledger.sessionEnded()
	}
	return s.welcomed, err
}

// loop never blocks but in its one select.
func (s *session) loop(ctx context.Context) error {
	s.out <- s.hello()
	for {
		if s.idle {
			s.sendNext()
		}
		logs := s.logs
		if !s.idle || s.piece != nil {
			logs = nil // a nil channel is never ready: one piece at a time
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case m := <-s.in:
			if err := s.handle(ctx, m); err != nil {
				return err
			}
		case <-s.sent:
			s.idle = true
		case <-s.w.ledger.wake:
			// Let the slots go on for a moment: what ends meanwhile shares the message.
			runtime.Gosched()
			s.dirty = true
		case <-s.ticker.C:
			s.beatDue = true
		case s.piece = <-logs:
			if s.piece.GetEnd() {
				delete(s.readers, s.piece.GetId())
			}
		}
	}
}

// hello opens the session with what this worker holds and owes.
func (s *session) hello() *dtaskv1.SessionRequest {
	w := s.w
	held, ended, next := w.ledger.greet()
	s.leaving = w.ledger.isDraining()
	m := &dtaskv1.SessionRequest{
		Fence: w.fence.message(), Beat: s.newBeat(), Leaving: s.leaving,
		Hello: &dtaskv1.Hello{
			Name: w.cfg.Name, Incarnation: w.incarnation, Slots: uint32(w.cfg.Slots), //nolint:gosec // at most maxSlots
			Prefetch: uint32(w.cfg.Prefetch), //nolint:gosec // at most maxSlots
			Labels:   w.cfg.Labels, Resources: w.resources,
			Held: held, Ended: ended, NextReport: next,
			Version: w.cfg.Version, Address: w.host,
		},
	}
	if s.leaving {
		s.farewell = s.beat
	}
	return m
}

func (s *session) newBeat() uint64 {
	s.beat++
	s.beats[s.beat] = time.Now()
	return s.beat
}

// sendNext gives the pump one message with everything that is pending, if there
// is anything.
func (s *session) sendNext() {
	if !s.welcomed {
		return
	}
	m := &dtaskv1.SessionRequest{LogData: s.piece, Leaving: s.w.ledger.isDraining()}
	if s.dirty || s.beatDue {
		m.Reports = s.w.ledger.take(s.beatDue)
		s.dirty = false
	}
	news := m.GetLeaving() && !s.leaving
	if m.GetReports() == nil && m.GetLogData() == nil && !s.beatDue && !news {
		return
	}
	if s.beatDue || news {
		m.Beat = s.newBeat()
		s.beatDue = false
	}
	if news {
		s.leaving, s.farewell = true, s.beat
	}
	m.Fence = s.w.fence.message()
	s.piece, s.idle = nil, false
	s.out <- m
}

// handle gives a message of the leader its effect.
func (s *session) handle(ctx context.Context, m *dtaskv1.SessionResponse) error {
	if err := s.w.fence.admit(m.GetFence()); err != nil {
		s.logRefused(err, m.GetFence())
		return err
	}
	s.silence.Reset(s.wait)
	if !s.welcomed {
		if m.GetWelcome() == nil {
			return fmt.Errorf("%w: its first message is no welcome", errProtocol)
		}
		s.welcome(m)
	}
	if m.GetBeat() != 0 {
		s.answered(m.GetBeat())
	}
	for _, answer := range m.GetCheckpoints() {
		s.checkpointAnswered(answer)
	}
	if m.GetAck() != nil {
		s.acknowledged(m.GetAck())
	}
	for _, stop := range m.GetStops() {
		s.stop(stop)
	}
	if m.GetDrain() != nil {
		s.cordon(m.GetDrain().GetDraining())
	}
	if m.GetAssignments() != nil {
		if err := s.w.ledger.accept(m.GetAssignments(), m.GetFence().GetEpoch()); err != nil {
			return err
		}
	}
	for _, granted := range m.GetMayBegin() {
		s.w.ledger.grant(refOf(granted))
	}
	if len(m.GetGiveBack()) > 0 {
		s.w.ledger.giveBack(m.GetGiveBack())
	}
	if m.GetLogRequest() != nil {
		s.serve(ctx, m.GetLogRequest())
	}
	return nil
}

// welcome takes the leader's terms.
func (s *session) welcome(m *dtaskv1.SessionResponse) {
	interval := defaultInterval
	if ms := m.GetWelcome().GetHeartbeatIntervalMs(); ms > 0 {
		interval = max(time.Duration(ms)*time.Millisecond, leastInterval)
	}
	s.wait = max(patience, 2*interval)
	s.silence.Reset(s.wait)
	s.ticker.Reset(interval)
	s.w.lease.set(time.Duration(m.GetWelcome().GetLeaseMs()) * time.Millisecond)
	s.w.ledger.cordon(m.GetWelcome().GetDraining())
	s.welcomed, s.dirty = true, true
	s.w.ledger.sessionOpened()
	s.answered(1) // the welcome answers the hello, whether or not it repeats its beat
	s.log.Info("session opened", "worker_id", m.GetWelcome().GetWorkerId(), "term", m.GetFence().GetTerm())
}

// answered notes that the leader heard a beat, and with it all before.
func (s *session) answered(beat uint64) {
	sent, ok := s.beats[beat]
	if !ok {
		return
	}
	s.w.lease.renewed(sent)
	for number := range s.beats {
		if number <= beat {
			delete(s.beats, number)
		}
	}
	if s.farewell != 0 && beat >= s.farewell {
		s.w.ledger.farewellHeard()
	}
}

// acknowledged forgets outcomes that the leader has judged.
func (s *session) acknowledged(ack *dtaskv1.Ack) {
	others := map[ref]bool{} // whose tasks others go on with
	for _, e := range ack.GetExceptions() {
		r := refOf(e.GetAttempt())
		others[r] = e.GetVerdict() != dtaskv1.Verdict_VERDICT_ALREADY_ACCEPTED
		switch e.GetVerdict() {
		case dtaskv1.Verdict_VERDICT_SUPERSEDED:
			s.log.Info("superseded", r.attrs(), slog.Uint64("number", e.GetNumber()), slog.String("by", "verdict"))
			s.w.ledger.countSuperseded()
		case dtaskv1.Verdict_VERDICT_UNKNOWN_TASK:
			s.log.Warn("outcome of a task that the cluster does not know", r.attrs(), slog.Uint64("number", e.GetNumber()))
		case dtaskv1.Verdict_VERDICT_UNSPECIFIED, dtaskv1.Verdict_VERDICT_ACCEPTED, dtaskv1.Verdict_VERDICT_ALREADY_ACCEPTED:
		}
	}
	completed := s.w.ledger.acknowledge(ack.GetThrough())
	completed = slices.DeleteFunc(completed, func(a *attempt) bool { return others[a.ref] })
	if len(completed) > 0 {
		s.w.tidying.Go(func() { s.w.discardCheckpoints(completed) })
	}
}

// checkpointAnswered takes up what became of a checkpoint.
func (s *session) checkpointAnswered(answer *dtaskv1.CheckpointAnswer) {
	a := s.w.ledger.checkpointAnswered(answer)
	if a == nil || s.w.store == nil {
		return
	}
	dir := storedFolder(s.w.fence.clusterID(), a.ref)
	s.w.tidying.Go(func() {
		if err := s.w.store.removeOlder(dir, a.ref.attempt, answer.GetNumber()); err != nil {
			s.log.Warn("removing older checkpoints", a.attrs(), slog.Any("error", err))
		}
	})
}

// stop ends an attempt that the leader does not want any more.
func (s *session) stop(stop *dtaskv1.Stop) {
	r := refOf(stop.GetAttempt())
	if !s.w.ledger.stop(r, stopCause(stop.GetReason())) {
		return
	}
	if stop.GetReason() == dtaskv1.StopReason_STOP_REASON_SUPERSEDED {
		s.log.Info("superseded", r.attrs(), slog.String("by", "stop"))
		s.w.ledger.countSuperseded()
	}
}

// cordon heeds a person's order to drain, or its end.
func (s *session) cordon(on bool) {
	s.log.Info("drained by order of a person", "draining", on)
	s.w.ledger.cordon(on)
}

// serve starts or ends the reading of a log.
func (s *session) serve(ctx context.Context, q *dtaskv1.LogRequest) {
	if end, ok := s.readers[q.GetId()]; ok || q.GetCancel() {
		if q.GetCancel() && ok {
			end()
			delete(s.readers, q.GetId())
		}
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s.readers[q.GetId()] = cancel
	s.reading.Go(func() {
		defer cancel()
		s.w.serveLog(ctx, q, func(d *dtaskv1.LogData) error {
			// The reader uses its buffer again as soon as this returns.
			d.Data = append([]byte(nil), d.GetData()...)
			select {
			case s.logs <- d:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
}

func (s *session) logRefused(err error, m *dtaskv1.Fence) {
	if errors.Is(err, errForeignCluster) {
		s.log.Error("this coordinator belongs to another cluster; check --join",
			"cluster", m.GetClusterId(), "expected", s.w.fence.clusterID())
		return
	}
	s.log.Warn("ignoring a deposed leader", "term", m.GetTerm(), "expected", s.w.fence.message().GetTerm())
}

func (s *session) pumpIn(ctx context.Context, stream stream) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the coordinator ended the session")
		}
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		select {
		case s.in <- m:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *session) pumpOut(ctx context.Context, stream stream, cancel context.CancelCauseFunc) {
	for {
		select {
		case m := <-s.out:
			err := stream.Send(m)
			if errors.Is(err, io.EOF) {
				return // the stream has ended; pumpIn hears why
			}
			if err != nil {
				cancel(fmt.Errorf("sending: %w", err))
				return
			}
			s.sent <- struct{}{}
		case <-ctx.Done():
			return
		}
	}
}
