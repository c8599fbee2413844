package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/sendqueue"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// slowStream is a stream whose worker process reads only when the test does.
type slowStream struct {
	grpc.ServerStream

	ctx    context.Context
	reads  chan *dtaskv1.SessionsResponse
	says   chan *dtaskv1.SessionsRequest
	frames []*dtaskv1.ResponseFrame // read and not returned by next yet
}

func newSlowStream(ctx context.Context) *slowStream {
	return &slowStream{ctx: ctx, reads: make(chan *dtaskv1.SessionsResponse), says: make(chan *dtaskv1.SessionsRequest, 16)}
}

// next returns the next frame.
func (d *slowStream) next() *dtaskv1.ResponseFrame {
	for len(d.frames) == 0 {
		select {
		case m := <-d.reads:
			d.frames = m.GetFrames()
		case <-d.ctx.Done():
			return nil
		}
	}
	f := d.frames[0]
	d.frames = d.frames[1:]
	return f
}

func (d *slowStream) Context() context.Context { return d.ctx }

func (d *slowStream) Send(m *dtaskv1.SessionsResponse) error {
	select {
	case d.reads <- m:
		return nil
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
}

func (d *slowStream) Recv() (*dtaskv1.SessionsRequest, error) {
	select {
	case m := <-d.says:
		return m, nil
	case <-d.ctx.Done():
		return nil, d.ctx.Err()
	}
}

// say sends a message of one session.
func (d *slowStream) say(number uint32, m *dtaskv1.SessionRequest) {
	d.says <- &dtaskv1.SessionsRequest{Frames: []*dtaskv1.RequestFrame{{Session: number, Message: m}}}
}

// frame reads until a frame satisfies a condition.
func (d *slowStream) frame(ok func(*dtaskv1.ResponseFrame) bool) *dtaskv1.ResponseFrame {
	for {
		if f := d.next(); f == nil || ok(f) {
			return f
		}
	}
}

// crowded is a leader that attaches all workers, and accepts reports when the
// test allows it.
type crowded struct {
	*obliging

	mu       sync.Mutex // guards the rest
	next     fsm.WorkerID
	left     fsm.WorkerID                   // number of detached workers
	full     map[fsm.WorkerID]chan struct{} // closed when reports are accepted
	accepted map[fsm.WorkerID][]uint64      // numbers of the accepted reports
	asked    map[fsm.WorkerID]sequencer.Session
}

func newCrowded() *crowded {
	return &crowded{obliging: newObliging(), full: make(map[fsm.WorkerID]chan struct{}), accepted: make(map[fsm.WorkerID][]uint64), asked: make(map[fsm.WorkerID]sequencer.Session)}
}

func (l *crowded) Attach(_ context.Context, _ sequencer.Hello, s sequencer.Session) (sequencer.Welcome, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	l.asked[l.next] = s
	return sequencer.Welcome{Worker: l.next}, nil
}

func (l *crowded) Detach(fsm.WorkerID, sequencer.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left++
}

func (l *crowded) TryReport(id fsm.WorkerID, _ sequencer.Session, r *dtaskv1.Reports, _ bool) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full[id] != nil {
		return false, nil
	}
	l.accepted[id] = append(l.accepted[id], r.GetOutcomes().GetFirst())
	return true, nil
}

