package sequencer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// timed is a job of n tasks with times.
func timed(key string, n uint32, set func(h *dtaskv1.JobHeader)) spec {
	h := &dtaskv1.JobHeader{Name: key, Priority: dtaskv1.Priority_PRIORITY_NORMAL}
	set(h)
	return spec{key: key, n: n, header: h}
}

func startsAfter(d time.Duration) func(*dtaskv1.JobHeader) {
	return func(h *dtaskv1.JobHeader) { h.StartAfterMs = d.Milliseconds() }
}

func expiresIn(d time.Duration) func(*dtaskv1.JobHeader) {
	return func(h *dtaskv1.JobHeader) { h.ExpiresMs = d.Milliseconds() }
}

// startedAt is when a job started, after the begin of virtual time.
func (c *cluster) startedAt(id fsm.JobID) time.Duration {
	return time.UnixMilli(c.job(id).StartedMS).Sub(simEpoch)
}

// A leader that ends meanwhile neither delays the job nor starts it early.
func TestAJobStartsAtItsTime(t *testing.T) {
	t.Parallel()
	for what, set := range map[string]func(h *dtaskv1.JobHeader){
		"at":    func(h *dtaskv1.JobHeader) { h.StartAtMs = simEpoch.Add(20 * time.Second).UnixMilli() },
		"after": startsAfter(20 * time.Second),
		"both":  func(h *dtaskv1.JobHeader) { h.StartAtMs, h.StartAfterMs = 1, 20_000 },
	} {
		for _, failover := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				s, end := c.lead()
				raiseToSchedules(t, s)
				id := mustSubmit(t, s, timed("later", 3, set))
				pass(10 * time.Second)
				if failover {
					_ = end()
					s, _ = c.lead()
				}
				attachWorker(t, s, "w", "a", 4, succeed)
				pass(9 * time.Second)
				job := c.job(id)
				if job.State != fsm.JobPending || !job.Gated || job.Counts[fsm.Blocked] != 3 {
					t.Errorf("%s: before its time, the job is %v with %v tasks, gated %v", what, job.State, job.Counts, job.Gated)
				}
				if err := s.Audit(t.Context()); err != nil {
					t.Error(err)
				}
				c.awaitEnd(id)
				if late := c.startedAt(id) - 20*time.Second; late < 0 || late > 50*time.Millisecond {
					t.Errorf("%s, failover %v: the job started %v after its time", what, failover, late)
				}
			})
		}
	}
}

// A job that waits for its time has one timer, however many tasks it has, and its tasks
// take no place in the queue.
func TestAJobThatWaitsForItsTimeHasOneTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		id := mustSubmit(t, s, timed("later", 5000, startsAfter(time.Hour)))
		pass(30 * time.Minute)
		if timers, ready := s.GateTimers(t.Context()); timers != 1 || ready != 0 {
			t.Errorf("job %d has %d timers and %d ready tasks, want 1 and none", id, timers, ready)
		}
		pass(31 * time.Minute)
		if timers, ready := s.GateTimers(t.Context()); timers != 0 || ready != 5000 {
			t.Errorf("after its time: %d timers and %d ready tasks", timers, ready)
		}
	})
}

// A wall clock that stands still differs by more with each sweep.
func TestAClockThatStandsStillAddsNoTimers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var stopped atomic.Pointer[time.Time]
		c.config = func(cfg *sequencer.Config) {
			cfg.WallClock = func() time.Time {
				if at := stopped.Load(); at != nil {
					return *at
				}
				return time.Now()
			}
		}
		s, _ := c.lead()
		raiseToSchedules(t, s)
		mustSubmit(t, s, timed("later", 1, startsAfter(time.Hour)))
		mustSubmit(t, s, timed("expires", 1, expiresIn(2*time.Hour)))
		daily := everyTenSeconds("daily")
		daily.EveryMS = 86_400_000
		mustSet(t, s, daily)
		pass(5 * time.Second)
		now := time.Now()
		stopped.Store(&now)
		pass(20 * time.Minute)
		gates, _ := s.GateTimers(t.Context())
		if ticks := s.TickTimers(t.Context()); gates != 2 || ticks != 1 {
			t.Errorf("%d timers of jobs and %d of schedules, want one for the start, one for the expiry and one for the tick", gates, ticks)
		}
		stopped.Store(nil)
		pass(41 * time.Minute)
		if gates, ready := s.GateTimers(t.Context()); gates != 1 || ready != 2 {
			t.Errorf("after the start time, %d timers and %d ready tasks, want 1 and 2", gates, ready)
		}
	})
}

