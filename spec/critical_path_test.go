package spec

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// twoPolicies is a header with a policy of ordinary tasks, and one of cleanup tasks.
func twoPolicies() *dtaskv1.JobHeader {
	return &dtaskv1.JobHeader{Policies: []*dtaskv1.TaskPolicy{{}, {Finally: true}}}
}

// drawOutline draws a job, some tasks of which are arrays, need others only to end, run only
// after a failure, or clean up.
func drawOutline(rt *rapid.T) (tasks []*dtaskv1.PlanTask, takes []Span) {
	ordinary := rapid.IntRange(1, 9).Draw(rt, "ordinary")
	n := ordinary + rapid.IntRange(0, 3).Draw(rt, "cleanup")
	for i := range n {
		t := &dtaskv1.PlanTask{Id: fmt.Sprint("t", i)}
		least := 0
		if i >= ordinary {
			t.Policy, least = 1, ordinary
		}
		for d := least; d < i; d++ {
			if rapid.IntRange(0, 2).Draw(rt, "needs") == 0 {
				t.Dependencies = append(t.Dependencies, uint32(d))
				t.Conditions = append(t.Conditions, rapid.SampledFrom([]dtaskv1.Condition{
					dtaskv1.Condition_CONDITION_COMPLETED, dtaskv1.Condition_CONDITION_COMPLETED, dtaskv1.Condition_CONDITION_ENDED, dtaskv1.Condition_CONDITION_FAILED,
				}).Draw(rt, "when"))
			}
		}
		if rapid.Bool().Draw(rt, "array") {
			t.Tasks, t.MaxParallel = rapid.Uint32Range(1, 9).Draw(rt, "tasks"), rapid.Uint32Range(0, 4).Draw(rt, "max_parallel")
		}
		tasks = append(tasks, t)
		low := rapid.Int64Range(1, 20).Draw(rt, "low")
		takes = append(takes, Span{low, low + rapid.Int64Range(0, 20).Draw(rt, "more"), true})
	}
	return tasks, takes
}

// longestByBruteForce tries every chain of tasks.
func longestByBruteForce(tasks []*dtaskv1.PlanTask, takes func(i int) int64) int64 {
	skipped := make([]bool, len(tasks))
	for i, t := range tasks {
		for k, d := range t.GetDependencies() {
			switch t.GetConditions()[k] {
			case dtaskv1.Condition_CONDITION_FAILED:
				skipped[i] = true
			case dtaskv1.Condition_CONDITION_COMPLETED:
				skipped[i] = skipped[i] || skipped[d]
			}
		}
	}
	var chain func(i int) int64
	chain = func(i int) int64 {
		longest, t := int64(0), tasks[i]
		for k := range i {
			if slices.Contains(t.GetDependencies(), uint32(k)) || t.GetPolicy() == 1 && tasks[k].GetPolicy() == 0 {
				longest = max(longest, chain(k))
			}
		}
		if skipped[i] {
			return longest
		}
		rounds := int64(0)
		for left := int64(max(t.GetTasks(), 1)); left > 0; rounds++ {
			if t.GetMaxParallel() == 0 {
				left = 0
			}
			left -= int64(t.GetMaxParallel())
		}
		return longest + rounds*takes(i)
	}
	longest := int64(0)
	for i := range tasks {
		if !skipped[i] {
			longest = max(longest, chain(i))
		}
	}
	return longest
}

func TestTheCriticalPathIsTheLongestOfAllChains(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		tasks, takes := drawOutline(rt)
		g := NewGraph(twoPolicies(), tasks)
		path := g.CriticalPath(takes)
		low := longestByBruteForce(tasks, func(i int) int64 { return takes[i].Low })
		high := longestByBruteForce(tasks, func(i int) int64 { return takes[i].High })
		if want := (Span{low, high, true}); path.Takes != want {
			rt.Fatalf("got %+v, want %+v", path.Takes, want)
		}
		sum := Exactly(0)
		for k, i := range path.Nodes {
			if g.Skipped(i) || k > 0 && path.Nodes[k-1] >= i {
				rt.Fatalf("got the path %v", path.Nodes)
			}
			sum = sum.plus(g.Takes(i, takes[i]))
		}
		if sum.High != high {
			rt.Fatalf("the path %v takes %d, want %d", path.Nodes, sum.High, high)
		}
	})
}

func TestCleanupTasksComeAfterTheLongestChainOfTheOthers(t *testing.T) {
	t.Parallel()
	tasks := []*dtaskv1.PlanTask{{Id: "a"}, {Id: "b", Dependencies: []uint32{0}}, {Id: "c"}, {Id: "z", Policy: 1}}
	takes := []Span{Exactly(2), Exactly(3), Exactly(4), Exactly(1)}
	if got := NewGraph(twoPolicies(), tasks).CriticalPath(takes); got.Takes != Exactly(6) || !slices.Equal(got.Nodes, []int{0, 1, 3}) {
		t.Errorf("got %+v, want a, b and z, which take 6", got)
	}
}

