package sequencer_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func mustSetLimit(tb testing.TB, s *sequencer.Sequencer, name string, to fsm.LimitSettings) {
	tb.Helper()
	if _, err := s.SetLimit(tb.Context(), name, to, 0, "alice"); err != nil {
		tb.Fatalf("set limit %s: %v", name, err)
	}
}

// afterLeases is when no earlier process of a worker that joined now can run any more.
const afterLeases = 65 * time.Second

func atMost(n uint32) fsm.LimitSettings { return fsm.LimitSettings{Running: n} }

// using is a job whose tasks use limits.
func using(key string, n uint32, uses ...string) spec {
	return spec{key: key, n: n, policy: &dtaskv1.TaskPolicy{
		Type: "noop", TimeoutMs: 3_600_000, StartTimeoutMs: 3_600_000, Uses: uses, Retry: &dtaskv1.RetryPolicy{Max: 3, InitialMs: 1, MultiplierPermille: 2000, MaxDelayMs: 10},
	}}
}

func (c *cluster) assigned(id fsm.JobID) uint32 { return c.job(id).Counts[fsm.Assigned] }

func mustLimitLoad(tb testing.TB, s *sequencer.Sequencer, name string) sequencer.LimitLoad {
	tb.Helper()
	loads, err := s.LimitLoads(tb.Context(), name)
	if err != nil || len(loads) == 0 {
		tb.Fatalf("got %v, %v; want the load of %s", loads, err, name)
	}
	return loads[0]
}

func TestALimitHoldsUnderEveryLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		atQueueLevel(t, s)
		mustSetLimit(t, s, "db", atMost(2))
		id := mustSubmit(t, s, using("k", 5, "db"))
		w := attachWorker(t, s, "w1", "a", 8, keep)
		synctest.Wait()
		if c.assigned(id) != 2 {
			t.Fatalf("%d tasks are assigned, want 2", c.assigned(id))
		}
		<-time.After(afterLeases)
		_ = end()
		s, _ = c.lead()
		attachWorker(t, s, "w2", "b", 8, keep)
		synctest.Wait()
		if c.assigned(id) != 2 {
			t.Fatalf("%d tasks are assigned before w1 has reported, want 2", c.assigned(id))
		}
		again := attachWorker(t, s, "w1", "a", 8, keep, w.held...)
		if l := mustLimitLoad(t, s, "db"); l.Held != 2 || l.Waiting != 3 || l.Paused || len(l.Holders) != 2 {
			t.Errorf("got %+v", l)
		}
		e := mustExplain(t, s, id, 4)
		if l := e.Capacity.Limits; len(l) != 1 || l[0].Held != 2 || len(l[0].Holders) != 2 || l[0].Holders[0] != w.held[0].TaskRef || l[0].Holders[1] != w.held[1].TaskRef {
			t.Errorf("a task that waits for the limit: got %+v", l)
		}
		again.report(dtaskv1.OutcomeKind_OUTCOME_KIND_SUCCEEDED, w.held[0])
		synctest.Wait()
		if n := c.job(id).Counts[fsm.Completed]; n != 1 || c.assigned(id) != 2 {
			t.Errorf("%d succeeded and %d are assigned, want 1 and 2", n, c.assigned(id))
		}
	})
}

// The holders of a full limit are the tasks that use it, not those of other limits or of none. A
// limit that is not full keeps no task from starting, and has no holders in the answer.
func TestTheHoldersOfAFullLimitAreThoseThatUseIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	atQueueLevel(t, s)
	mustSetLimit(t, s, "db", atMost(2))
	mustSetLimit(t, s, "api", atMost(5))
	both := mustSubmit(t, s, using("both", 1, "api", "db"))
	other := mustSubmit(t, s, using("other", 1, "api"))
	plain := mustSubmit(t, s, using("plain", 1))
	one := mustSubmit(t, s, using("one", 1, "db"))
	attachWorker(t, s, "w", "a", 8, keep)
	c.await("all of them are assigned", func() bool {
		return c.assigned(both)+c.assigned(other)+c.assigned(plain)+c.assigned(one) == 4
	})
	waits := mustSubmit(t, s, using("waits", 1, "api", "db"))
	limits := mustExplain(t, s, waits, 0).Capacity.Limits
	if len(limits) != 2 || limits[0].Name != "api" || limits[0].Held != 2 || len(limits[0].Holders) != 0 {
		t.Fatalf("got %+v, want that two of five attempts hold the limit api", limits)
	}
	if l := limits[1]; l.Held != 2 || !slices.Equal(l.Holders, []fsm.TaskRef{{Job: both}, {Job: one}}) {
		t.Errorf("got %+v, want that the tasks of jobs %d and %d hold the limit db", l, both, one)
	}
}

