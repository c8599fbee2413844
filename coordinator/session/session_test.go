package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/coordinator/session"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/internal/columns"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

const (
	succeeded = dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED
	cancelled = dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED
	released  = dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED
)

func TestAWorkerIsWelcomedAndWorks(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(7)
			p := h.join(helloOf("w", 4))
			first := p.seen[0]
			w := first.GetWelcome()
			if w.GetWorkerId() != 1 || w.GetHeartbeatIntervalMs() != 1000 || w.GetLivenessTimeoutMs() != 3000 || w.GetLeaseMs() != 30_000 {
				t.Errorf("welcome %v in the first message", w)
			}
			id := h.submit("job", 10, 100, &dtaskv1.JobHeader{Name: "job", Owner: "ada", Env: map[string]string{"A": "b"}})
			done := 0
			for done < 10 {
				m := p.next("assignments", func(m *dtaskv1.SessionResponse) bool { return m.GetAssignments() != nil })
				a := m.GetAssignments()
				if len(a.GetContexts()) != 1 || a.GetContexts()[0].GetJobName() != "job" || a.GetContexts()[0].GetEnv()["A"] != "b" || a.GetContexts()[0].GetOwner() != "ada" {
					t.Fatalf("contexts %v", a.GetContexts())
				}
				for _, x := range rowsOf(m) {
					var body dtaskv1.TaskBody
					if err := proto.Unmarshal(x.Body, &body); err != nil {
						t.Fatal(err)
					}
					if x.Attempt != 1 || len(body.GetPayload()) != 100 || x.ID != fmt.Sprintf("t%d", x.Task) {
						t.Errorf("assignment %+v", x)
					}
				}
				p.report(uint64(done+1), succeeded, attempts([]*dtaskv1.SessionResponse{m})...)
				done += len(a.GetTasks())
			}
			p.next("the last acknowledgment", func(m *dtaskv1.SessionResponse) bool { return m.GetAck().GetThrough() == 10 })
			h.await("the end of the job", func() bool { return h.task(id, 9).State == fsm.Completed })
			for i, m := range p.seen {
				f := m.GetFence()
				if f.GetClusterId() != cluster || f.GetTerm() != 7 || f.GetEpoch() != 1 {
					t.Errorf("message %d has the fence %v", i, f)
				}
			}
		})
	}
}

func TestACleanupTaskReceivesTheJobOutcome(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(7)
			p := h.join(helloOf("w", 1))
			h.submit("job", 2, 1, &dtaskv1.JobHeader{Name: "job", Policies: []*dtaskv1.TaskPolicy{{Type: "x", TimeoutMs: 60_000}, {Type: "x", TimeoutMs: 60_000, Finally: true}}})
			for i, want := range []dtaskv1.JobState{dtaskv1.JobState_JOB_STATE_UNSPECIFIED, dtaskv1.JobState_JOB_STATE_COMPLETED} {
				m := p.next("an assignment", func(m *dtaskv1.SessionResponse) bool { return m.GetAssignments() != nil })
				if x := rowsOf(m)[0]; x.Task != uint32(i) || x.Extras.GetJobOutcome() != want {
					t.Errorf("assignment %+v, want task %d with the outcome %v", x, i, want)
				}
				p.report(uint64(i+1), succeeded, attempts([]*dtaskv1.SessionResponse{m})...)
			}
		})
	}
}

func TestTheLeaseIsAtLeastTheLivenessTimeout(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t, func(c *session.Config) { c.HeartbeatInterval, c.LivenessTimeout = time.Minute, 3*time.Minute })
			h.lead(1)
			p := h.join(helloOf("w", 1))
			if w := p.seen[0].GetWelcome(); w.GetHeartbeatIntervalMs() != 60_000 || w.GetLivenessTimeoutMs() != 180_000 || w.GetLeaseMs() != 180_000 {
				t.Errorf("welcome %v, want a lease as long as the liveness timeout", w)
			}
		})
	}
}

func TestAHeartbeatIsAnsweredWithItsNumber(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			p := h.dial()
			p.say(&dtaskv1.SessionRequest{Heartbeat: 1, Hello: helloOf("w", 1)})
			if m := p.next("welcome", func(*dtaskv1.SessionResponse) bool { return true }); m.GetHeartbeat() != 1 || m.GetWelcome() == nil {
				t.Errorf("first message %v, want the welcome with the answer to the hello's heartbeat", m)
			}
			for n := uint64(2); n < 5; n++ {
				p.say(&dtaskv1.SessionRequest{Heartbeat: n})
				p.next("the answer", func(m *dtaskv1.SessionResponse) bool { return m.GetHeartbeat() == n })
			}
		})
	}
}

