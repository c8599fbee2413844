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

func TestAStopDoesNotWaitForAssignmentsThatComeAfterIt(t *testing.T) {
	t.Parallel()
	x := newTestSession(t)
	x.welcome(sequencer.Welcome{Worker: 1}, 1)
	attempt := func(i uint32) fsm.AttemptRef {
		return fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: 1, Index: i}, Attempt: 1}
	}
	for i := range uint32(10) {
		message := sequencer.WorkerMessage{Assignments: []fsm.AssignItem{{AttemptRef: attempt(i), Worker: 1}}}
		message.Stops = []sequencer.Stop{{Attempt: attempt(i), Reason: dtaskv1.StopReason_STOP_REASON_CANCELLED}}
		x.Send(message)
		m, _ := x.next()
		switch stopped := m.GetStops(); {
		case i == 0 && len(stopped) > 0:
			t.Errorf("stops %v came with their assignments", stopped)
		case i > 0 && (len(stopped) != 1 || stopped[0].GetAttempt().GetTask() != i-1):
			t.Errorf("message %d has stops %v, want that of task %d", i, stopped, i-1)
		}
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