// A worker that is cut off ends its attempts with their leases. Until then they may run.
func TestAnAttemptOfALostWorkerCountsUntilItsLeaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		atQueueLevel(t, s)
		mustSetLimit(t, s, "db", atMost(1))
		id := mustSubmit(t, s, using("k", 1, "db"))
		w := attachWorker(t, s, "w1", "a", 1, keep)
		c.await("the task is assigned", func() bool { return c.assigned(id) == 1 })
		w.fallSilent()
		<-time.After(10 * time.Second) // the worker is down
		next := mustSubmit(t, s, using("next", 1, "db"))
		attachWorker(t, s, "w2", "b", 4, keep)
		<-time.After(10 * time.Second)
		if v := c.task(id, 0); v.State != fsm.Assigned || c.assigned(next) != 0 {
			t.Fatalf("within the lease: the task is %v, and %d of the next job are assigned", v.State, c.assigned(next))
		}
		_ = end()
		s, _ = c.lead() // it does not know how much of the lease is left
		attachWorker(t, s, "w2", "b", 4, keep)
		<-time.After(25 * time.Second)
		if c.assigned(next) != 0 {
			t.Fatal("a new leader has forgotten the lease")
		}
		<-time.After(10 * time.Second)
		if got := c.assigned(id) + c.assigned(next); got != 1 {
			t.Errorf("after the lease %d tasks are assigned, want 1", got)
		}
	})
}

// The state no longer has a cancelled attempt, but its worker may not have heard of it: it may
// be known as lost before the cancellation, or become lost after it.
func TestACancelledAttemptOfALostWorkerCountsUntilItsLeaseEnds(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ knownLost, newLeader bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			s, end := c.lead()
			atQueueLevel(t, s)
			mustSetLimit(t, s, "db", atMost(1))
			id := mustSubmit(t, s, using("k", 1, "db"))
			w := attachWorker(t, s, "w1", "a", 1, keep)
			c.await("the task is assigned", func() bool { return c.assigned(id) == 1 })
			w.fallSilent()
			if x.knownLost {
				<-time.After(5 * time.Second)
			}
			if _, err := s.CancelJob(t.Context(), id, "no"); err != nil {
				t.Fatal(err)
			}
			next := mustSubmit(t, s, using("next", 1, "db"))
			attachWorker(t, s, "w2", "b", 4, keep)
			<-time.After(5 * time.Second)
			if x.newLeader {
				_ = end()
				s, _ = c.lead()
				attachWorker(t, s, "w2", "b", 4, keep)
			}
			c.mustStartAfterTheLease(next, x)
		})
	}
}

// mustStartAfterTheLease checks that a job waits for the lease of an attempt on a worker that
// fell silent at most 10 s ago, and no longer than necessary.
func (c *cluster) mustStartAfterTheLease(id fsm.JobID, of any) {
	c.t.Helper()
	<-time.After(15 * time.Second)
	if c.assigned(id) != 0 {
		c.t.Fatalf("%+v: the next task starts within the lease", of)
	}
	<-time.After(30 * time.Second)
	if c.assigned(id) != 1 {
		c.t.Errorf("%+v: the next task does not start after the lease", of)
	}
}