func TestAnUnknownRunTimeLeavesTheCriticalPathWithoutAnUpperLimit(t *testing.T) {
	t.Parallel()
	tasks := []*dtaskv1.PlanTask{{Id: "a"}, {Id: "b", Dependencies: []uint32{0}}, {Id: "c"}}
	g := NewGraph(twoPolicies(), tasks)
	takes := []Span{{10, 20, true}, {}, {3, 4, true}}
	if got := g.CriticalPath(takes); got.Takes != (Span{Low: 10}) || !slices.Equal(got.Nodes, []int{0}) && !slices.Equal(got.Nodes, []int{0, 1}) {
		t.Errorf("got %+v", got)
	}
	if got := g.Work(takes); got.Low != 13 || got.Bounded {
		t.Errorf("got %+v of work", got)
	}
	// A task that only runs after a failure needs no run time.
	tasks[1].Conditions = []dtaskv1.Condition{dtaskv1.Condition_CONDITION_FAILED}
	g = NewGraph(twoPolicies(), tasks)
	if got := g.CriticalPath(takes); got.Takes != (Span{10, 20, true}) || !slices.Equal(got.Nodes, []int{0}) {
		t.Errorf("got %+v", got)
	}
	if g.Runs() != 2 {
		t.Errorf("%d tasks run, want 2", g.Runs())
	}
}

