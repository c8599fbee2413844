package sequencer_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// sharing is a job of one task with a concurrency key.
func sharing(key string, limit uint32, overlap fsm.Overlap) spec {
	return timed(key, 1, func(h *dtaskv1.JobHeader) {
		h.Concurrency = &dtaskv1.JobConcurrency{Key: "deploy", Limit: limit, Overlap: dtaskv1.ScheduleOverlap(overlap)}
	})
}

// runningJobs returns the jobs with assigned tasks.
func (c *cluster) runningJobs() (ids []fsm.JobID) {
	c.machine.Read(func(s *fsm.State, _ uint64) {
		for j := range s.Jobs(0) {
			if j.Counts[fsm.Assigned] > 0 {
				ids = append(ids, j.ID)
			}
		}
	})
	slices.Sort(ids)
	return ids
}

func TestJobsWithAKeyRunInOrder(t *testing.T) {
	t.Parallel()
	for _, limit := range []uint32{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			s, end := c.lead()
			raiseToSchedules(t, s)
			var jobs []fsm.JobID
			for i := range 6 {
				jobs = append(jobs, mustSubmit(t, s, sharing(fmt.Sprint("job", i), limit, fsm.OverlapWaitAll)))
			}
			w := attachWorker(t, s, "w", "a", 8, hold)
			pass(time.Second)
			for i := range 4 {
				if want := jobs[i : i+int(limit)]; !slices.Equal(c.runningJobs(), want) {
					t.Errorf("limit %d: the jobs %v run, want %v", limit, c.runningJobs(), want)
				}
				if job := c.job(jobs[5]); !job.Gated || !slices.Equal(job.WaitsFor, jobs[i:5]) {
					t.Errorf("limit %d: the last job waits for %v, want %v", limit, job.WaitsFor, jobs[i:5])
				}
				if err := s.Audit(t.Context()); err != nil {
					t.Error(err)
				}
				if i == 1 { // a failover changes nothing
					held := slices.Clone(w.held)
					_ = end()
					s, end = c.lead()
					w = attachWorker(t, s, "w", "a", 8, hold, held...)
					pass(time.Second)
				}
				w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: jobs[i]}, Attempt: 1})
				w.forget(jobs[i])
				pass(time.Second)
			}
		})
	}
}

// A job that is cancelled has ended in the state, and its command may still run: the next job
// must not start before it has stopped, whatever happens to the leader.
func TestAKeyIsFreeWhenNothingOfItsJobRuns(t *testing.T) {
	t.Parallel()
	for _, failover := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			s, end := c.lead()
			raiseToSchedules(t, s)
			w := attachWorker(t, s, "w", "a", 8, hold)
			first := mustSubmit(t, s, sharing("first", 1, fsm.OverlapReplace))
			w.await("the first job", func() bool { return len(w.held) == 1 })
			second := mustSubmit(t, s, sharing("second", 1, fsm.OverlapReplace))
			w.await("the stop", func() bool { return len(w.stops) == 1 })
			if job := c.job(first); job.State != fsm.JobCancelled {
				t.Fatalf("the replaced job is %v", job.State)
			}
			if failover {
				held := slices.Clone(w.held)
				_ = end()
				s, _ = c.lead()
				pass(time.Second) // the worker has not reported yet
				if job := c.job(second); !job.Gated {
					t.Error("the second job has started before the worker has reported to the new leader")
				}
				w = attachWorker(t, s, "w", "a", 8, hold, held...)
			}
			pass(30 * time.Second)
			if job := c.job(second); !job.Gated || job.State != fsm.JobPending {
				t.Errorf("failover %v: the second job is %v while the first one is being killed", failover, job.State)
			}
			w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED, w.held[0])
			w.await("the second job", func() bool { return len(w.held) == 2 })
		})
	}
}

