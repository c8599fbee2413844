package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// planVariable lets the comparison of plans with real runs run, which make plans sets: it takes
// minutes, and needs a machine that is not busy.
const planVariable = "DTASK_PLANS"

// A makespan is what a plan says of how long a job takes.
type makespan struct {
	LowMS  int64 `json:"low_ms"`
	HighMS int64 `json:"high_ms"`
}

func (m makespan) String() string {
	return fmt.Sprintf("%v to %v", time.Duration(m.LowMS)*time.Millisecond, time.Duration(m.HighMS)*time.Millisecond)
}

// planned returns the makespan that dtaskctl plans for a job file.
func planned(t *testing.T, c *cluster.Cluster, file string) makespan {
	t.Helper()
	got := c.RunWith(t.Context(), file, "plan", "-", "-o", "json")
	clustertest.Must(t, got.Err())
	var plan struct {
		Makespan makespan `json:"makespan"`
	}
	clustertest.Must(t, json.Unmarshal([]byte(got.Stdout), &plan))
	return plan.Makespan
}

func TestTheExampleOfAPlanRunsAsPlanned(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Config{Coordinators: 1, Workers: 1})
	text, err := os.ReadFile("../../examples/plan.yaml")
	clustertest.Must(t, err)
	// Eight parts, four at once, follow the fetch; then one task after the other.
	const want = 100 + 2*50 + 20 + 10
	if got := planned(t, c, string(text)); got.LowMS != want || got.HighMS != want {
		t.Errorf("planned %v, want %d ms", got, want)
	}
	id := submitText(t, c, string(text))
	job, err := c.AwaitEnd(t.Context(), id, guard)
	clustertest.Must(t, err)
	if job.State != "completed" || job.TasksCompleted != 11 {
		t.Errorf("got job %+v, want 11 tasks completed", job)
	}
	path := c.Run(t.Context(), "status", id, "--critical-path")
	for _, task := range []string{"fetch", "part", "publish", "sweep"} {
		if !strings.Contains(path.Stdout, task) {
			t.Errorf("the critical path lacks %s: exit %d\n%s%s", task, path.Code, path.Stdout, path.Stderr)
		}
	}
}

// sleeps is a task, or with n > 1 an array, that sleeps as long as it says.
func sleeps(id string, n int, d time.Duration, needs ...string) cluster.TaskFile {
	task := cluster.Builtin(id, "sleep", d.String())
	task["expect"] = d.String()
	if n > 1 {
		task["array"] = map[string]any{"range": fmt.Sprintf("1-%d", n)}
	}
	return task.After(needs...)
}

// plannedShapes are job files that differ in what their tasks wait for.
func plannedShapes() map[string]string {
	r := rand.New(rand.NewPCG(1, 2))
	some := func(low, high int64) time.Duration { return time.Duration(low+r.Int64N(high-low)) * time.Millisecond }
	chain := []cluster.TaskFile{sleeps("t0", 1, some(500, 3000))}
	for i := range 5 {
		chain = append(chain, sleeps(fmt.Sprintf("t%d", i+1), 1, some(500, 3000), fmt.Sprintf("t%d", i)))
	}
	var lengths, graph []cluster.TaskFile
	for i := range 60 {
		lengths = append(lengths, sleeps(fmt.Sprintf("t%d", i), 1, some(100, 4000)))
		var needs []string
		for d := range i {
			if r.IntN(30) == 0 {
				needs = append(needs, fmt.Sprintf("t%d", d))
			}
		}
		graph = append(graph, sleeps(fmt.Sprintf("t%d", i), 1, some(200, 3000), needs...))
	}
	limited := sleeps("limited", 20, 800*time.Millisecond)
	limited["array"] = map[string]any{"range": "1-20", "max_parallel": 3}
	shapes := make(map[string]string)
	for name, tasks := range map[string][]cluster.TaskFile{
		"chain":          chain,
		"wide":           {sleeps("wide", 100, 700*time.Millisecond)},
		"lengths":        lengths,
		"map-and-reduce": {sleeps("map", 60, 900*time.Millisecond), sleeps("mid", 10, 2500*time.Millisecond, "map"), sleeps("end", 1, 3*time.Second, "mid")},
		"max-parallel":   {limited, sleeps("free", 40, 1100*time.Millisecond)},
		"graph":          graph,
	} {
		shapes[name] = cluster.JobFileWith(map[string]any{"name": name}, tasks...)
	}
	return shapes
}

// The makespan of a plan is that of a run on real workers, within 5 %.
func TestAPlannedMakespanIsThatOfARealRun(t *testing.T) {
	if os.Getenv(planVariable) == "" {
		t.Skipf("it takes minutes; make plans runs it (%s)", planVariable)
	}
	for fleet, slots := range map[string][]int{"one worker": {6}, "unequal workers": {2, 4, 8, 1}, "many small workers": {2, 2, 2, 2, 2, 2, 2, 2, 2, 2}} {
		t.Run(fleet, func(t *testing.T) {
			c := clustertest.Start(t, cluster.Config{})
			for i, n := range slots {
				name := fmt.Sprintf("w%d", i+1)
				clustertest.Must(t, c.AddWorker(name, fmt.Sprintf("--slots=%d", n)).Start(t.Context()))
				clustertest.Must(t, c.AwaitWorker(t.Context(), name, "up"))
			}
			for shape, file := range plannedShapes() {
				plan := planned(t, c, file)
				job, err := c.AwaitEnd(t.Context(), submitText(t, c, file), 5*time.Minute)
				clustertest.Must(t, err)
				took := job.CompletedAt.Sub(*job.SubmittedAt).Milliseconds()
				t.Logf("%s: planned %v, took %v", shape, plan, time.Duration(took)*time.Millisecond)
				if tolerance := took / 20; job.State != "completed" || took < plan.LowMS-tolerance || took > plan.HighMS+tolerance {
					t.Errorf("%s: planned %v, but the run took %d ms (%s)", shape, plan, took, job.State)
				}
			}
		})
	}
}