// The outline does not depend on how a job is split into parts: the file, the client's
// columns and the stored job have the same.
func TestAnOutlineIsThatOfTheWholeJob(t *testing.T) {
	t.Parallel()
	text := `job:
  name: x
  tasks:
    - {id: a, run: echo a}
    - {id: m, run: "echo ${{ item }}", needs: [a], array: {items: [1, 2, 3, 4, 5], chunk: 2, max_parallel: 2}}
    - {id: r, run: "echo ${{ index }}", array: {range: 0-9}}
    - {id: z, run: echo z, needs: [m, {task: r, when: ended}]}
    - {id: c, run: echo c, finally: true}
`
	job, err := Parse("f", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := OutlineOf(job)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		id           string
		tasks, most  uint32
		dependencies []uint32
	}{{"a", 0, 0, nil}, {"m", 3, 2, []uint32{0}}, {"r", 10, 0, nil}, {"z", 0, 0, []uint32{1, 2}}, {"c", 0, 0, nil}}
	at := slices.IndexFunc(whole.Tasks, func(x *dtaskv1.PlanTask) bool { return x.GetId() == "r" })
	if at != 1 && at != 2 || len(whole.Tasks) != len(want) {
		t.Fatalf("got %v", whole.Tasks)
	}
	for _, w := range want {
		k := slices.IndexFunc(whole.Tasks, func(x *dtaskv1.PlanTask) bool { return x.GetId() == w.id })
		if got := whole.Tasks[k]; got.GetTasks() != w.tasks || got.GetMaxParallel() != w.most || len(got.GetDependencies()) != len(w.dependencies) {
			t.Errorf("got %v, want %+v", got, w)
		}
	}
	if faults := CheckOutline(job.GetHeader(), whole.Tasks); faults != nil {
		t.Error(faults)
	}
	split := new(Outline)
	for _, task := range job.GetTasks() {
		parts := []*dtaskv1.TaskSpec{task}
		if items := task.GetArray().GetItems(); len(items) > 0 {
			first := &dtaskv1.TaskSpec{Id: task.GetId(), Policy: task.GetPolicy(), Dependencies: task.GetDependencies(), Body: task.GetBody(), Array: &dtaskv1.ArraySpec{
				Items: items[:2], ItemsTotal: 5, Chunk: 2, MaxParallel: 2,
			}}
			parts = []*dtaskv1.TaskSpec{first, {Id: task.GetId(), Array: &dtaskv1.ArraySpec{Part: 1, Items: items[2:]}}}
		}
		for _, p := range parts {
			if err := split.Add(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if changes := Changes(job.GetHeader(), job.GetHeader(), whole.Tasks, split.Tasks); len(changes) != 0 {
		t.Errorf("the parts differ from the whole: %v", changes)
	}
}

func TestAnInvalidOutlineIsRefused(t *testing.T) {
	t.Parallel()
	h := func() *dtaskv1.JobHeader {
		job, err := Parse("f", []byte("job: {name: x, tasks: [{id: a, run: echo a}]}"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return job.GetHeader()
	}
	for what, tasks := range map[string][]*dtaskv1.PlanTask{
		"job.tasks: is empty":                     nil,
		"unknown policy 1":                        {{Id: "a", Policy: 1}},
		"0 is not below the task's own index 0":   {{Id: "a", Dependencies: []uint32{0}}},
		"has 2, and dependencies has 0":           {{Id: "a", Conditions: make([]dtaskv1.Condition, 2)}},
		"exceeds 1,000,000 tasks":                 {{Id: "a", Tasks: 1_000_000}, {Id: "b"}},
		"has a max_parallel above 1,000,000":      {{Id: "a", Tasks: 2, MaxParallel: 1_000_001}},
		`contains the character '/'`:              {{Id: "a/b"}},
		"unknown condition 9":                     {{Id: "a"}, {Id: "b", Dependencies: []uint32{0}, Conditions: []dtaskv1.Condition{9}}},
		"follows 0; send indexes in ascending or": {{Id: "a"}, {Id: "b", Dependencies: []uint32{0, 0}}},
	} {
		faults := CheckOutline(h(), tasks)
		if !slices.ContainsFunc(faults.Lines(), func(line string) bool { return strings.Contains(line, what) }) {
			t.Errorf("got %v, want %q", faults.Lines(), what)
		}
	}
	if CheckOutline(nil, []*dtaskv1.PlanTask{{Id: "a"}}) == nil {
		t.Error("a job without a header is accepted")
	}
}

func TestAFileWithAScheduleHasAJob(t *testing.T) {
	t.Parallel()
	const text = "schedule: {cron: \"30 2 * * *\"}\njob: {name: x, tasks: [{id: a, run: echo a}]}\n"
	if job, err := Parse("f", []byte(text), Options{MayHaveSchedule: true}); err != nil || job.GetHeader().GetName() != "x" {
		t.Errorf("got %v, %v", job, err)
	}
	if _, err := Parse("f", []byte(strings.Replace(text, "30 2", "99 2", 1)), Options{MayHaveSchedule: true}); err == nil {
		t.Error("an invalid schedule is accepted")
	}
}

func TestChangesAreNamedByTheirFields(t *testing.T) {
	t.Parallel()
	read := func(text string) (*dtaskv1.JobHeader, []*dtaskv1.PlanTask) {
		job, err := Parse("f", []byte(text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := OutlineOf(job)
		if err != nil {
			t.Fatal(err)
		}
		return job.GetHeader(), o.Tasks
	}
	h1, before := read(`job:
  name: x
  tasks:
    - {id: same, run: echo a}
    - {id: body, run: echo a}
    - {id: policy, run: echo a}
    - {id: needs, run: echo a}
    - {id: m, run: "echo ${{ index }}", array: {range: 0-9}}
    - {id: gone, run: echo a}
`)
	h2, after := read(`job:
  name: x
  deadline: 1h
  labels: {a: b}
  tasks:
    - {id: new, run: echo a}
    - {id: same, run: echo a}
    - {id: body, run: echo b}
    - {id: policy, run: echo a, timeout: 5m, resources: {cpu: 2}}
    - {id: needs, run: echo a, needs: [body]}
    - {id: m, run: "echo ${{ index }}", array: {range: 0-8, max_parallel: 3}}
`)
	got := make(map[string]string)
	for _, c := range Changes(h1, h2, before, after) {
		got[c.GetTask()] = c.GetKind() + fmt.Sprint(c.GetFields())
	}
	want := map[string]string{
		"": "changed[deadline labels]", "new": "added[]", "gone": "removed[]", "body": "changed[body]",
		"policy": "changed[resources timeout]", "needs": "changed[dependencies]", "m": "changed[array]",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The runs of a schedule have a concurrency key, though its file names none.
func TestARunOfAScheduleDiffersInNothingFromItsFile(t *testing.T) {
	t.Parallel()
	file := &dtaskv1.JobHeader{Name: "x", Labels: map[string]string{"a": "b"}}
	run := &dtaskv1.JobHeader{
		Name: "x", Labels: file.GetLabels(),
		Run: &dtaskv1.ScheduledRun{}, Concurrency: &dtaskv1.JobConcurrency{Key: "schedule/x"},
	}
	if changes := Changes(run, file, nil, nil); len(changes) != 0 {
		t.Errorf("got %v", changes)
	}
	file.Concurrency = &dtaskv1.JobConcurrency{Key: "y"}
	if changes := Changes(run, file, nil, nil); len(changes) != 1 {
		t.Errorf("another key: got %v", changes)
	}
}

// BenchmarkCriticalPath plans 100,000 tasks with two dependencies each.
func BenchmarkCriticalPath(b *testing.B) {
	const n, width = 100_000, 1000
	tasks, takes := make([]*dtaskv1.PlanTask, n), make([]Span, n)
	for i := range tasks {
		tasks[i], takes[i] = &dtaskv1.PlanTask{Id: fmt.Sprint("t", i)}, Span{int64(i%17) + 1, int64(i%17) + 5, true}
		if i > width {
			tasks[i].Dependencies = []uint32{uint32(i - width - 1), uint32(i - width)}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if g := NewGraph(twoPolicies(), tasks); g.CriticalPath(takes).Takes.High == 0 {
			b.Fatal("no path")
		}
	}
}