// The end of the replaced job seems an hour old to the new leader, whose clock is wrong.
func TestAKeyIsNotFreeForALeaderWhoseClockIsAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, clock := newCluster(t), new(wallClock)
		s, end := c.lead()
		raiseToSchedules(t, s)
		w := attachWorker(t, s, "w", "a", 8, hold)
		mustSubmit(t, s, sharing("first", 1, fsm.OverlapReplace))
		w.await("the first job", func() bool { return len(w.held) == 1 })
		second := mustSubmit(t, s, sharing("second", 1, fsm.OverlapReplace))
		w.await("the stop", func() bool { return len(w.stops) == 1 })
		_ = end()
		clock.add(time.Hour)
		c.config = func(cfg *sequencer.Config) {
			cfg.WallClock, cfg.ClockAgrees = clock.now, func() bool { return false }
		}
		c.lead()
		pass(time.Second) // the worker has not reported yet
		if job := c.job(second); !job.Gated {
			t.Error("the second job has started before the worker has reported to the new leader")
		}
	})
}

func TestAnAttemptThatNeverStopsDoesNotKeepAKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		w := attachWorker(t, s, "w", "a", 8, hold)
		mustSubmit(t, s, sharing("first", 1, fsm.OverlapReplace))
		w.await("the first job", func() bool { return len(w.held) == 1 })
		second := mustSubmit(t, s, sharing("second", 1, fsm.OverlapReplace))
		pass(59 * time.Second)
		if job := c.job(second); !job.Gated {
			t.Error("the second job has started after 59 s")
		}
		pass(2 * time.Second)
		if job := c.job(second); job.State != fsm.JobRunning {
			t.Errorf("after 61 s, the second job is %v", job.State)
		}
	})
}

// A job that the rule forbids is not stored, and a repeated request is tried again.
func TestAJobThatIsSkippedIsNotStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		first := mustSubmit(t, s, sharing("first", 1, fsm.OverlapSkip))
		next := sharing("next", 1, fsm.OverlapSkip)
		_, err := s.Submit(t.Context(), next.submission())
		wantRejected(t, "while the first job is open", err, fsm.RunOpen)
		if _, err := s.CancelJob(t.Context(), first, "enough"); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Submit(t.Context(), next.submission()); err != nil || r.Existed {
			t.Errorf("after it has ended: got %+v, %v", r, err)
		}
	})
}

// A job waits for its time first: it neither holds its key meanwhile nor keeps others from it.
func TestAJobThatWaitsForItsTimeHoldsNoKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		attachWorker(t, s, "w", "a", 8, succeed)
		late := sharing("late", 1, fsm.OverlapWaitAll)
		late.header.StartAfterMs = 10_000
		first, second := mustSubmit(t, s, late), mustSubmit(t, s, sharing("now", 1, fsm.OverlapWaitAll))
		if job := c.awaitEnd(second); job.State != fsm.JobCompleted {
			t.Errorf("the job that may start at once is %v", job.State)
		}
		if job := c.awaitEnd(first); c.startedAt(first) < 10*time.Second {
			t.Errorf("the job that starts later is %v and started after %v", job.State, c.startedAt(first))
		}
	})
}

// A job that waits for its key can be cancelled, and expires.
func TestAJobThatWaitsForItsKeyIsCancelledAndExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		w := attachWorker(t, s, "w", "a", 8, hold)
		first := mustSubmit(t, s, sharing("first", 1, fsm.OverlapWaitAll))
		second := mustSubmit(t, s, sharing("second", 1, fsm.OverlapWaitAll))
		soon := sharing("third", 1, fsm.OverlapWaitAll)
		soon.header.ExpiresMs = 5000
		third, fourth := mustSubmit(t, s, soon), mustSubmit(t, s, sharing("fourth", 1, fsm.OverlapWaitAll))
		if _, err := s.CancelJob(t.Context(), second, "enough"); err != nil {
			t.Fatal(err)
		}
		pass(6 * time.Second)
		if job := c.job(third); job.State != fsm.JobCancelled {
			t.Errorf("the third job is %v, want cancelled because it expired", job.State)
		}
		if got := c.runningJobs(); !slices.Equal(got, []fsm.JobID{first}) {
			t.Errorf("the jobs %v run", got)
		}
		if _, err := s.Revive(t.Context(), fsm.Revive{Job: second}, false); err != nil {
			t.Fatal(err)
		}
		for _, id := range []fsm.JobID{first, second} {
			w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: id}, Attempt: 1})
			pass(time.Second)
		}
		if got := c.runningJobs(); !slices.Equal(got, []fsm.JobID{fourth}) {
			t.Errorf("after two jobs, the jobs %v run", got)
		}
	})
}

