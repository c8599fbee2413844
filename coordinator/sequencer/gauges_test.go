package sequencer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	"github.com/dtask/dtask/scheduler"
)

// The gauges are of a process, which may have led before.
func TestTheGaugesAreOfTheTermFromItsStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		totals := sequencer.NewTotals()
		c.config = func(cfg *sequencer.Config) { cfg.Totals = totals }
		s, end := c.lead()
		attachWorker(t, s, "w", "a", 1, hold)
		mustSubmit(t, s, spec{key: "k", n: 3})
		<-time.After(time.Minute)
		type gauges struct {
			workers, held, orphaned, ready int64
			oldest                         bool
			queue                          sequencer.QueueLoad
		}
		read := func() gauges {
			return gauges{
				totals.Workers.Load(), totals.Held.Load(), totals.Orphaned.Load(), totals.Depth[scheduler.Normal].Load(),
				totals.OldestWait.Load() > 0, (*totals.Queues.Load())[fsm.DefaultQueue],
			}
		}
		if got := read(); got.workers != 1 || got.held != 1 || got.orphaned != 0 || got.ready != 2 || !got.oldest || got.queue.Oldest == 0 {
			t.Errorf("in the first term: %+v", got)
		}
		if err := end(); err == nil {
			t.Error("the term ended without a reason")
		}
		c.lead()
		if got, want := read(), (gauges{held: 1, orphaned: 1, ready: 2, queue: sequencer.QueueLoad{Waiting: 2, Running: 1}}); got != want {
			t.Errorf("at the start of the second term: got %+v, want %+v", got, want)
		}
	})
}

func TestTheBacklogHasAnAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		totals := sequencer.NewTotals()
		c.config = func(cfg *sequencer.Config) { cfg.Totals = totals }
		s, _ := c.lead()
		first := mustSubmit(t, s, spec{key: "first", n: 3})
		<-time.After(time.Minute)
		second := mustSubmit(t, s, spec{key: "second", n: 2})
		<-time.After(time.Minute)
		if got := time.Duration(totals.OldestWait.Load()); got < 118*time.Second || got > 2*time.Minute {
			t.Errorf("the oldest task has waited for %v, want 2m", got)
		}
		if got := totals.Unplaceable.Load(); got != 5 {
			t.Errorf("%d tasks can't be placed, want 5", got)
		}
		if _, err := s.CancelJob(t.Context(), first, ""); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Second)
		if got := time.Duration(totals.OldestWait.Load()); got < time.Minute || got > 64*time.Second {
			t.Errorf("after the first job was cancelled, the oldest task has waited for %v, want about 1m2s", got)
		}
		attachWorker(t, s, "w", "a", 1, succeed)
		c.awaitEnd(second)
		<-time.After(2 * time.Second)
		if age, n := totals.OldestWait.Load(), totals.Unplaceable.Load(); age != 0 || n != 0 {
			t.Errorf("without ready tasks: %d ns, %d tasks", age, n)
		}
	})
}
