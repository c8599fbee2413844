package api

import (
	"testing"

	"github.com/dtask/dtask/coordinator/sequencer"
	"github.com/dtask/dtask/fsm"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// The worker of a key is a function of the replicated state; what it was at the assignment is
// known to the leader that assigned the task.
func TestTasksShowTheWorkerOfTheirKey(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	h := header("x")
	h.GetPolicies()[0].Affinity = "ann"
	if _, err := r.send(t.Context(), request("k", h, task("waits"), task("home"), task("away"))); err != nil {
		t.Fatal(err)
	}
	ids := []fsm.WorkerID{r.worker(t)}
	fork, _ := r.machine.Fork()
	other := &fsm.RegisterWorker{ID: fork.NextWorker(), Name: "other", Incarnation: testInstance, Slots: 4, Version: "v", Address: "host"}
	r.leader.op(t, other)
	ids = append(ids, other.ID)
	home := sequencer.ChooseKeyWorker(h, "ann", ids)
	away := ids[0] + ids[1] - home
	r.assign(t, held(1, 1, 1, home))
	r.assign(t, held(1, 2, 1, away))
	fork, _ = r.machine.Fork()
	name := fork.Worker(home).Name
	check := func(when, spilledFrom string) {
		t.Helper()
		pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1"})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range pages[0].GetTasks() {
			key, from := name, ""
			if x.GetId() == "away" {
				from = spilledFrom
			}
			if x.GetKeyWorker() != key || x.GetSpilledFrom() != from || from != "" && x.GetSpilledPermille() != 1250 {
				t.Errorf("%s, task %s: got key worker %q, spilled from %q at %d; want %q, %q at 1250", when, x.GetId(), x.GetKeyWorker(), x.GetSpilledFrom(), x.GetSpilledPermille(), key, from)
			}
			if x.GetState() == dtaskv1.TaskState_TASK_STATE_RUNNING {
				t.Errorf("%s, task %s runs, but no worker has reported it", when, x.GetId())
			}
		}
	}
	check("after a failover", "")
	r.leader.observed = map[fsm.JobID]map[uint32]sequencer.Observation{1: {2: {Attempt: 1, Spilled: sequencer.Affinity{Worker: home, Permille: 1250}}}}
	check("by the leader that assigned it", name)
}

// With alternatives, a key has the worker of the first one that any worker could run, until the
// task takes one.
func TestThePendingTaskShowsTheWorkerOfItsFirstPossibleAlternative(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.leader.op(t, &fsm.SetLevel{Level: fsm.MaxLevel})
	h := header("x")
	p := h.GetPolicies()[0]
	p.Affinity, p.Resources = "ann", map[string]int64{"gpu": 1000}
	p.Alternatives = []*dtaskv1.ResourceList{{Resources: map[string]int64{"cpu": 4000}}}
	if _, err := r.send(t.Context(), request("k", h, task("a"))); err != nil {
		t.Fatal(err)
	}
	key := func() string {
		t.Helper()
		pages, err := r.tasks(t, &dtaskv1.ListTasksRequest{Job: "1"})
		if err != nil {
			t.Fatal(err)
		}
		return pages[0].GetTasks()[0].GetKeyWorker()
	}
	register := func(name, resource string) {
		t.Helper()
		fork, _ := r.machine.Fork()
		r.leader.op(t, &fsm.RegisterWorker{
			ID: fork.NextWorker(), Name: name, Incarnation: testInstance, Slots: 4, Resources: []fsm.Resource{{Name: resource, Amount: 8000}}, Version: "v", Address: "host",
		})
	}
	if got := key(); got != "" {
		t.Errorf("without workers: got %q", got)
	}
	register("cores", "cpu")
	if got := key(); got != "cores" {
		t.Errorf("without a GPU: got %q, want cores", got)
	}
	register("gpus", "gpu")
	if got := key(); got != "gpus" {
		t.Errorf("with a GPU: got %q, want gpus", got)
	}
}
