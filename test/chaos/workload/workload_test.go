package workload

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dtask/dtask/client"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
	"github.com/dtask/dtask/test/cluster"
)

func TestEveryShapeIsAValidJob(t *testing.T) {
	t.Parallel()
	w := &Workload{cfg: Config{Programs: cluster.Programs{Dir: "/bin"}, Ledger: "/ledger"}}
	w.cfg.Workers, w.cfg.Shifts = 4, true
	for _, s := range slices.Concat(slices.Concat(ratedUsers()...), slices.Concat(crampedUsers()...), shapes(), limitedShapes(), gatedShapes()) {
		random := rand.New(rand.NewPCG(1, 2))
		for range 20 {
			job, plan, err := w.build(random, s, "name", "key")
			if err != nil {
				t.Fatal(err)
			}
			if len(job.GetTasks()) != len(plan.Tasks) || plan.Body == "" {
				t.Fatalf("%s: got %d tasks, want %d; body %q", s.name, len(job.GetTasks()), len(plan.Tasks), plan.Body)
			}
		}
	}
}

func TestThePlannedJobHasTheExpectedPlan(t *testing.T) {
	t.Parallel()
	a, err := newAsker(&Workload{clients: []*client.Client{nil}})
	if err != nil {
		t.Fatal(err)
	}
	takes := []int64{1000, 2000, 5000, 4000, 2000}
	if got := a.read(&dtaskv1.PlanResponse{LowMs: takes, HighMs: takes, Classes: []*dtaskv1.PlanClass{{Tasks: 5}}}); got != fixedPlan {
		t.Errorf("got %q, want %q", got, fixedPlan)
	}
}

func TestTheSeedDeterminesTheSubmissions(t *testing.T) {
	t.Parallel()
	w := &Workload{cfg: Config{Ledger: "/ledger"}}
	bodies := make(map[string]bool)
	for _, seed := range []uint64{1, 1, 2} {
		_, plan, err := w.build(rand.New(rand.NewPCG(seed, 0)), shapes()[4], "name", "key")
		if err != nil {
			t.Fatal(err)
		}
		bodies[plan.Body] = true
	}
	if len(bodies) != 2 {
		t.Errorf("three jobs of two seeds: got %d bodies", len(bodies))
	}
}

func TestPreemptionsAreCountedByTheErrorsOfAttempts(t *testing.T) {
	t.Parallel()
	task := &dtaskv1.Task{History: []*dtaskv1.AttemptRecord{{Error: "worker lost"}, {Error: preemptedError}, {}, {Error: preemptedError}}}
	if n := preemptions(task); n != 2 {
		t.Errorf("got %d preemptions, want 2", n)
	}
}