// A schedule shares a key with the jobs that users submit.
func TestAScheduleSharesItsKeyWithJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		raiseToSchedules(t, s)
		n := everyTenSeconds("tick")
		n.Submission = sharing("tick", 1, fsm.OverlapSkip).submission()
		n.Name, n.Overlap = "tick", fsm.OverlapSkip
		mustSet(t, s, n)
		pass(5 * time.Second)
		job := mustSubmit(t, s, sharing("by hand", 1, fsm.OverlapSkip))
		pass(10 * time.Second)
		if _, err := s.CancelJob(t.Context(), job, "enough"); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if got, want := c.decisions(), "10 open; 20 runs; "; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		_, err := s.RunSchedule(t.Context(), sequencer.ScheduleRun{Schedule: 1, Key: "k"})
		wantRejected(t, "a run by hand", err, fsm.RunOpen)
	})
}

// A job whose start time had come waits for it again if the wall clock is set back meanwhile.
func TestAJobThatWaitsForItsKeyStartsAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, clock := newCluster(t), new(wallClock)
		c.config = func(cfg *sequencer.Config) { cfg.WallClock = clock.now }
		s, _ := c.lead()
		raiseToSchedules(t, s)
		w := attachWorker(t, s, "w", "a", 8, hold)
		first := mustSubmit(t, s, sharing("first", 1, fsm.OverlapWaitAll))
		late := sharing("second", 1, fsm.OverlapWaitAll)
		late.header.StartAfterMs = 10_000
		second := mustSubmit(t, s, late)
		pass(11 * time.Second) // the second job waits for its key only
		clock.add(-5 * time.Second)
		w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: first}, Attempt: 1})
		pass(time.Second)
		if err := s.Audit(t.Context()); err != nil {
			t.Error(err)
		}
		pass(10 * time.Second)
		if job := c.job(second); job.Gated || job.State != fsm.JobRunning {
			t.Errorf("the second job is %v, gated %v, long after its time and its key", job.State, job.Gated)
		}
	})
}

// A job that is retried while its command is being killed waits for that like others, also
// under a new leader.
func TestARetriedJobDoesNotStartWhileItsCommandIsKilled(t *testing.T) {
	t.Parallel()
	for _, failover := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			s, end := c.lead()
			raiseToSchedules(t, s)
			w := attachWorker(t, s, "w", "a", 8, hold)
			id := mustSubmit(t, s, sharing("job", 1, fsm.OverlapWaitAll))
			w.await("the job", func() bool { return len(w.held) == 1 })
			if _, err := s.CancelJob(t.Context(), id, "enough"); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Revive(t.Context(), fsm.Revive{Job: id}, false); err != nil {
				t.Fatal(err)
			}
			if failover {
				held := slices.Clone(w.held)
				_ = end()
				s, _ = c.lead()
				pass(time.Second) // the worker has not reported yet
				if job := c.job(id); !job.Gated {
					t.Error("the job has started before the worker has reported to the new leader")
				}
				w = attachWorker(t, s, "w", "a", 8, hold, held...)
			}
			pass(30 * time.Second)
			if job := c.job(id); !job.Gated {
				t.Errorf("failover %v: the job has started while its first attempt is being killed", failover)
			}
			w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED, w.held[0])
			w.await("the second attempt", func() bool { return len(w.held) == 2 })
		})
	}
}
