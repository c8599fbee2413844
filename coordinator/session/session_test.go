package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/coordinator/session"
	"github.com/dtask/dtask/fsm"
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
				h := by.house(t, func(c *session.Config) {
					if name == "no word" { // the others must be heard, however late
						c.HelloTimeout = 200 * time.Millisecond
					}
				})
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
