package session

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// obliging is a leader that attaches all workers.
type obliging struct {
	Leader

	sessions chan sequencer.Session
	detached chan fsm.WorkerID
	taken    chan []fsm.AttemptRef // undelivered attempts
	ended    chan error            // why sessions ended
}

func newObliging() *obliging {
	return &obliging{sessions: make(chan sequencer.Session, 16), detached: make(chan fsm.WorkerID, 16), taken: make(chan []fsm.AttemptRef, 16), ended: make(chan error, 16)}
}

func (*obliging) Term() uint64 { return 1 }

func (*obliging) Ready() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func (o *obliging) Attach(_ context.Context, _ sequencer.Hello, s sequencer.Session) (sequencer.Welcome, error) {
	o.sessions <- s
	return sequencer.Welcome{Worker: 1}, nil
}

func (o *obliging) Detach(id fsm.WorkerID, _ sequencer.Session) { o.detached <- id }

func (o *obliging) AllowReconnectsUntil(time.Time) {}

func (o *obliging) ReturnUndelivered(_ context.Context, _ fsm.WorkerID, _ sequencer.Session, list []fsm.AttemptRef) error {
	o.taken <- list
	return nil
}

func testService(o *obliging) *Service {
	return New(Config{
		Current: func() Leader { return o }, Machine: fsm.NewMachine(), Logger: slog.New(slog.DiscardHandler),
		Guard: func(ctx context.Context, call func() error) error {
			err := call()
			if err == nil && ctx.Err() == nil {
				return nil // it is open now
			}
			select {
			case o.ended <- err:
			default: // the test does not read them
			}
			return err
		},
	})
}

// open opens a session of a worker that reads only when the test does. The
// returned function ends the stream, and returns why the session ended.
func open(t *testing.T, o *obliging) (*slowStream, sequencer.Session, func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	d := newSlowStream(ctx)
	result := make(chan error, 1)
	s := testService(o)
	go func() { result <- s.Sessions(d) }()
	d.say(1, &dtaskv1.SessionRequest{Hello: &dtaskv1.Hello{Name: "w", Incarnation: "a", Slots: 1}})
	return d, <-o.sessions, func() error {
		err := <-o.ended
		cancel()
		return errors.Join(err, <-result)
	}
}

var errReason = errors.New("the reason")

func TestASessionEndsAlthoughItsWorkerDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newObliging()
		d, x, result := open(t, o)
		synctest.Wait() // the handler is about to send the welcome
		x.Close(errReason)
		synctest.Wait()
		select {
		case id := <-o.detached:
			if err := result(); id != 1 || !errors.Is(err, errReason) {
				t.Errorf("worker %d: ended with %v", id, err)
			}
		default:
			t.Error("the handler still waits for its worker to read")
			d.next()
		}
	})
}

func TestStopsAreSentAfterUndeliverableAssignments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newObliging()
		d, x, result := open(t, o)
		if f := d.next(); f.GetMessage().GetWelcome() == nil {
			t.Fatalf("first frame %v", f)
		}
		gone := fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 9}, Attempt: 1}
		x.Send(sequencer.WorkerMessage{
			Assignments: []fsm.AssignItem{{AttemptRef: gone, Worker: 1}},
			Stops:       []sequencer.Stop{{Attempt: gone, Reason: dtaskv1.StopReason_STOP_REASON_CANCELLED}},
		})
		x.Flush()
		synctest.Wait()
		select {
		case m := <-d.reads:
			if len(m.GetFrames()[0].GetMessage().GetStops()) != 1 {
				t.Errorf("got %v, want the stop", m)
			}
		default:
			t.Error("the stop waits for something else to be sent")
		}
		if list := <-o.taken; len(list) != 1 || list[0] != gone {
			t.Errorf("undelivered: %v", list)
		}
		x.Close(errReason)
		_ = result()
	})
}

func TestASessionReplacedBeforeItsStartIsNotFound(t *testing.T) {
	t.Parallel()
	s := testService(newObliging())
	var list []*session
	var contexts []context.Context
	for range 2 {
		ctx, cancel := context.WithCancelCause(t.Context())
		x := newSession(s, nil, &streamSlot{ctx: ctx, cancel: cancel})
		x.worker = 1
		list, contexts = append(list, x), append(contexts, ctx)
	}
	list[0].Close(errReason) // by the attach of the second, whose handler is faster
	s.register(contexts[1], list[1])
	s.register(contexts[0], list[0])
	s.unregister(list[0])
	if s.session(1) != list[1] {
		t.Error("the replacing session is not found")
	}
}

func TestSilenceIsMeasuredFromTheLastContact(t *testing.T) {
	t.Parallel()
	x := newSession(testService(newObliging()), nil, nil)
	if d := time.Since(x.LastContact()); d > time.Minute {
		t.Errorf("the last contact of a new session was %v ago", d)
	}
	x.lastContact.Store(int64(time.Since(started) - time.Hour))
	if d := time.Since(x.LastContact()); d < 59*time.Minute {
		t.Errorf("last contact %v ago, want an hour", d)
	}
	x.overloaded.Store(true) // its report waits for the sequencer
	if d := time.Since(x.LastContact()); d > time.Minute {
		t.Errorf("while a report waits: last contact %v ago", d)
	}
}
