package sequencer_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// eitherOr needs a GPU, or 4 cores instead.
func eitherOr() *dtaskv1.TaskPolicy {
	return &dtaskv1.TaskPolicy{
		Resources:    map[string]int64{"gpu": 1000},
		Alternatives: []*dtaskv1.ResourceList{{Resources: map[string]int64{"cpu": 4000}}},
	}
}

// taken returns what the attempts at a worker take, by the state.
func (c *cluster) taken(id fsm.JobID, w fsm.WorkerID) map[string]int64 {
	sum := map[string]int64{}
	job := c.job(id)
	for i := range job.Total {
		t := c.task(id, i)
		if t.State != fsm.Assigned || t.Worker != w {
			continue
		}
		p := job.Policy(t.Policy)
		resources := p.GetResources()
		if t.Alternative > 0 {
			resources = p.GetAlternatives()[t.Alternative-1].GetResources()
		}
		for name, amount := range resources {
			sum[name] += amount
		}
	}
	return sum
}

// A new leader after each assignment knows which alternative each attempt takes: it neither
// gives twice what a worker has nor leaves anything idle.
func TestAlternativesAreCountedAfterEachChangeOfLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		hello := sequencer.Hello{
			Name: "w1", Incarnation: "a", Slots: 9,
			Resources: []fsm.Resource{{Name: "cpu", Amount: 10_000}, {Name: "gpu", Amount: 2000}},
		}
		s, end := c.lead()
		atQueueLevel(t, s)
		id := mustSubmit(t, s, spec{key: "k", n: 9, policy: eitherOr()})
		for n := 1; n <= 4; n++ {
			hello.Slots = uint32(n)
			w := attachHello(t, s, hello, keep)
			c.await(fmt.Sprintf("%d tasks are assigned", n), func() bool { return int(c.assigned(id)) == n })
			synctest.Wait() // the worker has them
			w.mu.Lock()
			hello.Held = slices.Clone(w.held)
			w.mu.Unlock()
			if err := s.Audit(t.Context()); err != nil {
				t.Errorf("with %d attempts: %v", n, err)
			}
			_ = end()
			s, end = c.lead()
		}
		hello.Slots = 9
		w := attachHello(t, s, hello, keep)
		synctest.Wait()
		want := map[string]int64{"gpu": 2000, "cpu": 8000}
		if got := c.taken(id, w.id); c.assigned(id) != 4 || !maps.Equal(got, want) {
			t.Errorf("%d attempts take %v, want 4 and %v", c.assigned(id), got, want)
		}
	})
}

func TestAnExplanationNamesWhatEachAlternativeLacks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		s, _ := c.lead()
		atQueueLevel(t, s)
		attachHello(t, s, sequencer.Hello{Name: "w1", Incarnation: "a", Slots: 9, Resources: []fsm.Resource{{Name: "cpu", Amount: 3000}}}, keep)
		id := mustSubmit(t, s, spec{key: "k", n: 1, policy: eitherOr()})
		synctest.Wait()
		e := mustExplain(t, s, id, 0)
		if e.Capacity.Fits || e.Capacity.EverFits || !e.Capacity.Complete || len(e.Capacity.Groups) != 1 {
			t.Fatalf("got %+v", e.Capacity)
		}
		got := e.Capacity.Groups[0].Obstacles
		if want := []sequencer.Obstacle{
			{Code: "resource_short", Name: "gpu", Want: 1000, Alternative: 1},
			{Code: "resource_short", Name: "cpu", Want: 4000, Free: 3000, Total: 3000, Alternative: 2},
		}; !slices.Equal(got, want) {
			t.Errorf("obstacles %+v, want %+v", got, want)
		}
		changes := ""
		for _, x := range e.Capacity.Changes {
			changes += fmt.Sprintf("%s %s %d %d; ", x.Code, x.Name, x.Amount, x.Alternative)
		}
		if want := "add_resource gpu 1000 0; add_resource cpu 1000 0; lower_resource gpu 0 1; lower_resource cpu 3000 2; add_worker  0 0; "; changes != want {
			t.Errorf("changes %s\nwant %s", changes, want)
		}
	})
}

// A plan runs the alternatives, too.
func TestAPlanTakesAlternatives(t *testing.T) {
	t.Parallel()
	worker := &fsm.Worker{ID: 1, Slots: 9, Resources: []fsm.Resource{{Name: "cpu", Amount: 8000}, {Name: "gpu", Amount: 1000}}}
	p := sequencer.NewPlanner(&dtaskv1.JobHeader{Policies: []*dtaskv1.TaskPolicy{eitherOr()}}, []*fsm.Worker{worker}, nil, nil)
	if workers, tasks := p.Fitting(0); workers != 1 || tasks != 3 {
		t.Errorf("%d workers could run %d tasks at once, want 1 and 3", workers, tasks)
	}
	low, high, ok := p.Makespan([]sequencer.PlannedTasks{{Tasks: 6}}, func(int) int64 { return 1000 }, func() bool { return false })
	if !ok || low != 2000 || high != 2000 { // three at a time: one with the GPU, two with 4 cores
		t.Errorf("6 tasks of 1 s take %d to %d ms, want 2000", low, high)
	}
}
