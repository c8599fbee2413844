package sequencer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A leader whose clock was set forward must not remove ended jobs on all
// replicas, or the keys that make retries safe.
func TestNothingExpiresWhileTheClockIsInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var ahead atomic.Int64 // ns
		var agrees atomic.Bool
		agrees.Store(true)
		c.config = func(cfg *sequencer.Config) {
			cfg.WallClock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			cfg.ClockAgrees = agrees.Load
		}
		s, _ := c.lead()
		w := attachWorker(t, s, "w", "a", 1, succeed)
		id := mustSubmit(t, s, spec{key: "k", n: 1})
		c.awaitEnd(id)
		s.Detach(w.id, w)

		agrees.Store(false)
		ahead.Store(int64(365 * 24 * time.Hour)) // sweeps cover all keys within about a minute
		<-time.After(2 * time.Minute)
		again, err := s.Submit(t.Context(), spec{key: "k", n: 1}.submission())
		if err != nil || !again.Existed || again.ID != id {
			t.Errorf("the key was forgotten: %+v, %v", again, err)
		}
		if c.job(id).ID != id {
			t.Error("the job was removed")
		}

		agrees.Store(true)
		<-time.After(2 * time.Minute)
		if again, err = s.Submit(t.Context(), spec{key: "k", n: 1}.submission()); err != nil || again.Existed {
			t.Errorf("the key is still known after a year: %+v, %v", again, err)
		}
		if c.job(id).ID == id {
			t.Error("the job is still there after a year")
		}
	})
}

// A leader whose clock was behind acknowledged a job. For the next one, whose clock is right, its
// key must not be older than it is: a repeated submission would make another job.
func TestAKeyOfALeaderWhoseClockWasBehindIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, clock := newCluster(t), new(wallClock)
		c.config = func(cfg *sequencer.Config) { cfg.WallClock, cfg.CredentialClock = clock.now, time.Now }
		clock.add(-48 * time.Hour)
		s, end := c.lead()
		id := mustSubmit(t, s, spec{key: "k", n: 1})
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}

		clock.add(48 * time.Hour)
		s, _ = c.lead()
		<-time.After(2 * time.Minute) // sweeps cover all keys within about a minute
		again, err := s.Submit(t.Context(), spec{key: "k", n: 1}.submission())
		if err != nil || !again.Existed || again.ID != id {
			t.Errorf("the key was forgotten: %+v, %v", again, err)
		}
	})
}

// A leader whose clock was an hour ahead decided a retry and died. The next one, whose
// clock is right, must not wait for an hour.
func TestARetryWaitsAtMostItsDelayAfterALeaderWithAWrongClock(t *testing.T) {
	t.Parallel()
	for what, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, clock := newCluster(t), new(wallClock)
				c.config = func(cfg *sequencer.Config) { cfg.WallClock = clock.now }
				clock.add(ahead)
				s, end := c.lead()
				w := attachWorker(t, s, "w", "a", 1, func(it fsm.AssignItem) *dtaskv1.Outcome {
					if it.Attempt == 1 {
						return &dtaskv1.Outcome{Kind: dtaskv1.OutcomeKind_OUTCOME_KIND_FAILED, ExitCode: 3}
					}
					return succeed(it)
				})
				retry := &dtaskv1.RetryPolicy{Max: 3, InitialMs: 10_000, MultiplierPermille: 1000, MaxDelayMs: 60_000}
				id := mustSubmit(t, s, spec{key: "k", n: 1, policy: &dtaskv1.TaskPolicy{Type: "noop", TimeoutMs: 60_000, Retry: retry}})
				c.await("the failure", func() bool { return c.task(id, 0).State == fsm.Scheduled })
				s.Detach(w.id, w)
				if err := end(); !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}

				clock.add(-ahead)
				elected := time.Now()
				s, _ = c.lead()
				w = attachWorker(t, s, "w", "a", 1, succeed)
				if job := c.awaitEnd(id); job.State != fsm.JobCompleted || c.task(id, 0).Attempt != 2 {
					t.Errorf("job is %v after %d attempts", job.State, c.task(id, 0).Attempt)
				}
				if waited := time.Since(elected); waited > 11*time.Second {
					t.Errorf("the retry came %v after the election, its delay is 10 s", waited)
				}
				s.Detach(w.id, w)
			})
		})
	}
}

// Completed jobs leave early if they are too many. Jobs that can be retried
// stay.
func TestTooManyCompletedTasksLeaveOldestFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *sequencer.Config) { cfg.KeepCompletedTasks = 5 }
		s, _ := c.lead()
		cancelled := mustSubmit(t, s, spec{key: "no", n: 40})
		if _, err := s.CancelJob(t.Context(), cancelled, "enough"); err != nil {
			t.Fatal(err)
		}
		w := attachWorker(t, s, "w", "a", 1, succeed)
		var ids []fsm.JobID
		for _, key := range []string{"a", "b", "c"} {
			id := mustSubmit(t, s, spec{key: key, n: 3})
			c.awaitEnd(id)
			ids = append(ids, id)
		}
		<-time.After(20 * time.Second)
		for i, id := range ids {
			if there := c.job(id).ID == id; there != (i == 2) {
				t.Errorf("job %d of three is in the state: %v", i, there)
			}
		}
		if c.job(cancelled).ID != cancelled {
			t.Error("a job that can be retried has left")
		}
		s.Detach(w.id, w)
	})
}
