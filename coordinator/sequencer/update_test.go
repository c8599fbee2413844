package sequencer_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func priorityOf(id fsm.JobID, i uint32, p dtaskv1.Priority) sequencer.Change {
	return sequencer.Change{Update: fsm.Update{Job: id, Task: i, Set: fsm.SetPriority, Priority: p}}
}

func mustUpdate(tb testing.TB, s *sequencer.Sequencer, c sequencer.Change) sequencer.ChangeResult {
	tb.Helper()
	r, err := s.Update(tb.Context(), c)
	if err != nil {
		tb.Fatalf("update: %v", err)
	}
	return r
}

func TestAnUpdatedPriorityReordersReadyTasks(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	id := mustSubmit(t, s, spec{key: "k", n: 5})
	mustUpdate(t, s, priorityOf(id, 1, dtaskv1.Priority_PRIORITY_URGENT))
	mustUpdate(t, s, priorityOf(id, 3, dtaskv1.Priority_PRIORITY_URGENT))
	mustUpdate(t, s, priorityOf(id, 4, dtaskv1.Priority_PRIORITY_HIGH))
	mustUpdate(t, s, priorityOf(id, 1, dtaskv1.Priority_PRIORITY_LOW)) // and back below all
	if err := s.Audit(t.Context()); err != nil {
		t.Error(err)
	}
	var mu sync.Mutex
	var order []uint32
	attachWorker(t, s, "w", "a", 1, func(it fsm.AssignItem) *dtaskv1.Outcome {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, it.Index)
		return succeed(it)
	})
	c.awaitEnd(id)
	mu.Lock()
	defer mu.Unlock()
	if want := []uint32{3, 4, 0, 2, 1}; !slices.Equal(order, want) {
		t.Errorf("tasks ran in the order %v, want %v", order, want)
	}
}

// A task that has started keeps its priority, and its place among those of other jobs.
func TestATaskThatHasStartedKeepsItsPlaceWhenThePriorityOfItsJobChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		id := mustSubmit(t, s, spec{key: "k", n: 10})
		var order []fsm.TaskRef
		started := false
		w := attachWorker(t, s, "w", "a", 1, func(it fsm.AssignItem) *dtaskv1.Outcome {
			if !started {
				return nil
			}
			order = append(order, it.TaskRef)
			return succeed(it)
		})
		synctest.Wait()
		if _, _, err := s.PauseQueue(t.Context(), fsm.DefaultQueue, "", ""); err != nil {
			t.Fatal(err)
		}
		w.report(dtaskv1.OutcomeKind_OUTCOME_KIND_RELEASED, w.held[0])
		synctest.Wait()
		other := mustSubmit(t, s, spec{key: "other", n: 1})
		change := priorityOf(id, 0, dtaskv1.Priority_PRIORITY_HIGH)
		change.WholeJob = true
		mustUpdate(t, s, change)
		if err := s.Audit(t.Context()); err != nil {
			t.Error(err)
		}
		started = true
		if _, _, err := s.ResumeQueue(t.Context(), fsm.DefaultQueue, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var want []fsm.TaskRef
		for i := range uint32(9) {
			want = append(want, fsm.TaskRef{Job: id, Index: 1 + i})
		}
		want = append(want, fsm.TaskRef{Job: id}, fsm.TaskRef{Job: other})
		if !slices.Equal(order, want) {
			t.Errorf("tasks ran in the order %v, want %v", order, want)
		}
	})
}

func TestOneKeyUpdatesOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	id := mustSubmit(t, s, spec{key: "k", n: 2})
	x := priorityOf(id, 0, dtaskv1.Priority_PRIORITY_HIGH)
	x.Key, x.Digest = "u", [16]byte{1}
	if r := mustUpdate(t, s, x); r.Version != 2 || r.Existed {
		t.Errorf("update returned %+v", r)
	}
	mustUpdate(t, s, priorityOf(id, 1, dtaskv1.Priority_PRIORITY_LOW))
	attachWorker(t, s, "w", "a", 2, hold)
	c.await("both tasks to start", func() bool { return c.task(id, 0).Attempt+c.task(id, 1).Attempt == 2 })
	if r := mustUpdate(t, s, x); r.Version != 2 || !r.Existed {
		t.Errorf("the repeated update returned %+v", r)
	}
	x.Digest[0]++
	if _, err := s.Update(t.Context(), x); !isRejected(err, fsm.KeyConflict) {
		t.Errorf("another update with its key returned %v", err)
	}
	x.Key = "k"
	if _, err := s.Update(t.Context(), x); !isRejected(err, fsm.KeyConflict) {
		t.Errorf("an update with the key of a job returned %v", err)
	}
	x.Key = "v"
	if _, err := s.Update(t.Context(), x); !isRejected(err, fsm.WrongState) {
		t.Errorf("an update of a started task returned %v", err)
	}
	x.IfVersion = 9
	if _, err := s.Update(t.Context(), x); !isRejected(err, fsm.VersionMismatch) {
		t.Errorf("an update of another version returned %v", err)
	}
}

