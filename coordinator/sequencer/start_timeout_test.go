package sequencer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// history returns the ended attempts of the first task of a job.
func (c *cluster) history(id fsm.JobID) (list []fsm.Attempt) {
	c.machine.Read(func(s *fsm.State, _ uint64) { list = s.History(fsm.TaskRef{Job: id}) })
	return list
}

// stuck returns a policy of a task without retries, whose attempts must start
// within 30 s.
func stuck() *dtaskv1.TaskPolicy {
	return &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 600_000, StartTimeoutMs: 30_000}
}

func TestAnAttemptThatIsNotStartedInTimeIsReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy *dtaskv1.TaskPolicy
		after  time.Duration
		text   string
	}{
		"the task's limit": {policy: stuck(), after: 30 * time.Second, text: "start timeout: not started within 30s of its assignment"},
		"the leader's limit": {
			policy: &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 600_000, Retry: &dtaskv1.RetryPolicy{Except: []string{"timeout"}}},
			after:  time.Minute, text: "start timeout: not started within 1m0s of its assignment",
		},
		"a retry policy without timeouts": {
			policy: &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 600_000, StartTimeoutMs: 5000, Retry: &dtaskv1.RetryPolicy{On: []string{"exit:1"}}},
			after:  5 * time.Second, text: "start timeout: not started within 5s of its assignment",
		},
		"an at-most-once attempt without a grant": {
			policy: &dtaskv1.TaskPolicy{Type: "x", TimeoutMs: 600_000, StartTimeoutMs: 5000, Execution: dtaskv1.Execution_EXECUTION_AT_MOST_ONCE},
			after:  5 * time.Second, text: "start timeout: not started within 5s of its assignment",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cl := newCluster(t)
				s, _ := cl.lead()
				w := attachWorker(t, s, "w1", "a", 1, hold)
				id := mustSubmit(t, s, spec{key: "k", n: 1, policy: c.policy})
				w.await("its assignment", func() bool { return len(w.held) == 1 })
				other := attachWorker(t, s, "w2", "a", 1, hold)
				<-time.After(c.after)
				if v := cl.task(id, 0); v.State != fsm.Assigned || v.Attempt != 1 {
					t.Errorf("after %v the task is %v at attempt %d, want assigned at 1", c.after, v.State, v.Attempt)
				}
				<-time.After(2 * time.Second) // for the report of a start, and the sweep
				other.await("its assignment", func() bool { return len(other.held) == 1 })
				v := cl.task(id, 0)
				if v.Attempt != 2 || v.Worker != other.id || v.Failures != 0 {
					t.Errorf("the task is at attempt %d on worker %d with %d failures, want 2 on %d without a failure", v.Attempt, v.Worker, v.Failures, other.id)
				}
				if got := cl.history(id); len(got) != 1 || got[0].Number != 1 || got[0].Worker != w.id || got[0].Error != c.text {
					t.Errorf("got history %+v, want attempt 1 with %q", got, c.text)
				}
				w.await("its stop", func() bool {
					return len(w.stops) == 1 && w.stops[0].Reason == dtaskv1.StopReason_STOP_REASON_TIMED_OUT
				})
				// What the stopped attempt reports counts no more.
				w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, w.held[0])
				w.await("its verdict", func() bool { return len(w.acks) == 1 })
				if got := w.acks[0].GetVerdict(); got != dtaskv1.Verdict_VERDICT_SUPERSEDED {
					t.Errorf("got verdict %v", got)
				}
				other.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, other.held[0])
				if job := cl.awaitEnd(id); job.State != fsm.JobCompleted {
					t.Errorf("the job is %v: %s", job.State, job.Error)
				}
			})
		})
	}
}

func TestAStartTimeoutIsFinalIfTheTaskExcludesTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		attachWorker(t, s, "w", "a", 1, hold)
		policy := stuck()
		policy.Retry = &dtaskv1.RetryPolicy{Max: 3, InitialMs: 1, MultiplierPermille: 2000, MaxDelayMs: 10, Except: []string{"timeout"}}
		id := mustSubmit(t, s, spec{key: "k", n: 1, policy: policy})
		const want = "task t0 failed: start timeout: not started within 30s of its assignment"
		if job := c.awaitEnd(id); job.State != fsm.JobFailed || job.Error != want {
			t.Errorf("the job is %v: %q, want failed: %q", job.State, job.Error, want)
		}
	})
}

func TestAStartedAttemptHasNoStartTimeout(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(s *sequencer.Sequencer, w *fakeWorker){
		"started in time": func(_ *sequencer.Sequencer, w *fakeWorker) {
			<-time.After(29 * time.Second)
			w.tell(&dtaskv1.Reports{Started: []*dtaskv1.Started{{Attempt: refTo(w.held[0])}}})
		},
		// A worker reports a start after 100 ms.
		"reported late": func(_ *sequencer.Sequencer, w *fakeWorker) {
			<-time.After(30*time.Second + 500*time.Millisecond)
			w.tell(&dtaskv1.Reports{Started: []*dtaskv1.Started{{Attempt: refTo(w.held[0])}}})
		},
		// The report was lost with the session in which it was sent.
		"reported in a new session": func(s *sequencer.Sequencer, w *fakeWorker) {
			<-time.After(29 * time.Second)
			s.Detach(w.id, w)
			<-time.After(2500 * time.Millisecond)
			again := attachWorker(w.t, s, "w", "a", 1, hold, w.held...)
			<-time.After(500 * time.Millisecond)
			again.tell(&dtaskv1.Reports{Started: []*dtaskv1.Started{{Attempt: refTo(w.held[0])}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				s, _ := c.lead()
				w := attachWorker(t, s, "w", "a", 1, hold)
				id := mustSubmit(t, s, spec{key: "k", n: 1, policy: stuck()})
				w.await("its assignment", func() bool { return len(w.held) == 1 })
				start(s, w)
				<-time.After(2 * time.Minute)
				if v := c.task(id, 0); v.State != fsm.Assigned || v.Attempt != 1 {
					t.Errorf("the task is %v at attempt %d, want the first attempt to run", v.State, v.Attempt)
				}
			})
		})
	}
}

func TestAStartTimeoutInAStoppingJobCancelsTheTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		w := attachWorker(t, s, "w", "a", 2, hold)
		id := mustSubmit(t, s, spec{key: "k", n: 2, policy: stuck(), header: &dtaskv1.JobHeader{Name: "stops", OnFailure: dtaskv1.OnFailure_ON_FAILURE_STOP}})
		w.await("its assignments", func() bool { return len(w.held) == 2 })
		w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, w.held[1])
		if job := c.awaitEnd(id); job.State != fsm.JobFailed || c.task(id, w.held[0].Index).State != fsm.Cancelled {
			t.Errorf("the job is %v, and the other task %v", job.State, c.task(id, w.held[0].Index).State)
		}
	})
}
