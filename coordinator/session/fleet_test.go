package session

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// slow is a leader that attaches one worker after another, each in the same
// time.
type slow struct {
	*obliging

	takes   time.Duration
	turn    chan struct{} // size 1
	present atomic.Int64  // workers being attached
	most    atomic.Int64
	heldOff atomic.Int64
}

func newSlow(takes time.Duration) *slow {
	return &slow{obliging: newObliging(), takes: takes, turn: make(chan struct{}, 1)}
}

func (l *slow) Attach(ctx context.Context, _ sequencer.Hello, _ sequencer.Session) (sequencer.Welcome, error) {
	n := l.present.Add(1)
	defer l.present.Add(-1)
	for {
		most := l.most.Load()
		if n <= most || l.most.CompareAndSwap(most, n) {
			break
		}
	}
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return sequencer.Welcome{}, context.Cause(ctx)
	}
	time.Sleep(l.takes) // virtual time
	<-l.turn
	return sequencer.Welcome{Worker: 1}, nil
}

func (l *slow) Detach(fsm.WorkerID, sequencer.Session) {}
func (l *slow) AllowReconnectsUntil(time.Time)         { l.heldOff.Add(1) }

// welcomed is a stream whose worker says hello and reads.
type welcomed struct {
	*slowStream

	in    func() // called with the welcome
	leave context.CancelFunc
}

func (w *welcomed) Send(m *dtaskv1.SessionsResponse) error {
	for _, f := range m.GetFrames() {
		switch {
		case f.GetEnd() != nil:
			w.leave()
		case f.GetMessage().GetWelcome() != nil:
			w.in()
		}
	}
	return nil
}

type resultKey struct{}

// keepResult is a guard that stores why the session of a stream ended.
func keepResult(ctx context.Context, call func() error) error {
	err := call()
	if result, ok := ctx.Value(resultKey{}).(*error); ok {
		*result = err
	}
	return err
}

// comes lets a worker connect until it is admitted, after each delay that it is
// given, and returns how often it was rejected.
func comes(ctx context.Context, s *Service, in func()) (rejected int) {
	for {
		var result error
		stream, cancel := context.WithCancel(context.WithValue(ctx, resultKey{}, &result))
		w := &welcomed{slowStream: newSlowStream(stream), in: in, leave: cancel}
		w.say(1, &dtaskv1.SessionRequest{Hello: &dtaskv1.Hello{Name: "w", Incarnation: "a", Slots: 1}})
		if w.ctx, result = s.Enter(stream); result == nil {
			_ = s.Sessions(w) //nolint:contextcheck // it is the stream's
		}
		cancel()
		var busy *sequencer.BusyError
		if !errors.As(result, &busy) {
			return rejected
		}
		rejected++
		time.Sleep(busy.RetryAfter)
	}
}

// A leader with little CPU opens a quarter of the sessions that the admission
// rate allows. It never opens more than maxOpening concurrently, admits all
// workers in the time that it needs for them, and workers retry only a few
// times.
func TestThousandsOfConcurrentSessionsAreOpenedGradually(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const workers, takes = 5_000, 2 * time.Millisecond
		l := newSlow(takes)
		s := New(Config{Current: func() Leader { return l }, Machine: fsm.NewMachine(), Logger: slog.New(slog.DiscardHandler), Guard: keepResult})
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var last, away atomic.Int64
		var in atomic.Int64
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				n := comes(ctx, s, func() {
					last.Store(int64(time.Since(began)))
					if in.Add(1) == workers {
						cancel()
					}
				})
				away.Add(int64(n))
			})
		}
		guard := time.AfterFunc(5*time.Minute, cancel)
		all.Wait()
		guard.Stop()
		if in.Load() != workers {
			t.Fatalf("%d of %d workers admitted after five minutes", in.Load(), workers)
		}
		t.Logf("at most %d concurrently, the last after %v, %d rejections", l.most.Load(), time.Duration(last.Load()), away.Load())
		if most := l.most.Load(); most > maxOpening {
			t.Errorf("%d sessions opened concurrently, want at most %d", most, maxOpening)
		}
		if took, limit := time.Duration(last.Load()), workers*takes*3/2; took > limit {
			t.Errorf("the last worker was admitted after %v, want within %v", took, limit)
		}
		if n := away.Load(); n > 3*workers {
			t.Errorf("%d workers were rejected %d times", workers, n)
		}
		if l.heldOff.Load() != away.Load() {
			t.Errorf("the leader knows %d of %d rejections", l.heldOff.Load(), away.Load())
		}
	})
}