// The clock of the leader was an hour behind or ahead when the start time was set, and a majority
// did not agree with it, from before the term or for a while. While it is in doubt, nothing starts
// early.
func TestAStartTimeFollowsAClockThatIsCorrected(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		for _, wrong := range []time.Duration{-time.Hour, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				c, clock := newCluster(t), new(wallClock)
				var agrees atomic.Bool
				set := func(step time.Duration, right bool) {
					agrees.Store(false) // first: a sweep may run meanwhile
					clock.add(step)
					agrees.Store(right)
				}
				c.config = func(cfg *sequencer.Config) { cfg.WallClock, cfg.ClockAgrees = clock.now, agrees.Load }
				if before {
					set(wrong, false)
				}
				s, _ := c.lead()
				if !before {
					set(0, true)
					pass(time.Minute)
					set(wrong, false)
				}
				id := mustSubmit(t, s, spec{key: "k", n: 1})
				start := time.Now().Add(2 * time.Hour)
				mustUpdate(t, s, sequencer.Change{Update: fsm.Update{Job: id, Set: fsm.SetNotBefore}, NotBefore: start})
				pass(time.Minute)
				set(-wrong, true)
				pass(10 * time.Minute)
				set(3*time.Hour, false)
				pass(time.Until(start) - time.Second)
				set(-3*time.Hour, true)
				if state := c.task(id, 0).State; state != fsm.Scheduled {
					t.Errorf("clock wrong by %v, before the term: %v: a second before its start time, the task is %v", wrong, before, state)
				}
				pass(2 * time.Second)
				if state := c.task(id, 0).State; state != fsm.Pending {
					t.Errorf("clock wrong by %v, before the term: %v: a second after its start time, the task is %v", wrong, before, state)
				}
			})
		}
	}
}

// It also does so under another leader, and its queue timeout starts at that
// time.
func TestATaskWaitsForTheStartTimeOfItsLastUpdate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, stop := c.lead()
		policy := &dtaskv1.TaskPolicy{Type: "noop", TimeoutMs: 60_000, QueueTimeoutMs: 3000}
		id := mustSubmit(t, s, spec{key: "k", n: 2, policy: policy, header: &dtaskv1.JobHeader{Name: "j", OnFailure: dtaskv1.OnFailure_ON_FAILURE_CONTINUE}})
		began := time.Now()
		wait := func(i uint32, d time.Duration) {
			mustUpdate(t, s, sequencer.Change{Update: fsm.Update{Job: id, Task: i, Set: fsm.SetNotBefore}, Delay: d})
		}
		wait(0, time.Second)
		wait(0, 10*time.Second)
		wait(1, 10*time.Second)
		wait(1, 2*time.Second)
		_ = stop()
		s, _ = c.lead()
		for _, want := range []struct {
			after   time.Duration
			first   fsm.TaskState
			second  fsm.TaskState
			explain string
		}{
			{1500 * time.Millisecond, fsm.Scheduled, fsm.Scheduled, "an earlier start time no longer applies"},
			{2500 * time.Millisecond, fsm.Scheduled, fsm.Pending, "its start time is reached"},
			{4500 * time.Millisecond, fsm.Scheduled, fsm.Pending, "the queue timeout starts when it is ready"},
			{6 * time.Second, fsm.Scheduled, fsm.Failed, "its queue timeout has passed"},
			{10500 * time.Millisecond, fsm.Pending, fsm.Failed, "its start time is reached"},
		} {
			<-time.After(time.Until(began.Add(want.after)))
			synctest.Wait()
			if got := [2]fsm.TaskState{c.task(id, 0).State, c.task(id, 1).State}; got != [2]fsm.TaskState{want.first, want.second} {
				t.Errorf("after %v: tasks are %v, want %v and %v: %s", want.after, got, want.first, want.second, want.explain)
			}
			if err := s.Audit(t.Context()); err != nil {
				t.Errorf("after %v: %v", want.after, err)
			}
		}
	})
}
