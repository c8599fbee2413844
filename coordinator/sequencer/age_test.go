package sequencer_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
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

// Completed jobs leave early if they are too many. Jobs that can be retried
// stay.
func TestTooManyCompletedTasksLeaveOldestFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.config = func(cfg *sequencer.Config) { cfg.KeepCompletedTasks = 5 }
		s, _ := c.lead()
		w := attachWorker(t, s, "w", "a", 1, succeed)
		cancelled := mustSubmit(t, s, spec{key: "no", n: 40})
		if _, err := s.CancelJob(t.Context(), cancelled, "enough"); err != nil {
			t.Fatal(err)
		}
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