func TestInvalidSessionsAreRejected(t *testing.T) {
	t.Parallel()
	hello := func(m *dtaskv1.SessionRequest) func(*house) *dtaskv1.SessionRequest {
		return func(*house) *dtaskv1.SessionRequest { return m }
	}
	for name, x := range map[string]struct {
		first func(*house) *dtaskv1.SessionRequest
		want  error
	}{
		"foreign cluster": {hello(&dtaskv1.SessionRequest{Fence: &dtaskv1.Fence{ClusterId: strings.Repeat("f", 32)}, Hello: helloOf("w", 1)}), session.ForeignClusterError{ClusterID: cluster}},
		"no hello":        {hello(&dtaskv1.SessionRequest{Heartbeat: 1}), session.ErrNoHello},
		"no name":         {hello(&dtaskv1.SessionRequest{Hello: &dtaskv1.Hello{Incarnation: "a"}}), session.ErrNoHello},
		"no incarnation":  {hello(&dtaskv1.SessionRequest{Hello: &dtaskv1.Hello{Name: "w"}}), session.ErrNoHello},
		"no word":         {func(*house) *dtaskv1.SessionRequest { return nil }, session.ErrNoHello},
		"not leader": {func(h *house) *dtaskv1.SessionRequest {
			h.end()
			return &dtaskv1.SessionRequest{Hello: helloOf("w", 1)}
		}, sequencer.ErrTermEnded},
	} {
		for _, by := range ways {
			t.Run(name+", "+by.String(), func(t *testing.T) {
				t.Parallel()
				h := by.house(t, func(c *session.Config) { c.HelloTimeout = 200 * time.Millisecond })
				h.lead(1)
				first := x.first(h)
				p := h.dial()
				p.say(first) // a frame without a message opens the session, too
				if err := p.end(); err == nil {
					t.Error("the stream did not end with an error")
				}
				if err := h.result(); !errors.Is(err, x.want) {
					t.Errorf("ended with %v, want %v", err, x.want)
				}
			})
		}
	}
}

func TestADeposedLeaderEndsTheSession(t *testing.T) {
	t.Parallel()
	later := &dtaskv1.Fence{ClusterId: cluster, Epoch: 1, Term: 9}
	for name, talk := range map[string]func(*house){
		"from the hello on": func(h *house) { h.dial().say(&dtaskv1.SessionRequest{Fence: later, Hello: helloOf("w", 1)}) },
		"in the middle":     func(h *house) { h.join(helloOf("w", 1)).say(&dtaskv1.SessionRequest{Fence: later, Heartbeat: 2}) },
	} {
		for _, by := range ways {
			t.Run(name+", "+by.String(), func(t *testing.T) {
				t.Parallel()
				h := by.house(t)
				h.lead(1)
				talk(h)
				if err := h.result(); !errors.Is(err, sequencer.ErrTermEnded) {
					t.Errorf("ended with %v, want that the term ended", err)
				}
			})
		}
	}
}

func TestAKnownClusterIsWelcome(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			p := h.dial()
			p.say(&dtaskv1.SessionRequest{Fence: &dtaskv1.Fence{ClusterId: cluster, Term: 1}, Hello: helloOf("w", 1)})
			p.next("welcome", func(m *dtaskv1.SessionResponse) bool { return m.GetWelcome() != nil })
		})
	}
}

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

func TestTheEndOfTheTermEndsAllSessions(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			var peers []*peer
			for i := range 5 {
				peers = append(peers, h.join(helloOf(fmt.Sprintf("w%d", i), 1)))
			}
			h.end()
			for _, p := range peers {
				_ = p.end()
				if err := h.result(); !errors.Is(err, sequencer.ErrTermEnded) {
					t.Errorf("a session ended with %v, want the term is over", err)
				}
			}
		})
	}
}

// A worker that leaves before would find only replicas that know no leader.
func TestSessionsEndWithTheirTermOnceTheNextLeaderIsKnown(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			asked, known := make(chan uint64, 1), make(chan struct{})
			h := by.house(t, func(c *session.Config) {
				c.AwaitSuccessor = func(_ context.Context, term uint64) {
					asked <- term
					<-known
				}
			})
			h.lead(3)
			p := h.join(helloOf("w", 1))
			h.end()
			if term := <-asked; term != 3 {
				t.Errorf("asked for the successor of term %d, want 3", term)
			}
			told := make(chan struct{})
			go func() {
				defer close(told)
				h.service.AwaitEnded(t.Context())
			}()
			select {
			case <-told:
				t.Error("the session ended before the next leader was known")
			default:
			}
			close(known)
			<-told
			_ = p.end()
			if err := h.result(); !errors.Is(err, sequencer.ErrTermEnded) {
				t.Errorf("ended with %v, want the term is over", err)
			}
		})
	}
}

// awaitsTerm configures a replica that may be elected before its term starts: asked gets a
// value when a session waits for changed.
func awaitsTerm(elected *atomic.Bool, asked chan<- struct{}, changed <-chan struct{}) func(*session.Config) {
	return func(c *session.Config) {
		c.Elected = elected.Load
		c.TermChanged = func() <-chan struct{} {
			select {
			case asked <- struct{}{}:
			default:
			}
			return changed
		}
	}
}