// The time counts from the submission, or the start time, whatever happens to leaders.
func TestAJobOfWhichNoTaskHasStartedExpires(t *testing.T) {
	t.Parallel()
	for what, x := range map[string]struct {
		set func(h *dtaskv1.JobHeader)
		at  time.Duration
	}{
		"from its submission": {expiresIn(20 * time.Second), 20 * time.Second},
		"from its start time": {func(h *dtaskv1.JobHeader) { h.StartAfterMs, h.ExpiresMs = 15_000, 5000 }, 20 * time.Second},
	} {
		for _, failover := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				c, totals := newCluster(t), sequencer.NewTotals()
				c.config = func(cfg *sequencer.Config) { cfg.Totals = totals }
				s, end := c.lead()
				raiseToSchedules(t, s)
				job := timed("soon", 3, x.set)
				job.finals = 1
				id := mustSubmit(t, s, job)
				pass(18 * time.Second)
				if failover {
					_ = end()
					s, _ = c.lead()
				}
				pass(1900 * time.Millisecond)
				if job := c.job(id); job.State != fsm.JobPending {
					t.Errorf("%s: the job is %v before it expires", what, job.State)
				}
				pass(200 * time.Millisecond)
				got := c.job(id)
				if late := time.UnixMilli(got.EndedMS).Sub(simEpoch) - x.at; late < 0 || late > 50*time.Millisecond {
					t.Errorf("%s, failover %v: the job expired %v after its time", what, failover, late)
				}
				if got.State != fsm.JobCancelled || !strings.HasPrefix(got.Error, "expired: no task started within ") || got.Counts[fsm.Cancelled] != 3 {
					t.Errorf("%s: the job is %v (%s), its tasks are %v", what, got.State, got.Error, got.Counts)
				}
				attachWorker(t, s, "w", "a", 4, succeed)
				pass(time.Second)
				if job := c.job(id); job.StartedMS != 0 {
					t.Errorf("%s: the job has started after it expired", what)
				}
				if n := totals.JobsExpired.Load(); n != 1 {
					t.Errorf("%s: %d expired jobs were counted, want 1", what, n)
				}
			})
		}
	}
}

func TestAJobThatHasStartedDoesNotExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		attachWorker(t, s, "w", "a", 1, hold)
		id := mustSubmit(t, s, timed("soon", 3, expiresIn(5*time.Second)))
		pass(time.Minute)
		if job := c.job(id); job.State != fsm.JobRunning || job.Counts[fsm.Assigned] != 1 {
			t.Errorf("the job is %v (%s), its tasks are %v", job.State, job.Error, job.Counts)
		}
	})
}

// A retry does not start a job before its time, and the job may expire again.
func TestAJobThatWaitsForItsTimeIsCancelledUpdatedAndRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		id := mustSubmit(t, s, timed("later", 3, func(h *dtaskv1.JobHeader) { h.StartAfterMs, h.ExpiresMs = 60_000, 10_000 }))
		update := sequencer.Change{Update: fsm.Update{Job: id, WholeJob: true, Set: fsm.SetPriority, Priority: dtaskv1.Priority_PRIORITY_HIGH}}
		if _, err := s.Update(t.Context(), update); err != nil {
			t.Fatal(err)
		}
		if _, err := s.CancelJob(t.Context(), id, "not yet"); err != nil {
			t.Fatal(err)
		}
		if job := c.job(id); job.State != fsm.JobCancelled || job.Gated {
			t.Errorf("the cancelled job is %v, gated %v", job.State, job.Gated)
		}
		if _, err := s.Revive(t.Context(), fsm.Revive{Job: id}, false); err != nil {
			t.Fatal(err)
		}
		pass(59 * time.Second)
		if job := c.job(id); job.State != fsm.JobPending || !job.Gated {
			t.Errorf("the retried job is %v, gated %v", job.State, job.Gated)
		}
		pass(12 * time.Second)
		if job := c.job(id); job.State != fsm.JobCancelled {
			t.Errorf("the retried job is %v, want cancelled because it expired", job.State)
		}
		if _, err := s.Revive(t.Context(), fsm.Revive{Job: id}, false); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		attachWorker(t, s, "w", "a", 4, succeed)
		if job := c.awaitEnd(id); job.State != fsm.JobCompleted {
			t.Errorf("the job ended as %v (%s)", job.State, job.Error)
		}
	})
}

