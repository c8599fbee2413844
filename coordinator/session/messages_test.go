package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestManyAssignmentsAreSplitIntoMessages(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		jobs, tasks, body, env int
		least                  int // messages
	}{
		"many":             {1, 20_000, 1, 0, 5},
		"large bodies":     {1, 200, 60 << 10, 0, 12},
		"large surrounds":  {200, 1, 1, 30 << 10, 6},
		"one large at all": {1, 1, 120 << 10, 200 << 10, 1},
	} {
		for _, by := range ways {
			t.Run(name+", "+by.String(), func(t *testing.T) {
				t.Parallel()
				h := by.house(t)
				s := h.lead(1)
				s.StopAssigning(true)
				for i := range x.jobs {
					h.submit(fmt.Sprintf("job%d", i), x.tasks, x.body, &dtaskv1.JobHeader{Name: "job", Env: map[string]string{"A": strings.Repeat("x", x.env)}})
				}
				p := h.join(helloOf("w", 65_535))
				s.StopAssigning(false)
				total := x.jobs * x.tasks
				p.assigned(total)
				messages := 0
				once := make(map[string]bool)
				for _, m := range p.seen {
					a := m.GetAssignments()
					if a == nil {
						continue
					}
					messages++
					// The last row may exceed the bound.
					if n := proto.Size(m); len(a.GetTasks()) > 4096 || n > 1<<20+350<<10 {
						t.Errorf("a message has %d assignments, %d bytes", len(a.GetTasks()), n)
					}
					for _, ref := range attempts([]*dtaskv1.SessionResponse{m}) {
						once[ref.String()] = true
					}
				}
				if len(once) != total || messages < x.least {
					t.Errorf("%d different assignments in %d messages, want %d in at least %d", len(once), messages, total, x.least)
				}
			})
		}
	}
}

func TestAStopNeverOvertakesItsAssignment(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			s := h.lead(1)
			p := h.join(helloOf("w", 65_535))
			id := h.submit("job", 20_000, 1, nil)
			if _, err := s.CancelJob(t.Context(), id, "enough"); err != nil {
				t.Fatal(err)
			}
			given, stopped := make(map[string]bool), 0
			p.next("all stops", func(m *dtaskv1.SessionResponse) bool {
				// Parts of one message are handled in the order of their
				// numbers.
				for _, x := range m.GetStops() {
					stopped++
					if !given[x.GetAttempt().String()] {
						t.Fatalf("stop of %v before its assignment", x.GetAttempt())
					}
				}
				for _, a := range attempts([]*dtaskv1.SessionResponse{m}) {
					given[a.String()] = true
				}
				return stopped > 0 && stopped >= h.worker(s, 1).Held
			})
		})
	}
}

func TestUnderLoadOneMessageAcknowledgesManyReports(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			s := h.lead(1)
			s.StopAssigning(true)
			h.submit("job", 4000, 1, nil)
			p := h.join(helloOf("w", 4000))
			s.StopAssigning(false)
			list := p.assigned(4000)
			before := len(p.seen)
			func() { // the load: the log takes no entry until all reports have arrived
				h.log.mu.Lock()
				defer h.log.mu.Unlock()
				for i, a := range list { // one message each
					p.report(uint64(i+1), succeeded, a)
				}
				p.say(&dtaskv1.SessionRequest{Heartbeat: 9})
				p.next("the answer", func(m *dtaskv1.SessionResponse) bool { return m.GetHeartbeat() == 9 })
			}()
			p.next("the last acknowledgment", func(m *dtaskv1.SessionResponse) bool { return m.GetAck().GetThrough() == 4000 })
			if n := len(p.seen) - before; n > 100 {
				t.Errorf("%d messages acknowledge 4000 reports", n)
			}
		})
	}
}

func TestInconsistentColumnsEndTheSession(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			p := h.join(helloOf("w", 2))
			h.submit("job", 2, 1, nil)
			m := outcomesOf(1, succeeded, p.assigned(2)...)
			m.Attempts = m.GetAttempts()[1:]
			p.say(&dtaskv1.SessionRequest{Reports: &dtaskv1.Reports{Outcomes: m}})
			if err := p.end(); err == nil {
				t.Error("the session is still open")
			}
			if err := h.result(); !errors.Is(err, columns.ErrMalformed) {
				t.Errorf("the session ended with %v", err)
			}
			if done := h.task(1, 0).State == fsm.Completed || h.task(1, 1).State == fsm.Completed; done {
				t.Error("a part of a malformed message had an effect")
			}
		})
	}
}
