package sequencer_test

import (
	"fmt"
	"testing"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// What is read to explain a task of an ended job is not kept: neither its policies, nor the class
// and the counters of its limits. The header that was read last is the exception.
func TestExplainingTasksOfEndedJobsKeepsNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s, _ := c.lead()
	atQueueLevel(t, s)
	mustSetLimit(t, s, "tenant/*", fsm.LimitSettings{Running: 1, Rate: 1000, PeriodMS: 1, Burst: 10})
	var ids []fsm.JobID
	for i := range 20 {
		id := mustSubmit(t, s, using(fmt.Sprint("k", i), 2, fmt.Sprint("tenant/t", i)))
		mustUpdate(t, s, priorityOf(id, 1, dtaskv1.Priority_PRIORITY_LOW)) // adds a policy
		ids = append(ids, id)
	}
	attachWorker(t, s, "w", "a", 1, succeed)
	for _, id := range ids {
		c.awaitEnd(id)
	}
	for range 3 {
		for _, id := range ids {
			if e := mustExplain(t, s, id, 1); e.State != fsm.Completed || e.Capacity == nil || len(e.Capacity.Limits) != 1 {
				t.Fatalf("got %+v", e)
			}
		}
	}
	loads, err := s.LimitLoads(t.Context(), "")
	if err != nil || len(loads) > 1 {
		t.Errorf("got the counters %v, %v; want at most that of the last job", loads, err)
	}
	if err := s.Audit(t.Context()); err != nil {
		t.Error(err)
	}
}