// A stream that opens no session does not keep its turn.
func TestATurnEndsWithoutASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := testService(newObliging())
		fill := func() (contexts []context.Context) {
			for {
				ctx, err := s.Enter(t.Context())
				if err != nil {
					return contexts
				}
				contexts = append(contexts, ctx)
			}
		}
		contexts := fill()
		if free := len(contexts); free < 16 || free > maxOpening {
			t.Errorf("%d streams may open at once, want at most %d", free, maxOpening)
		}
		for _, ctx := range contexts { // the process leaves before it opens a session
			gone, cancel := context.WithCancel(ctx)
			cancel()
			_ = s.Sessions(newSlowStream(gone))
		}
		if s.admit.opening != 0 {
			t.Errorf("%d turns remain after the end of their streams", s.admit.opening)
		}
		time.Sleep(time.Second)
		if len(fill()) == 0 {
			t.Error("no turn is free")
		}
		time.Sleep(helloGrace)
		synctest.Wait()
		if s.admit.opening != 0 {
			t.Errorf("%d turns remain after the grace period", s.admit.opening)
		}
	})
}

// A session of a stream that holds other sessions waits for a turn of its own.
func TestOnlyTheFirstSessionUsesTheTurnOfItsStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newObliging()
		s := testService(o)
		ctx, cancel := context.WithCancel(t.Context())
		entered, err := s.Enter(ctx)
		if err != nil {
			t.Fatal(err)
		}
		d := newSlowStream(entered)
		var handler sync.WaitGroup
		handler.Go(func() { _ = s.Sessions(d) })
		before := s.admit.next
		for i := range uint32(3) {
			d.say(i+1, &dtaskv1.SessionRequest{Hello: &dtaskv1.Hello{Name: "w", Incarnation: "a", Slots: 1}})
			d.next()
		}
		if took := s.admit.next.Sub(before) / s.admit.step; took != 2 {
			t.Errorf("three sessions used %d turns in addition to that of the stream, want 2", took)
		}
		cancel()
		handler.Wait()
	})
}

// Streams without messages do not occupy turns.
func TestStreamsWithoutAHelloDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newObliging()
		s := testService(o)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range maxOpening {
			entered, err := s.Enter(ctx)
			if err != nil {
				t.Fatal(err)
			}
			d := newSlowStream(entered)
			if i%2 == 0 {
				d.says <- &dtaskv1.SessionsRequest{Frames: []*dtaskv1.RequestFrame{{Session: 1}}} // a session without a hello
			}
			all.Go(func() { _ = s.Sessions(d) })
			time.Sleep(time.Millisecond)
		}
		time.Sleep(helloGrace)
		all.Go(func() { comes(ctx, s, cancel) })
		all.Wait()
		if <-o.sessions == nil {
			t.Error("no session")
		}
	})
}

// Messages that are queued while a heartbeat is answered, or while the sender
// is about to wait, are sent once and in order.
func TestNothingIsLostBetweenHeartbeatsAndMessages(t *testing.T) {
	t.Parallel()
	const orders = 2000
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // it measures nothing
	o := newObliging()
	d := newSlowStream(ctx)
	var all sync.WaitGroup
	all.Go(func() { _ = testService(o).Sessions(d) })
	d.say(1, &dtaskv1.SessionRequest{Hello: &dtaskv1.Hello{Name: "w", Incarnation: "a", Slots: 1}})
	s := <-o.sessions
	// More messages than a session keeps before it is open would end it.
	if d.next().GetMessage().GetWelcome() == nil {
		t.Fatal("the first message is not a welcome")
	}
	all.Go(func() {
		for beat := uint64(1); ; beat++ {
			select {
			case d.says <- &dtaskv1.SessionsRequest{Frames: []*dtaskv1.RequestFrame{{Session: 1, Message: &dtaskv1.SessionRequest{Heartbeat: beat}}}}:
			case <-ctx.Done():
				return
			}
		}
	})
	next, beats := uint32(0), uint64(0)
	for i := range uint32(orders) {
		a := fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1, Index: i}, Attempt: 1}
		s.Send(sequencer.WorkerMessage{StartGrants: []fsm.AttemptRef{a}})
		s.Flush()
		for wait := i % 5; next <= i || wait > 0; { // some answers between two messages, or none
			m := d.next().GetMessage()
			if m == nil {
				t.Fatalf("message %d of %d is missing", next, orders)
			}
			for _, got := range m.GetStartGrants() {
				if got.GetTask() != next {
					t.Fatalf("got message %d, want %d", got.GetTask(), next)
				}
				next++
			}
			if b := m.GetHeartbeat(); b > 0 {
				if b < beats {
					t.Fatalf("heartbeat %d is answered after %d", b, beats)
				}
				beats = b
				if wait > 0 {
					wait--
				}
			}
		}
	}
	cancel()
	all.Wait()
}