// stopSlowly lets worker w1 hold a task of a limit of 1, for some time, until the job and two others
// are cancelled. The worker takes its time to stop the task.
func (c *cluster) stopSlowly(t *testing.T, s *sequencer.Sequencer, held time.Duration) (id fsm.JobID, w *fakeWorker, others []fsm.JobID) {
	t.Helper()
	mustSetLimit(t, s, "db", atMost(1))
	id = mustSubmit(t, s, using("k", 1, "db"))
	w = attachWorker(t, s, "w1", "a", 1, keep)
	c.await("the task is assigned", func() bool { return c.assigned(id) == 1 })
	<-time.After(held)
	others = []fsm.JobID{mustSubmit(t, s, spec{key: "a", n: 1}), mustSubmit(t, s, spec{key: "b", n: 1})}
	for _, job := range append([]fsm.JobID{id}, others...) {
		if _, err := s.CancelJob(t.Context(), job, "no"); err != nil {
			t.Fatal(err)
		}
	}
	return id, w, others
}

// What a worker runs of a job that ended is not in the state as soon as the job is only in the
// history, which is while it stops if memory is short.
func TestAnAttemptOfAnArchivedJobCountsUntilItsLeaseEnds(t *testing.T) {
	t.Parallel()
	for _, newLeader := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.config = func(cfg *sequencer.Config) { cfg.KeepTasks = 1 }
			s, end := c.lead()
			atQueueLevel(t, s)
			id, w, _ := c.stopSlowly(t, s, 2*time.Minute) // so that a new leader need not wait for earlier workers
			c.await("the job is archived", func() bool { return c.job(id).ID == 0 })
			next := mustSubmit(t, s, using("next", 1, "db"))
			if newLeader {
				_ = end()
				s, _ = c.lead()
				w = attachWorker(t, s, "w1", "a", 1, keep, fsm.AttemptRef{TaskRef: fsm.TaskRef{Job: id}, Attempt: 1})
			}
			w.fallSilent()
			attachWorker(t, s, "w2", "b", 4, keep)
			c.mustStartAfterTheLease(next, map[string]bool{"new leader": newLeader})
		})
	}
}

// The worker may come back within the lease, and still stop what it ran of such a job.
func TestAnAttemptOfAnArchivedJobCountsWhenItsWorkerReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *sequencer.Config) { cfg.KeepTasks = 1 }
		s, _ := c.lead()
		atQueueLevel(t, s)
		id, w, _ := c.stopSlowly(t, s, 0)
		c.await("the job is archived", func() bool { return c.job(id).ID == 0 })
		w.fallSilent()
		<-time.After(5 * time.Second) // the worker is down
		next := mustSubmit(t, s, using("next", 1, "db"))
		again := attachWorker(t, s, "w1", "a", 1, keep, w.held...)
		attachWorker(t, s, "w2", "b", 4, keep)
		<-time.After(10 * time.Second)
		if c.assigned(next) != 0 {
			t.Fatal("the next task starts while the worker still stops the attempt")
		}
		again.report(dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED, w.held[0])
		<-time.After(time.Second)
		if c.assigned(next) != 1 {
			t.Error("the next task does not start after the attempt has ended")
		}
	})
}

// A job stays in the state while a worker stops an attempt of it, which may take longer than a
// lease: the next leader must know what the attempt counts towards.
func TestAnAttemptThatStopsSlowlyCountsUnderTheNextLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *sequencer.Config) { cfg.KeepJobs = 1 }
		s, end := c.lead()
		atQueueLevel(t, s)
		id, w, others := c.stopSlowly(t, s, 0)
		c.await("another job is archived", func() bool { return c.job(others[0]).ID == 0 })
		next := mustSubmit(t, s, using("next", 1, "db"))
		_ = end()
		s, _ = c.lead()
		w = attachWorker(t, s, "w1", "a", 1, keep, w.held...)
		attachWorker(t, s, "w2", "b", 4, keep)
		<-time.After(afterLeases)
		if c.assigned(next) != 0 {
			t.Fatal("the next task starts while the worker still stops the attempt")
		}
		w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED, w.held[0])
		<-time.After(time.Second)
		if c.assigned(next) != 1 {
			t.Error("the next task does not start after the attempt has ended")
		}
		c.await("the job is archived", func() bool { return c.job(id).ID == 0 || c.job(others[1]).ID == 0 })
	})
}

