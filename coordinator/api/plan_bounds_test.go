package api

import (
	"fmt"
	"testing"

	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// A worker with 4 slots and 4 cpu, and one with 2 slots, 2 cpu and a license, have as many slots as
// there are tasks.
func TestWhatTheWorkersCanRunAtTheSameTimeIsABound(t *testing.T) {
	t.Parallel()
	r := setup(t)
	for i, w := range []fsm.RegisterWorker{
		{Slots: 4, Resources: []fsm.Resource{{Name: "cpu", Amount: 4000}}},
		{Slots: 2, Resources: []fsm.Resource{{Name: "cpu", Amount: 2000}, {Name: "license", Amount: 1000}}},
	} {
		w.ID, w.Name, w.Incarnation = fsm.WorkerID(i+1), fmt.Sprint("w", i), testInstance
		r.leader.op(t, &w)
	}
	cpu := func(amount int64) map[string]int64 { return map[string]int64{"cpu": amount} }
	for name, c := range map[string]struct {
		resources    map[string]int64
		alternatives []*dtaskv1.ResourceList
		bounds       string
	}{
		"one of two alternatives": {map[string]int64{"license": 1000}, []*dtaskv1.ResourceList{{Resources: cpu(2000)}}, "workers m 1500, critical_path 1000, slots 1000"},
		"cpu that is left over":   {cpu(1500), nil, "workers m 2000, resource cpu 1500, critical_path 1000, slots 1000"},
		"cpu that divides evenly": {cpu(2000), nil, "resource cpu 2000, critical_path 1000, slots 1000"},
		"no resource":             {nil, nil, "critical_path 1000, slots 1000"},
	} {
		h := expecting("x", 1000)
		h.GetPolicies()[0].Resources, h.GetPolicies()[0].Alternatives = c.resources, c.alternatives
		if got := boundsOf(r.plan(t.Context(), t, h, arrayOf("m", 6, 0))); got != c.bounds {
			t.Errorf("%s: got %s, want %s", name, got, c.bounds)
		}
	}
}
