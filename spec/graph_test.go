package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// graphOf is the dependencies of each task by id.
type graphOf map[string][]string

// file writes the tasks in the given order as a job file.
func (g graphOf) file(ids []string) []byte {
	type task struct {
		ID   string   `json:"id"`
		Type string   `json:"type"`
		Deps []string `json:"dependencies"`
	}
	var tasks []task
	for _, id := range ids {
		tasks = append(tasks, task{id, "noop", append([]string{}, g[id]...)})
	}
	// Strings and slices always have a JSON form.
	text, _ := json.Marshal(map[string]any{"job": map[string]any{"name": "g", "tasks": tasks}})
	return text
}

// edges is the graph of a job.
func edges(job *dtaskv1.JobSpec) graphOf {
	g := graphOf{}
	for _, t := range job.GetTasks() {
		needs := []string{}
		for _, d := range t.GetDependencies() {
			needs = append(needs, job.GetTasks()[d].GetId())
		}
		slices.Sort(needs)
		g[t.GetId()] = needs
	}
	return g
}

// drawGraph draws tasks t0 … that each depend on some with a lower number, and
// the order in which the file lists them.
func drawGraph(rt *rapid.T) (graphOf, []string) {
	n := rapid.IntRange(1, 40).Draw(rt, "tasks")
	g, ids := graphOf{}, []string{}
	for i := range n {
		id, needs := fmt.Sprintf("t%d", i), []string{}
		if i > 0 {
			for _, d := range rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 0, min(i, 4), rapid.ID[int]).Draw(rt, "needs") {
				needs = append(needs, fmt.Sprintf("t%d", d))
			}
		}
		slices.Sort(needs)
		g[id], ids = needs, append(ids, id)
	}
	return g, rapid.Permutation(ids).Draw(rt, "order")
}

// naiveOrder takes, again and again, the first task of the file that has all
// it needs. It stops at a task without dependencies.
func naiveOrder(g graphOf, ids []string) []string {
	var order []string
	for {
		i := slices.IndexFunc(ids, func(id string) bool {
			return !slices.Contains(order, id) && !slices.ContainsFunc(g[id], func(d string) bool { return !slices.Contains(order, d) })
		})
		if i < 0 {
			return order
		}
		order = append(order, ids[i])
	}
}

func naiveLevel(g graphOf, id string) int {
	level := 0
	for _, d := range g[id] {
		level = max(level, naiveLevel(g, d)+1)
	}
	return level
}

func TestTasksComeAfterWhatTheyNeed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		g, ids := drawGraph(rt)
		job, err := Parse("g", g.file(ids), Options{})
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(g, edges(job)); diff != "" {
			rt.Errorf("dependencies changed: %s", diff)
		}
		var order []string
		for _, task := range job.GetTasks() {
			order = append(order, task.GetId())
		}
		if diff := cmp.Diff(naiveOrder(g, ids), order); diff != "" {
			rt.Errorf("order differs from the naive one: %s", diff)
		}
		if fs := Check(job); fs != nil {
			rt.Errorf("the job does not pass the check: %v", fs)
		}
		levels := map[int]uint32{}
		for _, id := range ids {
			levels[naiveLevel(g, id)]++
		}
		want := make([]uint32, len(levels))
		for l, n := range levels {
			want[l] = n
		}
		if diff := cmp.Diff(want, Levels(job)); diff != "" {
			rt.Errorf("levels differ from the naive ones: %s", diff)
		}
	})
}

// reach is what a task depends on, directly or not.
func reach(g graphOf, from string) map[string]bool {
	seen, open := map[string]bool{}, []string{from}
	for len(open) > 0 {
		id := open[0]
		open = open[1:]
		for _, d := range g[id] {
			if !seen[d] {
				seen[d], open = true, append(open, d)
			}
		}
	}
	return seen
}

