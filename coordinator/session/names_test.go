package session_test

import (
	"errors"
	"testing"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestANameInUseIsRejectedUntilItsSessionEnds(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			old := h.join(helloOf("w", 1))
			other := &dtaskv1.Hello{Name: "w", Incarnation: "other", Slots: 1}
			p := h.dial()
			p.say(&dtaskv1.SessionRequest{Hello: other})
			_ = p.end()
			var used *sequencer.NameInUseError
			if err := h.result(); !errors.As(err, &used) || used.Name != "w" || used.Address == "" {
				t.Fatalf("a second process with the name: %v", err)
			}
			old.cancel()
			if err := h.result(); err != nil {
				t.Errorf("a worker that leaves ended its session with %v", err)
			}
			h.join(other)
		})
	}
}

func TestASessionReplacesThePreviousOne(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			old := h.join(helloOf("w", 2))
			h.submit("job", 2, 1, nil)
			held := old.assigned(2)
			p := h.dial()
			p.say(&dtaskv1.SessionRequest{Hello: helloOf("w", 2, held[0], &dtaskv1.AttemptRef{Job: 99, Task: 1, Attempt: 1})})
			// Attempts that only the leader knows are assigned again; those
			// that only the worker knows are stopped.
			m := p.next("stop", func(m *dtaskv1.SessionResponse) bool { return len(m.GetStops()) > 0 })
			if s := m.GetStops()[0]; s.GetAttempt().GetJob() != 99 || s.GetReason() != dtaskv1.StopReason_STOP_REASON_SUPERSEDED {
				t.Errorf("stops %v, want that of the unknown attempt", m.GetStops())
			}
			p.report(1, cancelled, &dtaskv1.AttemptRef{Job: 99, Task: 1, Attempt: 1}) // frees its slot
			again := p.assigned(1)[0]
			if again.GetTask() != held[1].GetTask() || again.GetAttempt() != 2 {
				t.Errorf("assigned %v, want the second attempt of %v", again, held[1])
			}
			if err := old.end(); err == nil {
				t.Error("the old session is still open")
			}
			if err := h.result(); err == nil {
				t.Error("the old session ended without a reason")
			}
		})
	}
}

func TestTheSessionOfAWorkerThatDoesNotReadIsReplaced(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			old := h.join(helloOf("w", 200))
			h.submit("job", 200, 60<<10, nil)
			h.await("all assignments", func() bool { return h.task(1, 199).State == fsm.Assigned })
			p := h.dial() // old reads nothing: its window is full
			p.say(&dtaskv1.SessionRequest{Hello: helloOf("w", 200)})
			if err := h.result(); err == nil {
				t.Error("the old session ended without a reason")
			}
			p.assigned(200)
			if err := old.end(); err == nil {
				t.Error("the old session is still open")
			}
		})
	}
}