// The worker may be lost meanwhile, and return within the lease.
func TestAJobStaysWhileAnAttemptOfItHasALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *sequencer.Config) { cfg.KeepJobs = 1 }
		s, end := c.lead()
		atQueueLevel(t, s)
		_, w, others := c.stopSlowly(t, s, 0)
		c.await("another job is archived", func() bool { return c.job(others[0]).ID == 0 })
		w.fallSilent()
		<-time.After(5 * time.Second) // the worker is down
		next := mustSubmit(t, s, using("next", 1, "db"))
		attachWorker(t, s, "w1", "a", 1, keep, w.held...)
		<-time.After(time.Second)
		_ = end()
		s, _ = c.lead()
		again := attachWorker(t, s, "w1", "a", 1, keep, w.held...)
		attachWorker(t, s, "w2", "b", 4, keep)
		<-time.After(afterLeases)
		if c.assigned(next) != 0 {
			t.Fatal("the next task starts while the worker still stops the attempt")
		}
		again.report(dtaskv1.OutcomeKind_OUTCOME_KIND_CANCELLED, w.held[0])
		c.await("the next task is assigned", func() bool { return c.assigned(next) == 1 })
	})
}

func TestAChangedLimitTakesEffectAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetLimit(t, s, "tenant/*", atMost(1))
		a, b := mustSubmit(t, s, using("a", 9, "tenant/acme")), mustSubmit(t, s, using("b", 9, "tenant/initech"))
		attachWorker(t, s, "w1", "a", 20, keep)
		synctest.Wait()
		if c.assigned(a) != 1 || c.assigned(b) != 1 {
			t.Fatalf("%d and %d are assigned, want 1 of each key", c.assigned(a), c.assigned(b))
		}
		mustSetLimit(t, s, "tenant/*", atMost(3))
		synctest.Wait()
		if c.assigned(a) != 3 || c.assigned(b) != 3 {
			t.Errorf("%d and %d are assigned, want 3 of each key", c.assigned(a), c.assigned(b))
		}
		err := s.DeleteLimit(t.Context(), "tenant/*", 0)
		if rejected, ok := errors.AsType[*sequencer.RejectedError](err); !ok || rejected.Reason != fsm.WrongState {
			t.Errorf("got %v: open jobs use it", err)
		}
	})
}

// starts are the times at which a worker got tasks.
type starts struct {
	mu sync.Mutex
	at []time.Time
}

func (x *starts) succeed(it fsm.AssignItem) *dtaskv1.Outcome {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.at = append(x.at, time.Now())
	return succeed(it)
}

// check compares each pair of starts with the bound of a rate.
func (x *starts) check(t *testing.T, l fsm.LimitSettings) {
	t.Helper()
	for i := range x.at {
		for k := i; k < len(x.at); k++ {
			window := x.at[k].Sub(x.at[i])
			if most := float64(l.Burst) + float64(l.Rate)*float64(window)/float64(time.Duration(l.PeriodMS)*time.Millisecond); float64(k-i+1) > most {
				t.Fatalf("%d starts within %v, want at most %v", k-i+1, window, most)
			}
		}
	}
}

func TestARateHoldsAcrossLeaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rate := fsm.LimitSettings{Rate: 50, PeriodMS: 1000, Burst: 100}
		c := newCluster(t)
		s, end := c.lead()
		atQueueLevel(t, s)
		mustSetLimit(t, s, "api", rate)
		var x starts
		attachWorker(t, s, "w1", "a", 500, x.succeed)
		<-time.After(afterLeases)
		mustSubmit(t, s, using("k", 20_000, "api"))
		for range 20 {
			attachWorker(t, s, "w1", "a", 500, x.succeed)
			<-time.After(3 * time.Second)
			_ = end()
			s, end = c.lead()
		}
		if x.check(t, rate); len(x.at) < 2_500 {
			t.Errorf("%d tasks started in a minute at 50/s, want more", len(x.at))
		}
	})
}

func TestARateFollowsItsChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetLimit(t, s, "api", fsm.LimitSettings{Rate: 1, PeriodMS: 3_600_000, Burst: 2})
		id := mustSubmit(t, s, using("k", 1000, "api"))
		attachWorker(t, s, "w1", "a", 500, succeed)
		<-time.After(time.Minute)
		ended := func() uint32 { return c.job(id).Counts[fsm.Completed] }
		if ended() != 2 {
			t.Fatalf("%d tasks started, want the burst of 2", ended())
		}
		if e := mustExplain(t, s, id, 500); e.RateUntil["api"] < e.NowMS+3_500_000 || e.RateUntil["api"] > e.NowMS+3_600_000 {
			t.Errorf("at %d: the next start is at %d, want in an hour less a minute", e.NowMS, e.RateUntil["api"])
		}
		mustSetLimit(t, s, "api", fsm.LimitSettings{Rate: 10, PeriodMS: 1000, Burst: 5})
		<-time.After(10*time.Second + 50*time.Millisecond)
		if n := ended(); n < 101 || n > 103 {
			t.Errorf("%d tasks started, want 2 + 10/s for 10 s", n)
		}
		mustSetLimit(t, s, "api", atMost(400))
		synctest.Wait()
		if n := ended(); n != 1000 {
			t.Errorf("%d tasks started, want all: the limit has no rate any more", n)
		}
	})
}

// What may start is counted when it is asked for, also if nothing has started since.
func TestTheLoadOfALimitHasTheStartsThatItsRateAllowsNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetLimit(t, s, "api", fsm.LimitSettings{Rate: 1, PeriodMS: 1000, Burst: 10})
		attachWorker(t, s, "w1", "a", 8, keep)
		<-time.After(afterLeases)
		mustSubmit(t, s, using("k", 8, "api"))
		synctest.Wait()
		for _, want := range []uint32{2, 5, 8, 10, 10} {
			if l := mustLimitLoad(t, s, "api"); l.Held != 8 || l.Tokens != want {
				t.Errorf("%d tasks run and %d may start, want 8 and %d", l.Held, l.Tokens, want)
			}
			<-time.After(3 * time.Second)
		}
		more := mustSubmit(t, s, using("more", 5, "api"))
		for range 2 { // an answer changes nothing
			if list := mustExplain(t, s, more, 4).Capacity.Changes; len(list) == 0 || list[0].Code != "add_slots" || list[0].Amount != 5 {
				t.Errorf("got %+v, want that the task starts with 5 more slots", list)
			}
		}
	})
}

// A bucket that is full does not fill further while nothing uses it.
func TestAnIdleRateAllowsItsBurstOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rate := fsm.LimitSettings{Rate: 10, PeriodMS: 1000, Burst: 5}
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		mustSetLimit(t, s, "api", rate)
		var x starts
		attachWorker(t, s, "w1", "a", 500, x.succeed)
		for _, key := range []string{"a", "b"} { // between them no task uses the limit
			<-time.After(time.Hour)
			mustSubmit(t, s, using(key, 100, "api"))
			<-time.After(20 * time.Second)
		}
		if x.check(t, rate); len(x.at) != 200 {
			t.Errorf("%d tasks started, want 200", len(x.at))
		}
	})
}

// A plan takes as long as the limits of its tasks demand.
func TestAPlanRespectsLimits(t *testing.T) {
	t.Parallel()
	workers := []*fsm.Worker{{ID: 1, State: fsm.WorkerUp, Slots: 8}}
	for name, c := range map[string]struct {
		limit fsm.LimitSettings
		want  int64
	}{
		"none":                {fsm.LimitSettings{}, 100},
		"2 at once":           {atMost(2), 400},
		"10/s":                {fsm.LimitSettings{Rate: 10, PeriodMS: 1000, Burst: 1}, 800},
		"10/s, 5 at once":     {fsm.LimitSettings{Rate: 10, PeriodMS: 1000, Burst: 5}, 400},
		"20/s, and 1 at once": {fsm.LimitSettings{Running: 1, Rate: 20, PeriodMS: 1000, Burst: 1}, 800},
	} {
		h := &dtaskv1.JobHeader{Policies: []*dtaskv1.TaskPolicy{{Type: "noop", Uses: []string{"api"}}}}
		p := sequencer.NewPlanner(h, workers, nil, func(string) fsm.LimitSettings { return c.limit })
		low, high, ok := p.Makespan([]sequencer.PlannedTasks{{Tasks: 8}}, func(int) int64 { return 100 }, func() bool { return false })
		if !ok || low != c.want || high != c.want {
			t.Errorf("%s: got %d to %d ms, %v; want %d", name, low, high, ok, c.want)
		}
	}
}