func (l *crowded) Report(ctx context.Context, id fsm.WorkerID, s sequencer.Session, r *dtaskv1.Reports, leaving bool) error {
	l.mu.Lock()
	full := l.full[id]
	l.mu.Unlock()
	if full != nil {
		select {
		case <-full:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l.mu.Lock()
	delete(l.full, id)
	l.mu.Unlock()
	_, err := l.TryReport(id, s, r, leaving)
	return err
}

// withSessions runs a test with open sessions that share a stream.
func withSessions(t *testing.T, sessions uint32, test func(d *slowStream, l *crowded)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newCrowded()
		s := testService(l.obliging)
		s.cfg.Current = func() Leader { return l }
		ctx, cancel := context.WithCancel(t.Context())
		d := newSlowStream(ctx)
		var handler sync.WaitGroup
		handler.Go(func() {
			if err := s.Sessions(d); err != nil {
				t.Errorf("the stream ended with %v", err)
			}
		})
		for i := range sessions {
			d.say(i+1, &dtaskv1.SessionRequest{Hello: &dtaskv1.Hello{Name: fmt.Sprint(i + 1), Incarnation: "a", Slots: 1}})
			f := d.frame(func(*dtaskv1.ResponseFrame) bool { return true })
			if f.GetSession() != i+1 || f.GetMessage().GetWelcome().GetWorkerId() != i+1 {
				t.Fatalf("got %v, want a welcome in session %d", f, i+1)
			}
		}
		test(d, l)
		cancel()
		handler.Wait()
		if l.left != l.next {
			t.Errorf("the stream ended, and %d of %d workers are detached", l.left, l.next)
		}
	})
}

func reportOf(first uint64) *dtaskv1.SessionRequest {
	return &dtaskv1.SessionRequest{Reports: &dtaskv1.Reports{Outcomes: &dtaskv1.Outcomes{First: first}}}
}

func heartbeatIn(session uint32, beat uint64) func(*dtaskv1.ResponseFrame) bool {
	return func(f *dtaskv1.ResponseFrame) bool {
		return f.GetSession() == session && f.GetMessage().GetHeartbeat() == beat
	}
}

func TestASessionWithPendingReportsDelaysNoOther(t *testing.T) {
	t.Parallel()
	withSessions(t, 2, func(d *slowStream, l *crowded) {
		free := make(chan struct{})
		l.mu.Lock()
		l.full[1] = free
		l.mu.Unlock()
		const reports = 20
		for i := range uint64(reports) {
			d.say(1, reportOf(i))
		}
		d.say(1, &dtaskv1.SessionRequest{Heartbeat: 7})
		d.frame(heartbeatIn(1, 7)) // its heartbeats are answered
		d.say(2, reportOf(5))
		d.say(2, &dtaskv1.SessionRequest{Heartbeat: 9})
		d.frame(heartbeatIn(2, 9))
		l.mu.Lock()
		if len(l.accepted[1]) != 0 || len(l.accepted[2]) != 1 {
			t.Errorf("accepted: %v", l.accepted)
		}
		l.mu.Unlock()
		close(free)
		synctest.Wait()
		d.say(1, reportOf(reports))
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		for i := range uint64(reports + 1) {
			if uint64(len(l.accepted[1])) <= i || l.accepted[1][i] != i {
				t.Fatalf("accepted: %v, want %d in order", l.accepted[1], reports+1)
			}
		}
	})
}

func TestASessionThatExceedsItsBoundsIsEnded(t *testing.T) {
	t.Parallel()
	withSessions(t, 2, func(d *slowStream, l *crowded) {
		l.mu.Lock()
		l.full[1] = make(chan struct{})
		l.mu.Unlock()
		for i := range uint64(maxPending + 10) {
			d.say(1, reportOf(i))
		}
		f := d.frame(func(f *dtaskv1.ResponseFrame) bool { return f.GetEnd() != nil })
		if f.GetSession() != 1 || f.GetEnd().GetCode() == uint32(codes.OK) {
			t.Errorf("got %v, want the end of the first session", f)
		}
		d.say(1, reportOf(1)) // the session is unknown now
		d.say(2, &dtaskv1.SessionRequest{Heartbeat: 9})
		d.frame(heartbeatIn(2, 9))
	})
}

func TestGatheredDataOfManySessionsSharesAMessage(t *testing.T) {
	t.Parallel()
	const sessions = 50
	withSessions(t, sessions, func(d *slowStream, l *crowded) {
		stop := func(n uint32) {
			for id := range fsm.WorkerID(sessions) {
				a := fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1, Index: n}, Attempt: 1}
				l.asked[id+1].Send(sequencer.WorkerMessage{Stops: []sequencer.Stop{{Attempt: a}}})
			}
			for id := range fsm.WorkerID(sessions) {
				l.asked[id+1].Flush()
			}
		}
		stop(1) // the first message blocks
		synctest.Wait()
		stop(2)
		stop(3)
		messages, stops := 0, 0
		for stops < 3*sessions {
			m := <-d.reads
			messages++
			for _, f := range m.GetFrames() {
				for _, s := range f.GetMessage().GetStops() {
					if stops++; s.GetAttempt().GetTask() == 0 {
						t.Errorf("got %v", f)
					}
				}
			}
		}
		if messages != 2 {
			t.Errorf("%d messages, want the one being sent and another", messages)
		}
	})
}

