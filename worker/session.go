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
	// livenessTimeout is how long a leader may be silent. Transport keepalive cannot
	// replace it: its shortest period is longer.
	livenessTimeout = 2 * time.Second
	defaultInterval = time.Second
	minInterval     = 10 * time.Millisecond
)

// session is one registration with one leader. Its loop owns its state.
type session struct {
	w    *Worker
	addr string
	log  *slog.Logger
	slot *streamSlot           // sends and receives; never sent to while a send is in flight
	logs chan *dtaskv1.LogData // from goroutines that read logs; unbuffered, so that they wait for the stream

	welcomed      bool
	idle          bool // no send is in flight
	dirty         bool // the ledger may have something to send
	heartbeatDue  bool
	leaving       bool // it was said in this session
	goodbye       uint64
	lastHeartbeat uint64
	unanswered    map[uint64]time.Time // when unanswered beats were sent
	silence       *time.Timer
	timeout       time.Duration // liveness timeout of this session
	ticker        *time.Ticker
	logChunk      *dtaskv1.LogData // to be sent next
	readers       map[uint64]context.CancelFunc
	reading       sync.WaitGroup
}

// session opens one session with the replica at addr. It returns when the session has
// ended, with all its goroutines, and why.
func (w *Worker) session(ctx context.Context, addr string) (welcomed bool, err error) {
	conn, err := w.connect(addr)
	if err != nil {
		return false, err
	}
	stopping := ctx
	defer func() { w.conns.release(conn, stopping.Err() != nil || errorDetail(err) != nil) }()
	ctx, cancel := context.WithCancelCause(ctx)
	s := &session{
		w: w, addr: addr, log: w.log.With("coordinator", addr), slot: conn.open(w.authorized(ctx)), logs: make(chan *dtaskv1.LogData),
		unanswered: map[uint64]time.Time{}, readers: map[uint64]context.CancelFunc{}, timeout: livenessTimeout,
	}
	// One watchdog for everything that can hang: connecting, sending, receiving.
	s.silence = time.AfterFunc(livenessTimeout, func() { cancel(errLivenessTimeout) })
	s.ticker = time.NewTicker(defaultInterval)
	defer func() {
		s.silence.Stop()
		s.ticker.Stop()
		cancel(nil)
		s.slot.leave()
		s.reading.Wait()
	}()
	err = s.loop(ctx)
	if s.welcomed {
		w.attempts.sessionEnded()
	}
	return s.welcomed, err
}

// loop never blocks but in its one select.
func (s *session) loop(ctx context.Context) error {
	s.slot.send(s.hello())
	for {
		if s.idle {
			s.sendNext()
		}
		logs := s.logs
		if !s.idle || s.logChunk != nil {
			logs = nil // a nil channel is never ready: one piece at a time
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.slot.arrived:
			if err := s.receive(ctx); err != nil {
				return err
			}
		case <-s.slot.sent:
			s.idle = true
		case <-s.w.attempts.wake:
			// Let the slots go on for a moment: what ends meanwhile shares the message.
			runtime.Gosched()
			s.dirty = true
		case <-s.ticker.C:
			s.heartbeatDue = true
		case s.logChunk = <-logs:
			if s.logChunk.GetEnd() {
				delete(s.readers, s.logChunk.GetId())
			}
		}
	}
}