// Workers are redirected to a replica as soon as it is elected.
func TestASessionWaitsForTheTermOfAnElectedReplica(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			var elected atomic.Bool
			asked, changed := make(chan struct{}, 1), make(chan struct{}, 1)
			h := by.house(t, awaitsTerm(&elected, asked, changed))
			elected.Store(true)
			p := h.dial()
			p.say(&dtaskv1.SessionRequest{Hello: helloOf("w", 1)})
			<-asked
			h.lead(1)
			close(changed)
			p.next("welcome", func(m *dtaskv1.SessionResponse) bool { return m.GetWelcome() != nil })
		})
	}
}

func TestASessionDoesNotWaitForTheTermOfAReplicaThatIsNotElected(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			var elected atomic.Bool
			asked, changed := make(chan struct{}, 1), make(chan struct{}, 1)
			h := by.house(t, awaitsTerm(&elected, asked, changed))
			elected.Store(true)
			p := h.dial()
			p.say(&dtaskv1.SessionRequest{Hello: helloOf("w", 1)})
			<-asked
			elected.Store(false) // another replica was elected
			changed <- struct{}{}
			_ = p.end()
			if err := h.result(); !errors.Is(err, sequencer.ErrTermEnded) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

func TestAFailedEntryEndsSessions(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			p := h.join(helloOf("w", 1))
			h.submit("job", 1, 1, nil)
			a := p.assigned(1)
			h.log.mu.Lock()
			h.log.lost = true
			h.log.mu.Unlock()
			p.report(1, succeeded, a...)
			_ = p.end()
			for _, m := range p.seen {
				if m.GetAck() != nil {
					t.Error("an outcome was acknowledged that is not committed")
				}
			}
			if err := h.result(); !errors.Is(err, sequencer.ErrTermEnded) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

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
				var held int
				for _, w := range s.Workers() {
					held = w.Held
				}
				return stopped > 0 && stopped >= held
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
			for i, a := range list { // one message each
				p.report(uint64(i+1), succeeded, a)
			}
			p.next("the last acknowledgment", func(m *dtaskv1.SessionResponse) bool { return m.GetAck().GetThrough() == 4000 })
			if n := len(p.seen) - before; n > 3000 {
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

func TestTheNextAttemptStartsWithTheLastCheckpoint(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			h := by.house(t)
			h.lead(1)
			p := h.join(helloOf("w", 1))
			h.submit("job", 1, 1, nil)
			held := p.assigned(1)
			if rowsOf(p.seen[len(p.seen)-1])[0].Extras != nil {
				t.Error("the first attempt has a checkpoint")
			}
			sent := &dtaskv1.Checkpoint{
				Attempt: held[0], Number: 1, Format: dtaskv1.CheckpointFormat_CHECKPOINT_FORMAT_DIRECTORY,
				File: "c/1/0/1-1", Size: 1 << 20, Sha256: make([]byte, 32),
			}
			p.say(&dtaskv1.SessionRequest{Reports: &dtaskv1.Reports{Checkpoints: []*dtaskv1.Checkpoint{sent}}})
			answer := p.next("the answer", func(m *dtaskv1.SessionResponse) bool { return len(m.GetCheckpointResults()) > 0 }).GetCheckpointResults()[0]
			if answer.GetError() != "" || answer.GetNumber() != 1 || !proto.Equal(answer.GetAttempt(), held[0]) {
				t.Errorf("answer %v", answer)
			}
			p.report(1, released, held[0])
			again := rowsOf(p.next("the second attempt", func(m *dtaskv1.SessionResponse) bool { return m.GetAssignments() != nil }))[0].Extras
			if !proto.Equal(again.GetCheckpoint(), sent) {
				t.Errorf("the second attempt starts with %v, want %v", again.GetCheckpoint(), sent)
			}
		})
	}
}

// In virtual time: on a slow machine, the turns that are free again meanwhile
// would suffice for all sessions.
func TestExcessSessionsAreRejectedWithARetryDelay(t *testing.T) {
	t.Parallel()
	for _, by := range ways {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := by.house(t, func(c *session.Config) { c.AdmissionRate = 1 })
				h.lead(1)
				var refused int
				for i := range 20 {
					p := h.dial()
					p.say(&dtaskv1.SessionRequest{Hello: helloOf(fmt.Sprintf("w%d", i), 1)})
					if _, err := p.stream.Recv(); err != nil {
						var busy *sequencer.BusyError
						if err := h.result(); !errors.As(err, &busy) || busy.RetryAfter <= 0 {
							t.Fatalf("rejected with %v", err)
						}
						refused++
					}
				}
				if refused == 0 || refused > 4 {
					t.Errorf("%d of 20 sessions were rejected, want those above 16", refused)
				}
			})
		})
	}
}
