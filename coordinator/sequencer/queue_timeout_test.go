package sequencer_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// patient is the policy of a task that goes behind the others after 2 s.
func patient() *dtaskv1.TaskPolicy {
	return &dtaskv1.TaskPolicy{Type: "noop", TimeoutMs: 60_000, QueueTimeoutMs: 2000, QueueTimeoutRequeues: true}
}

// runOrder attaches a worker with one slot and returns the order in which it
// gets all tasks of the jobs.
func runOrder(c *cluster, s *sequencer.Sequencer, jobs ...fsm.JobID) []fsm.TaskRef {
	c.t.Helper()
	var mu sync.Mutex
	var order []fsm.TaskRef
	attachWorker(c.t, s, "w", "a", 1, func(it fsm.AssignItem) *dtaskv1.Outcome {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, it.TaskRef)
		return succeed(it)
	})
	for _, id := range jobs {
		c.awaitEnd(id)
	}
	mu.Lock()
	defer mu.Unlock()
	return order
}

// pass waits for a duration of the test's clock, and for everything that it
// causes.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestATaskIsRequeuedEachTimeItsQueueTimeoutExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		totals := sequencer.NewTotals()
		c.config = func(cfg *sequencer.Config) { cfg.Totals = totals }
		s, _ := c.lead()
		low := mustSubmit(t, s, spec{key: "low", n: 1, header: &dtaskv1.JobHeader{Name: "low", Priority: dtaskv1.Priority_PRIORITY_LOW}})
		first := mustSubmit(t, s, spec{key: "first", n: 2, policy: patient()})
		pass(time.Second)
		second := mustSubmit(t, s, spec{key: "second", n: 1})
		pass(1500 * time.Millisecond) // first is behind second
		third := mustSubmit(t, s, spec{key: "third", n: 1})
		index := c.machine.Index()
		pass(2 * time.Second) // and behind third
		if now := c.machine.Index(); now != index {
			t.Errorf("requeuing took %d entries of the log", now-index)
		}
		if err := s.Audit(t.Context()); err != nil {
			t.Error(err)
		}
		want := []fsm.TaskRef{{Job: second}, {Job: third}, {Job: first}, {Job: first, Index: 1}, {Job: low}}
		if order := runOrder(c, s, low, first, second, third); !slices.Equal(order, want) {
			t.Errorf("tasks ran in the order %v, want %v", order, want)
		}
		if v := c.task(first, 0); v.Attempt != 1 || v.Failures != 0 || v.State != fsm.Completed {
			t.Errorf("the requeued task is %v at attempt %d after %d failures, want completed at 1 after none", v.State, v.Attempt, v.Failures)
		}
		// 4.5 s of low and of each task of first, 3.5 of second, 2 of third
		if waits := totals.Wait.Counts(); waits.N != 5 || waits.Sum.Round(100*time.Millisecond) != 19*time.Second {
			t.Errorf("%d tasks waited %v, want 5 and 19 s", waits.N, waits.Sum)
		}
	})
}

// The order of ready tasks is the leader's alone: another one starts with the
// order of the jobs, and with the whole queue timeout.
func TestANewLeaderStartsQueueTimeoutsAgain(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		after time.Duration // of the change of leader
		first int           // the job whose task runs first
	}{
		"the order of the jobs":   {500 * time.Millisecond, 0},
		"the queue timeout again": {2500 * time.Millisecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				s, stop := c.lead()
				jobs := []fsm.JobID{mustSubmit(t, s, spec{key: "a", n: 1, policy: patient()}), mustSubmit(t, s, spec{key: "b", n: 1})}
				pass(3 * time.Second)
				_ = stop()
				s, _ = c.lead()
				pass(x.after)
				if order := runOrder(c, s, jobs...); order[0].Job != jobs[x.first] {
					t.Errorf("%v after the change of leader, tasks ran in the order %v", x.after, order)
				}
			})
		})
	}
}

func TestARetriedTaskHasItsWholeQueueTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		id := mustSubmit(t, s, spec{key: "k", n: 1, policy: &dtaskv1.TaskPolicy{Type: "noop", TimeoutMs: 1000, QueueTimeoutMs: 2000}})
		pass(1500 * time.Millisecond)
		if _, err := s.CancelJob(t.Context(), id, "wait"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Revive(t.Context(), fsm.Revive{Job: id}, false); err != nil {
			t.Fatal(err)
		}
		pass(1500 * time.Millisecond) // the first timeout has passed
		if v := c.task(id, 0); v.State != fsm.Pending {
			t.Errorf("the retried task is %v after 1.5 s, want pending", v.State)
		}
		pass(time.Second)
		if v := c.task(id, 0); v.State != fsm.Failed {
			t.Errorf("the retried task is %v after 2.5 s, want failed", v.State)
		}
	})
}

// Most tasks wait far shorter than they may.
func TestATaskThatHasStartedLeavesNoQueueTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		hours := &dtaskv1.TaskPolicy{Type: "noop", TimeoutMs: 60_000, QueueTimeoutMs: 3 * 3_600_000}
		started := mustSubmit(t, s, spec{key: "started", n: 300, policy: hours})
		w := attachWorker(t, s, "w", "a", 4, succeed)
		c.awaitEnd(started)
		s.Detach(w.id, w)
		cancelled := mustSubmit(t, s, spec{key: "cancelled", n: 10, policy: hours})
		waits := mustSubmit(t, s, spec{key: "waits", n: 5, policy: &dtaskv1.TaskPolicy{Type: "noop", TimeoutMs: 60_000, QueueTimeoutMs: 600_000}})
		if _, err := s.CancelJob(t.Context(), cancelled, "not needed"); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if timers, ends := s.QueueTimeouts(t.Context()); timers != 5 || ends != 5 {
			t.Errorf("%d timers and %d ends of queue timeouts are left, want those of 5 tasks that wait", timers, ends)
		}
		if err := s.Audit(t.Context()); err != nil {
			t.Error(err)
		}
		pass(10 * time.Minute)
		if job := c.job(waits); job.State != fsm.JobFailed {
			t.Errorf("the job that waits is %v, want failed after ten minutes", job.State)
		}
	})
}

// A task is postponed again and again, as if each event restarted its delay, and others are cancelled.
func TestATaskThatIsPostponedAgainHasOneTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		postpone := func(id fsm.JobID, delay time.Duration) {
			mustUpdate(t, s, sequencer.Change{Update: fsm.Update{Job: id, WholeJob: true, Set: fsm.SetNotBefore}, Delay: delay})
		}
		waits, cancelled := mustSubmit(t, s, spec{key: "waits", n: 1}), mustSubmit(t, s, spec{key: "cancelled", n: 100})
		for i := range 100 {
			postpone(waits, time.Hour+time.Duration(i)*time.Second)
		}
		postpone(cancelled, 24*time.Hour)
		if _, err := s.CancelJob(t.Context(), cancelled, "not needed"); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if n := s.DueTimers(t.Context()); n != 1 {
			t.Errorf("%d timers are left, want that of the task that waits", n)
		}
		if err := s.Audit(t.Context()); err != nil {
			t.Error(err)
		}
		pass(time.Hour)
		if task := c.task(waits, 0); task.State != fsm.Scheduled {
			t.Errorf("the task is %v before its time", task.State)
		}
		pass(2 * time.Minute)
		if task := c.task(waits, 0); task.State != fsm.Pending {
			t.Errorf("the task is %v at its time, want pending", task.State)
		}
	})
}
