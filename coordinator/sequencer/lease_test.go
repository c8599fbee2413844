package sequencer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
)

// Leaders that change more often than a lease ends do not keep a limit: each knows since when
// the worker is lost. One whose clock is wrong does not.
func TestALeaseEndsAlsoIfLeadersChangeBefore(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ replaced, wrongClock bool }{
		"a lost worker": {}, "another process": {replaced: true}, "a wrong clock": {wrongClock: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.config = func(cfg *sequencer.Config) { cfg.ClockAgrees = func() bool { return !x.wrongClock } }
				s, end := c.lead()
				atQueueLevel(t, s)
				mustSetLimit(t, s, "db", atMost(1))
				id := mustSubmit(t, s, using("k", 1, "db"))
				w := attachWorker(t, s, "w1", "a", 1, keep)
				c.await("the task is assigned", func() bool { return c.assigned(id) == 1 })
				<-time.After(5 * time.Minute)
				w.fallSilent()
				<-time.After(10 * time.Second) // the worker is down
				lost := time.Now()
				next := mustSubmit(t, s, using("next", 1, "db"))
				join := func() {
					attachWorker(t, s, "w2", "a", 4, keep)
					if x.replaced {
						attachWorker(t, s, "w1", "b", 1, keep)
					}
				}
				started := func() bool { return c.task(id, 0).Attempt > 1 || c.assigned(next) > 0 }
				join()
				for time.Since(lost) < 50*time.Second {
					_ = end()
					s, end = c.lead()
					join()
					<-time.After(20 * time.Second)
					if since := time.Since(lost); since < 25*time.Second && started() {
						t.Fatalf("a task that uses the limit starts %v after the worker was lost", since)
					}
				}
				<-time.After(5 * time.Second)
				if started() == x.wrongClock {
					t.Errorf("%v after the worker was lost, a task that uses the limit has started: %v", time.Since(lost), started())
				}
			})
		})
	}
}
