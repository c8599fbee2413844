package session_test

import (
	"testing"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestALeavingWorkerFinishesAndGetsNothingNew(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			s := h.lead(1)
			p := h.join(helloOf("w", 2))
			id := h.submit("job", 4, 1, nil)
			held := p.assigned(2)
			p.say(&dtaskv1.SessionRequest{Leaving: true, Heartbeat: 9})
			p.next("the answer", func(m *dtaskv1.SessionResponse) bool { return m.GetHeartbeat() == 9 })
			p.report(1, succeeded, held[0])
			p.report(2, released, held[1])
			p.next("the last acknowledgment", func(m *dtaskv1.SessionResponse) bool { return m.GetAck().GetThrough() == 2 })
			if w := h.worker(s, 1); !w.Draining || w.Held != 0 {
				t.Errorf("the worker is %+v, want draining and idle", w)
			}
			p.cancel()
			_ = h.result()
			other := h.join(helloOf("other", 4))
			if n := len(other.assigned(3)); n != 3 || h.task(id, held[1].GetTask()).Failures != 0 {
				t.Errorf("another worker got %d tasks, want 3", n)
			}
		})
	}
}

func TestAHelloCanAnnounceThatItsWorkerLeaves(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			s := h.lead(1)
			p := h.dial()
			p.say(&dtaskv1.SessionRequest{Leaving: true, Hello: helloOf("w", 2)})
			p.next("welcome", func(m *dtaskv1.SessionResponse) bool { return m.GetWelcome() != nil })
			// The answer to a heartbeat may come before the leader knows what the hello
			// announced; reports are handled in order.
			p.report(1, cancelled, &dtaskv1.AttemptRef{Job: 99, Attempt: 1})
			p.next("the acknowledgment", func(m *dtaskv1.SessionResponse) bool { return m.GetAck().GetThrough() == 1 })
			h.submit("job", 2, 1, nil)
			if w := h.worker(s, 1); !w.Draining || w.Held != 0 {
				t.Errorf("the worker is %+v, want draining and idle", w)
			}
		})
	}
}

func TestADrainOrderReachesTheWorkerAndItsNextSession(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			s := h.lead(1)
			p := h.join(helloOf("w", 1))
			h.submit("job", 1, 1, nil)
			held := p.assigned(1)
			if err := s.Drain(t.Context(), "w", 0, "new disk"); err != nil {
				t.Fatal(err)
			}
			ordered, stopped := false, false // in one message or in two
			p.next("the order and the stop of its attempt", func(m *dtaskv1.SessionResponse) bool {
				ordered = ordered || m.GetDrain().GetDraining()
				stopped = stopped || len(m.GetStops()) == 1 && m.GetStops()[0].GetReason() == dtaskv1.StopReason_STOP_REASON_DRAINED
				if stopped && !ordered {
					t.Error("the stop came before the order")
				}
				return ordered && stopped
			})
			p.report(1, released, held[0])
			p.next("the acknowledgment", func(m *dtaskv1.SessionResponse) bool { return m.GetAck().GetThrough() == 1 })
			p.cancel()
			_ = h.result()
			p = h.dial()
			p.say(&dtaskv1.SessionRequest{Hello: helloOf("w", 1)})
			p.next("a welcome with the drain", func(m *dtaskv1.SessionResponse) bool { return m.GetWelcome().GetDraining() })
			if _, err := s.Undrain(t.Context(), "w"); err != nil {
				t.Fatal(err)
			}
			p.next("the end of the order", func(m *dtaskv1.SessionResponse) bool { return m.GetDrain() != nil && !m.GetDrain().GetDraining() })
			if again := p.assigned(1); again[0].GetAttempt() != 2 {
				t.Errorf("it got %v, want the second attempt", again)
			}
		})
	}
}