// Nothing starts early or expires by a clock that is in doubt, or was set.
func TestAClockThatIsSetStartsNoJobEarly(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Hour, -time.Hour, 5 * time.Second, -5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c, clock := newCluster(t), new(wallClock)
			var agrees atomic.Bool
			agrees.Store(true)
			c.config = func(cfg *sequencer.Config) { cfg.WallClock, cfg.ClockAgrees = clock.now, agrees.Load }
			s, _ := c.lead()
			raiseToSchedules(t, s)
			later := mustSubmit(t, s, timed("later", 1, startsAfter(20*time.Second)))
			expires := mustSubmit(t, s, timed("expires", 1, func(h *dtaskv1.JobHeader) { h.StartAfterMs, h.ExpiresMs = 20_000, 1000 }))
			pass(10 * time.Second)
			clock.add(step)
			agrees.Store(step.Abs() < 10*time.Second)
			pass(4 * time.Second)
			for _, id := range []fsm.JobID{later, expires} {
				if job := c.job(id); !job.Gated || job.State != fsm.JobPending {
					t.Errorf("step %v: job %d is %v, gated %v", step, id, job.State, job.Gated)
				}
			}
			clock.add(-step)
			agrees.Store(true)
			pass(9 * time.Second)
			if job := c.job(later); job.Gated {
				t.Errorf("step %v: the job still waits for its time", step)
			}
			if job := c.job(expires); job.State != fsm.JobCancelled {
				t.Errorf("step %v: the job is %v, want cancelled because it expired", step, job.State)
			}
		})
	}
}

// A leader whose clock is ahead takes over a job that has not expired.
func TestALeaderWhoseClockIsAheadLetsNoJobExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, clock := newCluster(t), new(wallClock)
		var agrees atomic.Bool
		agrees.Store(true)
		c.config = func(cfg *sequencer.Config) { cfg.WallClock, cfg.ClockAgrees = clock.now, agrees.Load }
		s, end := c.lead()
		raiseToSchedules(t, s)
		id := mustSubmit(t, s, timed("expires", 1, expiresIn(20*time.Second)))
		if err := end(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		clock.add(time.Hour)
		agrees.Store(false)
		c.lead()
		pass(10 * time.Second)
		if job := c.job(id); job.State != fsm.JobPending {
			t.Errorf("the job is %v by a clock that is an hour ahead", job.State)
		}
		clock.add(-time.Hour)
		agrees.Store(true)
		pass(11 * time.Second)
		if job := c.job(id); job.State != fsm.JobCancelled {
			t.Errorf("the job is %v, want cancelled because it expired", job.State)
		}
	})
}

// A job waits for the jobs that it needs, and for its time.
func TestAJobThatNeedsOthersStartsAfterThemAndItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		first := mustSubmit(t, s, timed("first", 1, startsAfter(30*time.Second)))
		next := mustSubmit(t, s, timed("next", 1, func(h *dtaskv1.JobHeader) {
			h.StartAfterMs, h.Needs = 10_000, []*dtaskv1.JobNeed{{Job: uint64(first)}}
		}))
		attachWorker(t, s, "w", "a", 4, succeed)
		pass(29 * time.Second)
		if job := c.job(next); !job.Waiting || job.Counts[fsm.Blocked] != 1 {
			t.Errorf("the job does not wait for the one that it needs: %+v", job)
		}
		if job := c.awaitEnd(next); job.State != fsm.JobCompleted || c.startedAt(next) < 30*time.Second {
			t.Errorf("the job is %v and started after %v", job.State, c.startedAt(next))
		}
	})
}

// A cluster that is not upgraded refuses what an earlier version would start at once.
func TestAJobWithTimesNeedsTheLevel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		for what, set := range map[string]func(*dtaskv1.JobHeader){"start": startsAfter(time.Hour), "expiry": expiresIn(time.Hour)} {
			_, err := s.Submit(t.Context(), timed(what, 1, set).submission())
			wantRejected(t, what, err, fsm.AboveLevel)
		}
	})
}
