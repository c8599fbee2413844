package sequencer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// written counts what all entries do: the items of assignments and completions, and other operations.
func (c *cluster) written() map[string]int {
	c.t.Helper()
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	n := make(map[string]int)
	for _, data := range c.log.entries {
		e, err := fsm.Decode(data)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, op := range e.Ops {
			switch op := op.(type) {
			case *fsm.Assign:
				n["assignments"] += len(op.Items)
			case *fsm.Complete:
				n["completions"] += len(op.Items)
			default:
				n[fmt.Sprintf("%T", op)]++
			}
		}
	}
	return n
}

// A leader derives shares, counts of limits, buckets, reservations and workers of keys from its state
// and its own decisions. It writes nothing about them to the log.
func TestSharesLimitsAndPlacementWriteNothingForATask(t *testing.T) {
	t.Parallel()
	const tasks = 500
	run := func(t *testing.T, queue string, with *dtaskv1.TaskPolicy) (n map[string]int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			s, _ := c.lead()
			raiseToSchedules(t, s)
			mustSetQueue(t, s, "etl", fsm.QueueSettings{Weight: 7, MaxRunning: 20})
			mustSetQueue(t, s, "other", fsm.QueueSettings{Weight: 2})
			mustSetLimit(t, s, "db", fsm.LimitSettings{Running: 5, Rate: 1000, PeriodMS: 1000, Burst: 10})
			for i := range 3 {
				attachWorker(t, s, fmt.Sprintf("w%d", i), "a", 8, succeed)
			}
			x := queued("k", queue, tasks)
			x.policy = with
			x.policy.Type, x.policy.TimeoutMs = "noop", 60_000
			beside := mustSubmit(t, s, queued("beside", "other", tasks))
			id := mustSubmit(t, s, x)
			for _, job := range []fsm.JobID{id, beside} {
				if got := c.awaitEnd(job); got.State != fsm.JobCompleted {
					t.Fatalf("job %d ended as %v", job, got.State)
				}
			}
			<-time.After(time.Second)
			n = c.written()
		})
		return n
	}
	want := run(t, "", &dtaskv1.TaskPolicy{})
	if want["completions"] != 2*tasks {
		t.Fatalf("got %v", want)
	}
	for name, x := range map[string]struct {
		queue string
		with  *dtaskv1.TaskPolicy
	}{
		"queue":       {"etl", &dtaskv1.TaskPolicy{}},
		"limit":       {"", &dtaskv1.TaskPolicy{Uses: []string{"db"}}},
		"place":       {"", &dtaskv1.TaskPolicy{Place: dtaskv1.PlacementStrategy_PLACEMENT_STRATEGY_PACK}},
		"affinity":    {"", &dtaskv1.TaskPolicy{Affinity: "ann"}},
		"preemptible": {"", &dtaskv1.TaskPolicy{Preemptible: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(want, run(t, x.queue, x.with)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
