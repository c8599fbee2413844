package api

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/dtask/dtask/coordinator/sequencer"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

func TestTheLeaderTellsItsLoad(t *testing.T) {
	t.Parallel()
	var run sequencer.Distribution
	for i := range 100 {
		run.Observe(time.Duration(i+1) * time.Millisecond)
	}
	var load *Load
	r := setup(t, func(c *Config) { c.Load = func() *Load { return load } })
	_, err := r.admin.Load(t.Context(), &dtaskv1.LoadRequest{})
	if err == nil {
		t.Error("a replica that does not lead tells a load")
	}
	load = &Load{
		Term: 7, At: time.UnixMilli(5), Totals: sequencer.Stats{Completions: 9}, Oldest: 2 * time.Second, Held: -1, Workers: 3, Slots: 12,
		Ready:   []ReadyTasks{{dtaskv1.Priority_PRIORITY_HIGH, 4}},
		Windows: []LoadWindow{{Window: time.Minute, Covered: 30 * time.Second, Counts: sequencer.Stats{Submissions: 1, Assignments: 2, Completions: 3, Failures: 4}, Run: run.Counts()}},
	}
	got, err := r.admin.Load(t.Context(), &dtaskv1.LoadRequest{})
	if err != nil {
		t.Fatal(err)
	}
	w := got.GetWindows()[0]
	if got.GetLeader() != "n1" || got.GetTerm() != 7 || got.GetAt() != 5 || got.GetTotals().GetCompleted() != 9 || got.GetOldestMs() != 2000 ||
		got.GetRunning() != 0 || got.GetWorkers() != 3 || got.GetSlots() != 12 || got.GetReady()[0].GetTasks() != 4 {
		t.Errorf("got %v", got)
	}
	if c := w.GetCounts(); w.GetWindowMs() != 60_000 || w.GetCoveredMs() != 30_000 || c.GetSubmitted() != 1 || c.GetAssigned() != 2 || c.GetCompleted() != 3 || c.GetFailed() != 4 {
		t.Errorf("got %v", w)
	}
	if l := w.GetRun(); l.GetCount() != 100 || l.GetP50Us() < 50_000 || l.GetP50Us() > 57_000 || l.GetP99Us() < 99_000 || l.GetP99Us() > 112_000 || w.GetWait().GetCount() != 0 {
		t.Errorf("got %v", w)
	}
	none := setup(t)
	_, err = none.admin.Load(t.Context(), &dtaskv1.LoadRequest{})
	wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
}

func TestTheLoadHasAllQueuesWithWhatWasCountedLast(t *testing.T) {
	t.Parallel()
	load := new(Load)
	r := withQueues(t, func(c *Config) { c.Load = func() *Load { return load } })
	for _, counted := range []sequencer.QueueLoad{{}, {Waiting: 7, Running: 3, Oldest: time.Second, P50: time.Millisecond, P99: 2 * time.Millisecond}} {
		if counted.Waiting > 0 {
			load.Queues = map[string]sequencer.QueueLoad{"etl": counted, "gone": counted}
		}
		got, err := r.admin.Load(t.Context(), &dtaskv1.LoadRequest{})
		if err != nil || len(got.GetQueues()) != 2 {
			t.Fatalf("got %v, %v; want default and etl", got.GetQueues(), err)
		}
		unset, etl := got.GetQueues()[0], got.GetQueues()[1]
		if unset.GetName() != "default" || unset.GetVersion() != 0 || unset.GetWaiting() != 0 {
			t.Errorf("got %v", unset)
		}
		if etl.GetName() != "etl" || etl.GetSettings().GetMaxRunning() != 200 || etl.GetWaiting() != uint64(counted.Waiting) || etl.GetRunning() != uint64(counted.Running) ||
			etl.GetOldestWaitUs() != counted.Oldest.Microseconds() || etl.GetWaitP50Us() != counted.P50.Microseconds() || etl.GetWaitP99Us() != counted.P99.Microseconds() {
			t.Errorf("got %v, want %+v", etl, counted)
		}
	}
}
