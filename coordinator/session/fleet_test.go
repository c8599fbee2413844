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

// slow is a leader that attaches one worker after the other, each in a time.
type slow struct {
	*obliging

	takes   time.Duration
	turn    chan struct{} // size 1
	present atomic.Int64  // are being attached
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
	time.Sleep(l.takes) // in the bubble's time
	<-l.turn
	return sequencer.Welcome{Worker: 1}, nil
}

func (l *slow) Detach(fsm.WorkerID, sequencer.Session) {}
func (l *slow) AllowReconnectsUntil(time.Time)         { l.heldOff.Add(1) }

// welcomed is a stream whose worker says hello and reads.
type welcomed struct {
	*deaf

	in func() // called with the welcome
}

func (w *welcomed) Send(m *dtaskv1.SessionResponse) error {
	if m.GetWelcome() != nil {
		w.in()
	}
	return nil
}

// comes lets a worker come until it is in, as often as it is told to, and gives
// how often it was sent away.
func comes(ctx context.Context, s *Service, in func()) (away int) {
	for {
		stream, cancel := context.WithCancel(ctx)
		w := &welcomed{deaf: newDeaf(stream), in: in}
		w.says <- &dtaskv1.SessionRequest{Hello: &dtaskv1.Hello{Name: "w", Incarnation: "a", Slots: 1}}
		var err error
		if w.ctx, err = s.Enter(stream); err == nil {
			err = s.Session(w) //nolint:contextcheck // it is the stream's
		}
		cancel()
		var busy *sequencer.BusyError
		if !errors.As(err, &busy) {
			return away
		}
		away++
		time.Sleep(busy.RetryAfter)
	}
}

// A leader that has little of its machine opens a quarter of what the rate of
// admission allows. It is never asked to open more than a few at a time, all are
// in after the time that it needs for them, and nobody asks again and again.
func TestThousandsThatComeAtOnceAreOpenedAFewAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const workers, takes = 5_000, 2 * time.Millisecond
		l := newSlow(takes)
		s := New(Config{Current: func() Leader { return l }, Machine: fsm.NewMachine(fsm.Compact{}), Logger: slog.New(slog.DiscardHandler)})
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
			t.Fatalf("%d of %d are in after five minutes", in.Load(), workers)
		}
		t.Logf("%d at a time, the last after %v, sent away %d times", l.most.Load(), time.Duration(last.Load()), away.Load())
		if most := l.most.Load(); most > opensAtOnce {
			t.Errorf("%d are opened at a time, want at most %d", most, opensAtOnce)
		}
		if took, limit := time.Duration(last.Load()), workers*takes*3/2; took > limit {
			t.Errorf("the last one is in after %v, want within %v", took, limit)
		}
		if n := away.Load(); n > 3*workers {
			t.Errorf("%d workers were sent away %d times", workers, n)
		}
		if l.heldOff.Load() != away.Load() {
			t.Errorf("the leader heard of %d of %d that were sent away", l.heldOff.Load(), away.Load())
		}
	})
}

// A stream that gets its turn and never comes to anything gives the turn back.
func TestATurnEndsWithItsStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := testService(newObliging())
		enter := func(ctx context.Context) error {
			_, err := s.Enter(ctx)
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		free := 0
		for enter(ctx) == nil {
			free++
			time.Sleep(time.Millisecond)
		}
		if free != opensAtOnce {
			t.Errorf("%d streams are opened at a time, want %d", free, opensAtOnce)
		}
		cancel()
		synctest.Wait()
		if err := enter(t.Context()); err != nil {
			t.Errorf("after all of them ended: %v", err)
		}
	})
}

// Streams that say nothing keep nobody out.
func TestStreamsWithoutAHelloKeepNobodyOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newObliging()
		s := testService(o)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range opensAtOnce {
			all.Go(func() { _ = s.Session(newDeaf(ctx)) }) //nolint:contextcheck // as above
			time.Sleep(time.Millisecond)
		}
		time.Sleep(helloSoon)
		all.Go(func() { comes(ctx, s, cancel) })
		all.Wait()
		if <-o.sessions == nil {
			t.Error("no session")
		}
	})
}

// A worker that only beats keeps one goroutine less at the leader, and hears
// everything all the same.
func TestNobodyWaitsForSomethingToSendToAWorkerThatOnlyBeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, s, ended := open(t, newObliging())
		x, _ := s.(*session)
		if m := <-d.reads; m.GetWelcome() == nil {
			t.Fatalf("got %v, want a welcome", m)
		}
		for round := range uint64(3) {
			for i := range uint64(5) {
				beat := 10*round + i + 1
				d.says <- &dtaskv1.SessionRequest{Beat: beat}
				if m := <-d.reads; m.GetBeat() != beat {
					t.Fatalf("beat %d is answered with %v", beat, m)
				}
			}
			synctest.Wait()
			if x.pumping.Load() {
				t.Error("somebody waits for something to send")
			}
			a := fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1, Index: uint32(round)}, Attempt: 1}
			s.Send(sequencer.WorkerMessage{Stop: []sequencer.StopOrder{{Attempt: a}}})
			s.Flush()
			if m := <-d.reads; len(m.GetStops()) != 1 || m.GetStops()[0].GetAttempt().GetTask() != a.Index {
				t.Errorf("got %v, want a stop", m)
			}
		}
		s.Close(errors.New("enough"))
		if err := ended(); err == nil || err.Error() != "enough" {
			t.Errorf("it ended with %v", err)
		}
	})
}

// What is to be sent while a beat is being answered, or while whoever sends is
// about to rest, goes out, once and in order.
func TestNothingIsLeftBehindWhenBeatsAndOrdersMeet(t *testing.T) {
	t.Parallel()
	const orders = 2000
	ctx, cancel := context.WithCancel(t.Context())
	o := newObliging()
	d := newDeaf(ctx)
	var all sync.WaitGroup
	all.Go(func() { _ = testService(o).Session(d) })
	d.says <- &dtaskv1.SessionRequest{Hello: &dtaskv1.Hello{Name: "w", Incarnation: "a", Slots: 1}}
	s := <-o.sessions
	all.Go(func() {
		for beat := uint64(1); ; beat++ {
			select {
			case d.says <- &dtaskv1.SessionRequest{Beat: beat}:
			case <-ctx.Done():
				return
			}
		}
	})
	next, beats := uint32(0), uint64(0)
	for i := range uint32(orders) {
		a := fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1, Index: i}, Attempt: 1}
		s.Send(sequencer.WorkerMessage{MayBegin: []fsm.AttemptRef{a}})
		s.Flush()
		for wait := i % 5; next <= i || wait > 0; { // some answers between two orders, or none
			var m *dtaskv1.SessionResponse
			select {
			case m = <-d.reads:
			case <-time.After(time.Minute):
				t.Fatalf("order %d of %d never comes", next, orders)
			}
			for _, got := range m.GetMayBegin() {
				if got.GetTask() != next {
					t.Fatalf("order %d came when %d was due", got.GetTask(), next)
				}
				next++
			}
			if b := m.GetBeat(); b > 0 {
				if b < beats {
					t.Fatalf("beat %d is answered after %d", b, beats)
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
