package sequencer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dtask/dtask/coordinator/sequencer"
)

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