func TestTheEndOfASessionDoesNotEndOthers(t *testing.T) {
	t.Parallel()
	withSessions(t, 3, func(d *slowStream, l *crowded) {
		l.asked[1].Close(errReason) // by the leader
		f := d.frame(func(f *dtaskv1.ResponseFrame) bool { return f.GetEnd() != nil })
		if f.GetSession() != 1 || f.GetEnd().GetMessage() != errReason.Error() {
			t.Errorf("got %v, want the end of the first session with its reason", f)
		}
		d.says <- &dtaskv1.SessionsRequest{Frames: []*dtaskv1.RequestFrame{{Session: 2, End: true}}} // by the worker
		f = d.frame(func(f *dtaskv1.ResponseFrame) bool { return f.GetEnd() != nil })
		if f.GetSession() != 2 || f.GetEnd().GetCode() != uint32(codes.OK) {
			t.Errorf("got %v, want the end of the second session", f)
		}
		d.say(2, &dtaskv1.SessionRequest{Hello: &dtaskv1.Hello{Name: "again", Incarnation: "a"}}) // a number is used once
		d.say(3, &dtaskv1.SessionRequest{Heartbeat: 3})
		d.frame(heartbeatIn(3, 3))
		d.say(9, &dtaskv1.SessionRequest{Heartbeat: 1}) // without a hello
		f = d.frame(func(f *dtaskv1.ResponseFrame) bool { return f.GetEnd() != nil })
		if f.GetSession() != 9 || f.GetEnd().GetMessage() != ErrNoHello.Error() {
			t.Errorf("got %v, want the rejection of the ninth session", f)
		}
		d.say(3, &dtaskv1.SessionRequest{Heartbeat: 4})
		d.frame(heartbeatIn(3, 4))
		if l.next != 3 {
			t.Errorf("%d workers were attached, want 3", l.next)
		}
	})
}

func TestABrokenStreamEndsAllItsSessions(t *testing.T) {
	t.Parallel()
	withSessions(t, 10, func(_ *slowStream, l *crowded) {
		if l.left != 0 {
			t.Errorf("%d workers are detached before the end", l.left)
		}
	})
}

func TestAMessageOfManySessionsHasABound(t *testing.T) {
	t.Parallel()
	m := &muxStream{out: sendqueue.New[*streamSlot, *dtaskv1.ResponseFrame, dtaskv1.SessionsResponse](), slots: make(map[uint32]*streamSlot)}
	for i := range uint32(3 * maxFrames) {
		slot := &streamSlot{m: m, number: i, ctx: t.Context()}
		slot.session = newSession(nil, nil, slot)
		slot.session.heartbeat = 1
		slot.open.Store(true)
		slot.wake()
	}
	total := 0
	if err := m.out.Drain(m.pack, func(m *dtaskv1.SessionsResponse) error {
		n := len(m.GetFrames())
		if total += n; n == 0 || n > maxFrames || n*frameOverhead > 2*maxMessageBytes {
			t.Errorf("a message of %d frames", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if total != 3*maxFrames {
		t.Errorf("%d frames, want one of each session", total)
	}
}

// A process that opens ever more sessions must open the next one later. Its stream and its
// other sessions stay.
func TestAStreamHasAtMost20000Sessions(t *testing.T) {
	t.Parallel()
	_, err := new(muxStream).admit(maxSessions)
	if busy, ok := errors.AsType[*sequencer.BusyError](err); !ok || busy.RetryAfter == 0 || maxSessions != 20_000 {
		t.Errorf("got %v", err)
	}
}
