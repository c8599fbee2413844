package workflows

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dtask/dtask/spec"
	"github.com/dtask/dtask/test/cluster"
)

// seeds are the seeds of the collections that the tests check.
var seeds = []uint64{1, 2, 3, 4, 5}

func TestACollectionHasTheSizesOfThePublishedOne(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds {
		graphs := Collection(seed)
		tasks, hundreds, thousands := 0, 0, 0
		names := map[string]bool{}
		for _, g := range graphs {
			n := len(g.Tasks)
			tasks += n
			names[g.Name] = true
			if 100 <= n && n < 1000 {
				hundreds++
			}
			if n > 5000 {
				thousands++
			}
		}
		if len(graphs) != 167 || tasks != 64_321 || len(names) != len(graphs) {
			t.Errorf("seed %d: got %d graphs, %d names and %d tasks, want 167, 167 and 64321", seed, len(graphs), len(names), tasks)
		}
		if hundreds < 60 || thousands != 2 {
			t.Errorf("seed %d: got %d graphs of some hundreds and %d of more than 5000 tasks, want at least 60 and 2", seed, hundreds, thousands)
		}
	}
}

func TestEachGraphIsNearlyAsLargeAsItsFamilyAllows(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds {
		at := 0
		graphs := Collection(seed)
		for _, f := range families {
			for i := range f.graphs {
				n := len(graphs[at].Tasks)
				if last := at == totalGraphs-1; !last && (n < f.smallest/2 || n > f.greatest) {
					t.Errorf("seed %d: %s has %d tasks, want about %d to %d", seed, graphs[at].Name, n, f.smallest, f.greatest)
				}
				if i == f.graphs-1 && n < f.greatest*9/10 {
					t.Errorf("seed %d: %s has %d tasks, want about %d", seed, graphs[at].Name, n, f.greatest)
				}
				at++
			}
		}
	}
}

func TestEveryGraphIsAValidJob(t *testing.T) {
	t.Parallel()
	for _, g := range Collection(seeds[0]) {
		var tasks []cluster.TaskFile
		for _, task := range g.Tasks {
			tasks = append(tasks, cluster.Builtin(task.ID, "noop", "").After(task.After...))
		}
		job, err := spec.Parse(g.Name, []byte(cluster.JobFile(g.Name, tasks...)), spec.Options{})
		if err != nil {
			t.Errorf("%s: %v", g.Name, err)
		} else if len(job.GetTasks()) != len(g.Tasks) {
			t.Errorf("%s: got a job of %d tasks, want %d", g.Name, len(job.GetTasks()), len(g.Tasks))
		}
	}
}

// The published IDs have up to 124 characters, and dots, hyphens and underscores.
func TestIDsAreAsLongAsThePublishedOnes(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds {
		longest, marks := "", map[rune]int{}
		for _, g := range Collection(seed) {
			for _, task := range g.Tasks {
				if len(task.ID) > len(longest) {
					longest = task.ID
				}
				for _, mark := range "._-" {
					if strings.ContainsRune(task.ID, mark) {
						marks[mark]++
					}
				}
			}
		}
		if len(longest) < 115 || len(longest) > 124 {
			t.Errorf("seed %d: the longest ID has %d characters, want 115 to 124: %s", seed, len(longest), longest)
		}
		if len(marks) != 3 {
			t.Errorf("seed %d: got IDs with %v, want some with each of . _ -", seed, marks)
		}
	}
}

func TestTheSameSeedMakesTheSameGraphs(t *testing.T) {
	t.Parallel()
	first, second := Collection(7), Collection(7)
	if !reflect.DeepEqual(first, second) {
		t.Error("two collections of seed 7 differ")
	}
	if reflect.DeepEqual(first, Collection(8)) {
		t.Error("the collections of seeds 7 and 8 are equal")
	}
}

func TestASampleHasEveryFamilyAndIsBounded(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds {
		sample := Sample(Collection(seed), 20, 2000)
		tasks, found := 0, map[string]bool{}
		for _, g := range sample {
			tasks += len(g.Tasks)
			found[g.Family] = true
		}
		if len(sample) != 20 || tasks > 2000 || len(found) != len(families) {
			t.Errorf("seed %d: got %d graphs of %d families with %d tasks, want 20 of %d with at most 2000", seed, len(sample), len(found), tasks, len(families))
		}
	}
	if few := Sample(Collection(1), 20, 100); len(few) == 0 || len(few) >= 20 {
		t.Errorf("got %d graphs with at most 100 tasks, want some and fewer than 20", len(few))
	}
	all := Collection(1)
	if sample := Sample(all, len(all), totalTasks); len(sample) >= len(all) {
		t.Errorf("got %d graphs, want every second one of each family", len(sample))
	}
}

// A job file may have a task before its dependencies, and that of each graph with
// dependencies has.
func TestTasksAreShuffled(t *testing.T) {
	t.Parallel()
	for _, g := range Collection(seeds[0]) {
		if len(g.Tasks) < 20 || len(g.After()) == 0 {
			continue
		}
		place := make(map[string]int, len(g.Tasks))
		for i, task := range g.Tasks {
			place[task.ID] = i
		}
		if !slices.ContainsFunc(g.Tasks, func(task Task) bool {
			return slices.ContainsFunc(task.After, func(id string) bool { return place[id] > place[task.ID] })
		}) {
			t.Errorf("%s: every task follows its dependencies", g.Name)
		}
	}
}