// receive handles all messages that have arrived.
func (s *session) receive(ctx context.Context) error {
	messages, err := s.slot.take()
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the coordinator ended the session")
	case err != nil:
		return fmt.Errorf("receiving: %w", err)
	}
	for _, m := range messages {
		if err := s.handle(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// hello opens the session with what this worker holds and owes.
func (s *session) hello() *dtaskv1.SessionRequest {
	w := s.w
	held, ended, next := w.attempts.startSession()
	s.leaving = w.attempts.isDraining()
	m := &dtaskv1.SessionRequest{
		Fence: w.fence.message(), Heartbeat: s.newHeartbeat(), Leaving: s.leaving,
		Hello: &dtaskv1.Hello{
			Name: w.cfg.Name, Incarnation: w.incarnation, Slots: uint32(w.cfg.Slots), //nolint:gosec // at most maxSlots
			Prefetch: uint32(w.cfg.Prefetch), //nolint:gosec // at most maxSlots
			Labels:   w.cfg.Labels, Resources: w.resources,
			Held: held, Ended: ended, NextReport: next,
			Version: w.cfg.Version, Address: w.host,
		},
	}
	if s.leaving {
		s.goodbye = s.lastHeartbeat
	}
	return m
}

func (s *session) newHeartbeat() uint64 {
	s.lastHeartbeat++
	s.unanswered[s.lastHeartbeat] = time.Now()
	return s.lastHeartbeat
}

// sendNext sends one message with everything that is pending, if there is anything.
func (s *session) sendNext() {
	if !s.welcomed {
		return
	}
	m := &dtaskv1.SessionRequest{LogData: s.logChunk, Leaving: s.w.attempts.isDraining()}
	if s.dirty || s.heartbeatDue {
		m.Reports = s.w.attempts.take(s.heartbeatDue)
		s.dirty = false
	}
	news := m.GetLeaving() && !s.leaving
	if m.GetReports() == nil && m.GetLogData() == nil && !s.heartbeatDue && !news {
		return
	}
	if s.heartbeatDue || news {
		m.Heartbeat = s.newHeartbeat()
		s.heartbeatDue = false
	}
	if news {
		s.leaving, s.goodbye = true, s.lastHeartbeat
	}
	m.Fence = s.w.fence.message()
	s.logChunk, s.idle = nil, false
	s.slot.send(m)
}

// handle gives a message of the leader its effect.
func (s *session) handle(ctx context.Context, m *dtaskv1.SessionResponse) error {
	if err := s.w.fence.admit(m.GetFence()); err != nil {
		s.logRefused(err, m.GetFence())
		return err
	}
	s.silence.Reset(s.timeout)
	if !s.welcomed {
		if m.GetWelcome() == nil {
			return fmt.Errorf("%w: its first message is no welcome", errProtocol)
		}
		s.welcome(m)
	}
	if m.GetHeartbeat() != 0 {
		s.answered(m.GetHeartbeat())
	}
	for _, answer := range m.GetCheckpointResults() {
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
		if err := s.w.attempts.accept(m.GetAssignments(), m.GetFence().GetEpoch()); err != nil {
			return err
		}
	}
	for _, granted := range m.GetStartGrants() {
		s.w.attempts.grant(refOf(granted))
	}
	if len(m.GetStealRequests()) > 0 {
		s.w.attempts.steal(m.GetStealRequests())
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
		interval = max(time.Duration(ms)*time.Millisecond, minInterval)
	}
	s.timeout = max(livenessTimeout, 2*interval)
	s.silence.Reset(s.timeout)
	s.ticker.Reset(interval)
	s.w.lease.set(time.Duration(m.GetWelcome().GetLeaseMs()) * time.Millisecond)
	s.w.attempts.cordon(m.GetWelcome().GetDraining())
	s.welcomed, s.dirty = true, true
	s.w.attempts.sessionOpened()
	s.answered(1) // the welcome answers the hello, whether or not it repeats its beat
	s.log.Info("session opened", "worker_id", m.GetWelcome().GetWorkerId(), "term", m.GetFence().GetTerm())
}

// answered notes that the leader heard a beat, and with it all before.
func (s *session) answered(beat uint64) {
	sent, ok := s.unanswered[beat]
	if !ok {
		return
	}
	s.w.lease.renewed(sent)
	for number := range s.unanswered {
		if number <= beat {
			delete(s.unanswered, number)
		}
	}
	if s.goodbye != 0 && beat >= s.goodbye {
		s.w.attempts.goodbyeReceived()
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
			s.w.attempts.countSuperseded()
		case dtaskv1.Verdict_VERDICT_UNKNOWN_TASK:
			s.log.Warn("outcome of a task that the cluster does not know", r.attrs(), slog.Uint64("number", e.GetNumber()))
		case dtaskv1.Verdict_VERDICT_UNSPECIFIED, dtaskv1.Verdict_VERDICT_ACCEPTED, dtaskv1.Verdict_VERDICT_ALREADY_ACCEPTED:
		}
	}
	completed := s.w.attempts.acknowledge(ack.GetThrough())
	completed = slices.DeleteFunc(completed, func(a *attempt) bool { return others[a.ref] })
	if len(completed) > 0 {
		s.w.removals.Go(func() { s.w.discardCheckpoints(completed) })
	}
}

// checkpointAnswered takes up what became of a checkpoint.
func (s *session) checkpointAnswered(answer *dtaskv1.CheckpointResult) {
	a := s.w.attempts.checkpointAnswered(answer)
	if a == nil || s.w.store == nil {
		return
	}
	dir := storeDir(s.w.fence.clusterID(), a.ref)
	s.w.removals.Go(func() {
		if err := s.w.store.removeOlder(dir, a.ref.attempt, answer.GetNumber()); err != nil {
			s.log.Warn("removing older checkpoints", a.attrs(), slog.Any("error", err))
		}
	})
}

// stop ends an attempt that the leader does not want any more.
func (s *session) stop(stop *dtaskv1.Stop) {
	r := refOf(stop.GetAttempt())
	if !s.w.attempts.stop(r, stopCause(stop.GetReason())) {
		return
	}
	if stop.GetReason() == dtaskv1.StopReason_STOP_REASON_SUPERSEDED {
		s.log.Info("superseded", r.attrs(), slog.String("by", "stop"))
		s.w.attempts.countSuperseded()
	}
}

// cordon heeds a person's order to drain, or its end.
func (s *session) cordon(on bool) {
	s.log.Info("drained by order of a person", "draining", on)
	s.w.attempts.cordon(on)
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
