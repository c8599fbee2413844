package sequencer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Without any request, the leader starts the second task when a second has passed.
func TestATaskWithAKeyWaitsForASecondAndSpills(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		attachWorker(t, s, "w1", "a", 1, keep)
		attachWorker(t, s, "w2", "b", 1, keep)
		id := mustSubmit(t, s, spec{key: "k", n: 2, policy: &dtaskv1.TaskPolicy{Affinity: "ann"}})
		start := time.Now()
		c.await("the first task is assigned", func() bool { return c.task(id, 0).State == fsm.Assigned })
		home := c.task(id, 0).Worker
		e := mustExplain(t, s, id, 1)
		if a := e.Capacity.Affinity; e.State != fsm.Pending || a.Worker != home || !a.Busy || a.Permille != 2000 || !e.Capacity.Waits || e.Capacity.Fits {
			t.Errorf("got %+v, want the second task to wait for worker %d, whose load is 2", e.Capacity, home)
		}
		if left := e.Capacity.Affinity.Until - e.NowMS; left < 1000 || left > 1200 {
			t.Errorf("it waits for %d ms more, want 1,000 to 1,200", left)
		}
		if got := e.Capacity.Changes; !e.Capacity.Complete || len(got) != 2 || got[0].Code != "add_slots" || got[0].Worker != home || got[1].Code != "drop_affinity" {
			t.Errorf("got changes %+v, complete: %v; want a slot of worker %d, and no affinity", got, e.Capacity.Complete, home)
		}
		c.await("the second task is assigned", func() bool { return c.task(id, 1).State == fsm.Assigned })
		if waited := time.Since(start); waited < time.Second || waited > 1200*time.Millisecond {
			t.Errorf("it waited for %v, want 1 to 1.2 s", waited)
		}
		if w := c.task(id, 1).Worker; w == home {
			t.Errorf("both tasks are on worker %d, which has one slot", w)
		}
		if o := s.Observed(id)[1]; o.Spilled.Worker != home || o.Spilled.Permille != 1000 || o.IsRunning() {
			t.Errorf("got %+v, want that it spilled from worker %d, whose load was 1, and does not run yet", o, home)
		}
		if o, ok := s.Observed(id)[0]; ok && o.Spilled.Worker != 0 {
			t.Errorf("got %+v, want that the first task has not spilled", o)
		}
		if e = mustExplain(t, s, id, 1); e.Spilled.Worker != home || e.Spilled.Permille != 1000 {
			t.Errorf("got %+v, want that it spilled from worker %d, whose load is 1", e.Spilled, home)
		}
		if e = mustExplain(t, s, id, 0); e.Spilled.Worker != 0 {
			t.Errorf("the first task has spilled from %d", e.Spilled.Worker)
		}
	})
}

// A new leader knows nothing of the choices of the one before, and makes the same.
func TestANewLeaderChoosesTheSameWorkerForAKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		for _, name := range []string{"w1", "w2", "w3", "w4"} {
			attachWorker(t, s, name, name, 2, keep)
		}
		first := mustSubmit(t, s, spec{key: "k", n: 1, policy: &dtaskv1.TaskPolicy{Affinity: "ann"}})
		c.await("the first task is assigned", func() bool { return c.task(first, 0).State == fsm.Assigned })
		home := c.task(first, 0).Worker
		end()
		s, _ = c.lead()
		for _, name := range []string{"w4", "w3", "w2", "w1"} {
			attachWorker(t, s, name, name, 2, keep)
		}
		second := mustSubmit(t, s, spec{key: "l", n: 1, policy: &dtaskv1.TaskPolicy{Affinity: "ann"}})
		c.await("the second task is assigned", func() bool { return c.task(second, 0).State == fsm.Assigned })
		if got := c.task(second, 0).Worker; got != home {
			t.Errorf("the key is on worker %d now, was on %d", got, home)
		}
	})
}

// A worker has prefetched two tasks of its key when another one joins, to which the key does not
// move.
func TestWhatIsPrefetchedForAKeyIsStolenAfterASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, end := c.lead()
		defer func() { _ = end() }()
		a := attachWorker(t, s, "a", "i", 1, succeed)
		if _, err := s.Attach(t.Context(), sequencer.Hello{Name: "a", Incarnation: "i", Slots: 2, Prefetch: 8}, a); err != nil {
			t.Fatal(err)
		}
		c.awaitEnd(mustSubmit(t, s, spec{key: "short", n: 50}))
		a.mu.Lock()
		a.answer = hold // it never releases anything
		a.mu.Unlock()
		key := "k"
		for sequencer.ChooseKeyWorker(&dtaskv1.JobHeader{}, key, []fsm.WorkerID{1, 2}) != 1 {
			key += "k"
		}
		mustSubmit(t, s, spec{key: "held", n: 4, policy: &dtaskv1.TaskPolicy{Affinity: key}})
		a.await("four", func() bool { return len(a.held) == 4 })
		attachWorker(t, s, "b", "i", 4, succeed)
		time.Sleep(900 * time.Millisecond) // virtual
		if got := s.Stats().StealRequests; got != 0 {
			t.Errorf("asked for %d within 0.9 s, want 0", got)
		}
		time.Sleep(1100 * time.Millisecond) // virtual
		if got := s.Stats().StealRequests; got != 2 {
			t.Errorf("asked for %d within 2 s, want both that wait", got)
		}
	})
}
