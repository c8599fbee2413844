package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	// livenessTimeout is how long a leader may be silent. Transport keepalive
	// cannot replace it: its shortest period is longer.
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
	dirty         bool // the attempt table may have something to send
	heartbeatDue  bool
	leaving       bool   // the leader knows it in this session
	goodbye       uint64 // the heartbeat that came with it; 0 = none
	trusts        []byte // the CAs that the leader knows of
	lastHeartbeat uint64
	unanswered    map[uint64]time.Time // when unanswered heartbeats were sent
	watchdog      *time.Timer
	timeout       time.Duration // liveness timeout of this session
	freshness     time.Duration // how long its answered heartbeats confirm that the worker is up
	ticker        *time.Ticker
	logChunk      *dtaskv1.LogData // sent next
	readers       map[uint64]context.CancelFunc
	reading       sync.WaitGroup

	others    []string    // addresses of other coordinators
	awaiting  bool        // a message was sent, and none received since
	suspect   *time.Timer // expires when the leader should have answered
	endSearch context.CancelFunc
	successor chan *successorError // size 1
	searching sync.WaitGroup
}

// session opens one session with the replica at addr; others are the addresses
// of other coordinators, which a late worker asks for the leader if this one hangs. It
// returns when the session has ended, with all its goroutines, and why.
func (w *Worker) session(ctx context.Context, addr string, others []string, late bool) (welcomed bool, err error) {
	conn, err := w.connect(addr)
	if err != nil {
		return false, err
	}
	w.releaseKept() // this session uses it, if it leads to the same coordinator
	stopping := ctx
	defer func() {
		if stopping.Err() == nil && errorDetail(err).GetReason() == dtaskv1.ErrorReason_ERROR_REASON_BUSY {
			w.kept = conn
			return
		}
		w.conns.release(conn, stopping.Err() != nil || errorDetail(err) != nil)
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	s := &session{
		w: w, addr: addr, log: w.log.With("coordinator", addr), slot: conn.open(w.authorized(ctx)), logs: make(chan *dtaskv1.LogData),
		unanswered: map[uint64]time.Time{}, readers: map[uint64]context.CancelFunc{}, timeout: w.liveness,
		others: others, successor: make(chan *successorError, 1),
	}
	// One watchdog for everything that can hang: connecting, sending,
	// receiving.
	s.watchdog = time.AfterFunc(w.liveness, func() { cancel(errLivenessTimeout) })
	s.ticker = time.NewTicker(defaultInterval)
	s.suspect = time.NewTimer(suspicion)
	if s.suspect.Stop(); late { // otherwise, until something is sent
		s.awaitAnswer(openingSuspicion)
	}
	defer func() {
		s.watchdog.Stop()
		s.ticker.Stop()
		s.suspect.Stop()
		cancel(nil)
		s.slot.leave()
		s.reading.Wait()
		s.heard() // ends the search
		s.searching.Wait()
	}()
	err = s.loop(ctx)
	if s.welcomed {
		w.attempts.sessionEnded()
	}
	return s.welcomed, err
}

// loop blocks only in its select statement.
func (s *session) loop(ctx context.Context) error {
	s.slot.send(s.hello())
	for {
		if s.idle {
			s.sendNext()
		}
		logs := s.logs
		if !s.idle || s.logChunk != nil {
			logs = nil // a nil channel is never ready: chunks are sent one at a time
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
			// Yield once: attempts that end meanwhile share the message.
			runtime.Gosched()
			s.dirty = true
		case <-s.ticker.C:
			s.heartbeatDue = true
		case <-s.suspect.C:
			s.search(ctx)
		case found := <-s.successor:
			if s.isSucceeded(found) {
				return found
			}
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
	s.heard()
	return nil
}

// hello returns the first message: the attempts that this worker holds, and
// those whose outcome is not acknowledged.
func (s *session) hello() *dtaskv1.SessionRequest {
	w := s.w
	held, ended, next := w.attempts.startSession()
	s.leaving = w.attempts.isDraining()
	s.trusts = w.trustHash()
	m := &dtaskv1.SessionRequest{
		Fence: w.fence.message(), Heartbeat: s.newHeartbeat(), Leaving: s.leaving, Trust: s.trusts,
		Hello: &dtaskv1.Hello{
			Name: w.name, Incarnation: w.incarnation, Slots: uint32(w.cfg.Slots), //nolint:gosec // at most maxSlots
			Prefetch: uint32(w.cfg.Prefetch), //nolint:gosec // at most maxSlots
			Labels:   w.cfg.Labels, Resources: w.resources, Types: w.types, Secrets: w.secrets.announced(), Reserved: w.cfg.Reserved,
			Held: held, Ended: ended, NextReport: next,
			Version: w.cfg.Version, Address: w.host, LockId: w.dirs.lockID,
			Os: runtime.GOOS, Arch: runtime.GOARCH, Isolation: w.isolation(),
		},
	}
	if s.leaving {
		s.goodbye = s.lastHeartbeat
	}
	return m
}

// isolation returns how commands are separated from the worker and from each other, as the
// label isolation has it.
func (w *Worker) isolation() string {
	if w.cfg.RunAs != "" {
		return "user"
	}
	return "none"
}

func (s *session) newHeartbeat() uint64 {
	s.lastHeartbeat++
	s.unanswered[s.lastHeartbeat] = time.Now()
	return s.lastHeartbeat
}

// sendNext sends one message with everything that is pending, if there is
// anything.
func (s *session) sendNext() {
	if !s.welcomed {
		return
	}
	if len(s.unanswered) == 0 && s.w.attempts.confirmed.requested.Swap(false) {
		s.heartbeatDue = true
	}
	m := &dtaskv1.SessionRequest{LogData: s.logChunk, Leaving: s.w.attempts.isDraining()}
	if s.dirty || s.heartbeatDue {
		m.Reports = s.w.attempts.take(s.heartbeatDue)
		s.dirty = false
	}
	startsLeaving := m.GetLeaving() && !s.leaving
	if m.GetReports() == nil && m.GetLogData() == nil && !s.heartbeatDue && !startsLeaving {
		return
	}
	if s.heartbeatDue || startsLeaving {
		m.Heartbeat = s.newHeartbeat()
		s.heartbeatDue = false
		if trusts := s.w.trustHash(); !bytes.Equal(trusts, s.trusts) {
			m.Trust, s.trusts = trusts, trusts
		}
	}
	if startsLeaving {
		s.leaving, s.goodbye = true, s.lastHeartbeat
	}
	m.Fence = s.w.fence.message()
	s.logChunk, s.idle = nil, false
	if m.GetHeartbeat() != 0 || m.GetReports().GetOutcomes() != nil {
		s.awaitAnswer(suspicion)
	}
	s.slot.send(m)
}

// handle applies a message of the leader.
func (s *session) handle(ctx context.Context, m *dtaskv1.SessionResponse) error {
	if err := s.w.fence.admit(m.GetFence()); err != nil {
		s.logRejected(err, m.GetFence())
		return err
	}
	s.watchdog.Reset(s.timeout)
	if !s.welcomed {
		if m.GetWelcome() == nil {
			return fmt.Errorf("%w: first message is not a welcome", errProtocol)
		}
		s.welcome(m)
	}
	for _, result := range m.GetCheckpointResults() {
		s.checkpointAnswered(result)
	}
	if m.GetAck() != nil {
		s.acknowledged(m.GetAck())
	}
	for _, stop := range m.GetStops() {
		s.stop(stop)
	}
	if m.GetDrain() != nil {
		s.log.InfoContext(ctx, "drain state changed by operator", "draining", m.GetDrain().GetDraining())
		s.w.attempts.cordon(m.GetDrain().GetDraining())
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
	if m.GetTrust() != nil {
		s.w.storeTrust(m.GetTrust())
	}
	// Last: it lets attempts start that this message may have stopped. The
	// welcome answers the hello, even if it doesn't repeat its heartbeat.
	if m.GetWelcome() != nil {
		s.answered(1)
	}
	if m.GetHeartbeat() != 0 {
		s.answered(m.GetHeartbeat())
	}
	return nil
}

// welcome opens the session with the leader's settings.
func (s *session) welcome(m *dtaskv1.SessionResponse) {
	interval := defaultInterval
	if ms := m.GetWelcome().GetHeartbeatIntervalMs(); ms > 0 {
		interval = max(time.Duration(ms)*time.Millisecond, minInterval)
	}
	s.timeout = max(s.w.liveness, 2*interval)
	s.watchdog.Reset(s.timeout)
	s.ticker.Reset(interval)
	s.freshness = freshnessFor(time.Duration(m.GetWelcome().GetLivenessTimeoutMs()) * time.Millisecond)
	s.w.lease.set(time.Duration(m.GetWelcome().GetLeaseMs()) * time.Millisecond)
	s.w.attempts.cordon(m.GetWelcome().GetDraining())
	s.welcomed, s.dirty = true, true
	s.w.keepName()
	s.w.attempts.sessionOpened()
	s.log.Info("session opened", "worker_id", m.GetWelcome().GetWorkerId(), "term", m.GetFence().GetTerm())
}

// answered records that the leader received a heartbeat, and so all before it.
func (s *session) answered(heartbeat uint64) {
	sent, ok := s.unanswered[heartbeat]
	if !ok {
		return
	}
	s.w.lease.renew(sent)
	s.w.attempts.confirm(sent, s.freshness)
	maps.DeleteFunc(s.unanswered, func(number uint64, _ time.Time) bool { return number <= heartbeat })
	if s.goodbye != 0 && heartbeat >= s.goodbye {
		s.w.attempts.goodbyeReceived()
	}
}

// acknowledged removes the outcomes that the leader has acknowledged.
func (s *session) acknowledged(ack *dtaskv1.Ack) {
	rejected := map[ref]bool{} // attempts whose tasks may continue elsewhere
	for _, e := range ack.GetExceptions() {
		r := refOf(e.GetAttempt())
		rejected[r] = e.GetVerdict() != dtaskv1.Verdict_VERDICT_ALREADY_ACCEPTED
		switch e.GetVerdict() {
		case dtaskv1.Verdict_VERDICT_SUPERSEDED:
			s.superseded(r, "outcome rejected")
		case dtaskv1.Verdict_VERDICT_UNKNOWN_TASK:
			s.log.Warn("outcome rejected: unknown task", r.attrs(), slog.Uint64("number", e.GetNumber()))
		case dtaskv1.Verdict_VERDICT_UNSPECIFIED, dtaskv1.Verdict_VERDICT_ACCEPTED, dtaskv1.Verdict_VERDICT_ALREADY_ACCEPTED:
		}
	}
	completed := s.w.attempts.acknowledge(ack.GetThrough())
	completed = slices.DeleteFunc(completed, func(a *attempt) bool { return rejected[a.ref] })
	if len(completed) > 0 {
		s.w.removals.Go(func() { s.w.discardCheckpoints(completed) })
	}
}

// superseded records that a task continues with a later attempt.
func (s *session) superseded(r ref, event string) {
	s.log.Info("attempt superseded", r.attrs(), slog.String("event", event))
	s.w.attempts.countSuperseded()
}

// checkpointAnswered records whether a checkpoint was saved, and removes those
// before it.
func (s *session) checkpointAnswered(result *dtaskv1.CheckpointResult) {
	a := s.w.attempts.checkpointAnswered(result)
	if a == nil || s.w.store == nil {
		return
	}
	dir := storeDir(s.w.fence.clusterID(), a.ref)
	s.w.removals.Go(func() {
		if err := s.w.store.removeOlder(dir, a.ref.attempt, result.GetNumber()); err != nil {
			s.log.Warn("removing older checkpoints failed", a.attrs(), slog.Any("err", err))
		}
	})
}

// stop ends an attempt on the leader's request.
func (s *session) stop(stop *dtaskv1.Stop) {
	r := refOf(stop.GetAttempt())
	if s.w.attempts.stop(r, stopCause(stop.GetReason())) && stop.GetReason() == dtaskv1.StopReason_STOP_REASON_SUPERSEDED {
		s.superseded(r, "stopped")
	}
}

// serve starts or stops a reader of a log.
func (s *session) serve(ctx context.Context, q *dtaskv1.LogRequest) {
	stop, known := s.readers[q.GetId()]
	switch {
	case known && q.GetCancel():
		stop()
		delete(s.readers, q.GetId())
		return
	case known || q.GetCancel():
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	s.readers[q.GetId()] = cancel
	s.reading.Go(func() {
		defer cancel()
		s.w.serveLog(ctx, q, func(d *dtaskv1.LogData) error {
			select {
			case s.logs <- d:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
}

func (s *session) logRejected(err error, m *dtaskv1.Fence) {
	if _, foreign := errors.AsType[*foreignClusterError](err); foreign {
		return // sessions logs it
	}
	s.log.Warn("leader is deposed", "term", m.GetTerm(), "expected", s.w.fence.message().GetTerm())
}