func TestCleanUpTasksComeLast(t *testing.T) {
	t.Parallel()
	job, err := Parse("f", []byte(`job:
  name: x
  tasks:
    - {id: last, run: echo, finally: true, needs: [sweep]}
    - {id: sweep, run: echo, finally: true}
    - {id: b, run: echo, needs: [a]}
    - {id: a, run: echo, finally: false}
`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, task := range job.GetTasks() {
		if finally := job.GetHeader().GetPolicies()[task.GetPolicy()].GetFinally(); finally != (task.GetId() == "last" || task.GetId() == "sweep") {
			t.Errorf("task %s: finally is %v", task.GetId(), finally)
		}
		got = append(got, fmt.Sprint(task.GetId(), task.GetDependencies()))
	}
	if want := "[a[] b[0] sweep[] last[2]]"; fmt.Sprint(got) != want {
		t.Errorf("the order is %v, want %v", got, want)
	}
	if faults := Check(job); faults != nil {
		t.Error(faults)
	}
}

func TestFailuresBorneMayBeAShareOfTheOrdinaryTasks(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]uint32{"0": 0, "7": 7, `"5%"`: 1, "2.5%": 0, "2.6%": 1, "66.6%": 25, "100%": 39, "0%": 0} {
		text := "job: {name: x, max_failures: " + written + ", tasks: [{id: f, run: echo, finally: true}"
		for i := range 39 {
			text += fmt.Sprintf(", {id: t%d, run: echo}", i)
		}
		job, err := Parse("f", []byte(text+"]}"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := job.GetHeader().GetMaxFailures(); got != want {
			t.Errorf("max_failures: %s of 39 tasks is %d, want %d", written, got, want)
		}
	}
}

func TestEveryCycleIsNamedAndIsOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 14).Draw(rt, "tasks")
		g, ids := graphOf{}, []string{}
		for i := range n {
			id, needs := fmt.Sprintf("t%d", i), []string{}
			for _, d := range rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 0, 2, rapid.ID[int]).Draw(rt, "needs") {
				if d != i {
					needs = append(needs, fmt.Sprintf("t%d", d))
				}
			}
			g[id], ids = needs, append(ids, id)
		}
		_, err := Parse("g", g.file(ids), Options{})
		groups := map[string]bool{}
		for _, id := range ids {
			if down := reach(g, id); down[id] {
				group := slices.DeleteFunc(slices.Sorted(maps.Keys(down)), func(d string) bool { return !reach(g, d)[id] })
				groups[strings.Join(group, " ")] = false
			}
		}
		if (err == nil) != (len(groups) == 0) {
			rt.Fatalf("groups %v, error %v", groups, err)
		}
		if err == nil {
			return
		}
		seen := map[string]bool{}
		for line := range strings.SplitSeq(err.Error(), "\n") {
			_, names, _ := strings.Cut(line, "cycle: ")
			names, _, _ = strings.Cut(names, ";")
			if seen[names] {
				rt.Errorf("%s is named twice", names)
			}
			seen[names] = true
			checkCycle(rt, g, strings.Split(names, " → "), groups)
		}
		for group, named := range groups {
			if !named {
				rt.Errorf("no cycle is named of %s", group)
			}
		}
	})
}

// checkCycle holds what was named against the graph and marks its group.
func checkCycle(rt *rapid.T, g graphOf, names []string, groups map[string]bool) {
	if len(names) < 3 || names[0] != names[len(names)-1] {
		rt.Fatalf("%v is no cycle", names)
	}
	for i, id := range names[1:] {
		if !slices.Contains(g[names[i]], id) {
			rt.Errorf("%v: %s does not depend on %s", names, names[i], id)
		}
	}
	for group := range groups {
		if slices.Contains(strings.Fields(group), names[0]) {
			groups[group] = true
		}
	}
}

func TestALongCycleIsNamedWhole(t *testing.T) {
	t.Parallel()
	const n = 50_000
	g, ids := graphOf{}, make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("t%d", i)
		g[ids[i]] = []string{fmt.Sprintf("t%d", (i+1)%n)}
	}
	_, err := Parse("g", g.file(ids), Options{})
	if got := strings.Count(err.Error(), "→"); got != n {
		t.Errorf("got %d arrows", got)
	}
}

func TestManyFaultsInALargeGraphAreFoundInGoodTime(t *testing.T) {
	t.Parallel()
	g, ids := graphOf{}, make([]string, MaxListedTasks)
	for i := range ids {
		ids[i] = fmt.Sprintf("task-%d", i)
	}
	for i := range ids {
		switch i % 4 {
		case 0:
			g[ids[i]] = []string{ids[i+1]}
		case 1:
			g[ids[i]] = []string{ids[i-1]}
		default:
			g[ids[i]] = []string{"tusk-" + fmt.Sprint(i)}
		}
	}
	_, err := Parse("g", g.file(ids), Options{})
	if fs := faultsOf(t, err); len(fs) != maxFaults+1 || fs[maxFaults].What != "74,900 more faults are not shown" {
		t.Errorf("got %d faults, the last %v", len(fs), fs[len(fs)-1])
	}
}

func TestAShuffledChainIsPutInOrder(t *testing.T) {
	t.Parallel()
	const n = 10_000
	g, ids := graphOf{}, make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("t%d", i)
		if i > 0 {
			g[ids[i]] = []string{ids[i-1]}
		}
	}
	shuffled := slices.Clone(ids)
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	job, err := Parse("g", g.file(shuffled), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, task := range job.GetTasks() {
		if task.GetId() != ids[i] {
			t.Fatalf("task %d is %s", i, task.GetId())
		}
	}
}
