package session

import (
	"context"
	"testing"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// newTestSession returns a session whose messages are built by the test.
func newTestSession(t *testing.T) *session {
	t.Helper()
	o := newObliging()
	service := testService(o)
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	x := newSession(service, o, &streamSlot{m: &muxStream{service: service}, ctx: ctx, cancel: cancel})
	x.slot.session = x
	return x
}

// The welcome lets a worker start what it holds.
func TestAWelcomeComesWithTheStopsOfTheAttemptsInItsHello(t *testing.T) {
	t.Parallel()
	x := newTestSession(t)
	superseded := fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1}, Attempt: 1}
	assigned := fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1, Index: 1}, Attempt: 1}
	x.welcome(sequencer.Welcome{Worker: 1, Stop: []fsm.AttemptRef{superseded}}, 1)
	x.Send(sequencer.WorkerMessage{
		Assignments: []fsm.AssignItem{{AttemptRef: assigned, Worker: 1}},
		Stops:       []sequencer.Stop{{Attempt: assigned, Reason: dtaskv1.StopReason_STOP_REASON_CANCELLED}},
	})
	m, _ := x.next()
	if m.GetWelcome() == nil || len(m.GetStops()) != 1 || m.GetStops()[0].GetAttempt().GetTask() != 0 {
		t.Errorf("first message %v, want a welcome with the stop of task 0", m)
	}
	m, _ = x.next()
	if len(m.GetStops()) != 1 || m.GetStops()[0].GetAttempt().GetTask() != 1 {
		t.Errorf("second message %v, want the stop of task 1", m)
	}
}

// The sequencer closes a session before it requeues the worker's attempts.
func TestAClosedSessionAnswersNoHeartbeat(t *testing.T) {
	t.Parallel()
	x := newTestSession(t)
	for beat, closed := range []bool{false, true} {
		if closed {
			x.Close(errReason)
		}
		x.handle(&dtaskv1.SessionRequest{Heartbeat: uint64(beat) + 1})
		response, _ := x.slot.m.pack([]*streamSlot{x.slot}, nil)
		if answered := len(response.GetFrames()) > 0; answered == closed {
			t.Errorf("closed = %t: answered = %t", closed, answered)
		}
	}
}
