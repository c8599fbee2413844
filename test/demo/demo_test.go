package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestAWordIsARunOfBytesBetweenASCIIWhiteSpace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		want map[string]uint64
	}{
		{"", map[string]uint64{}},
		{" \t\n\v\f\r ", map[string]uint64{}},
		{"go Go go", map[string]uint64{"go": 2, "Go": 1}},
		{"a\vb\fc\rd\te\nf", map[string]uint64{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}},
		{"no\u00a0break next\u0085line", map[string]uint64{"no\u00a0break": 1, "next\u0085line": 1}},
		{"x\xff\xfey x\ufffd\ufffdy", map[string]uint64{"x\ufffd\ufffdy": 2}},
		{"nul\x00 \x00", map[string]uint64{"nul\x00": 1, "\x00": 1}},
	} {
		got := make(map[string]uint64)
		addWords(got, test.text)
		if !maps.Equal(got, test.want) {
			t.Errorf("%q: got %v, want %v", test.text, got, test.want)
		}
	}
}

func TestEveryFileIsInOneGroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "skipped"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.go", "b.go", "c.txt", "d.go", "skipped/e.go"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, len(name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := sources(dir, "skipped")
	if err != nil || len(files) != 3 {
		t.Fatalf("got %v, %v; want the three .go files", files, err)
	}
	for n := 1; n < 5; n++ {
		groups := split(files, n)
		if len(groups) != min(n, 3) {
			t.Errorf("%d groups, want %d", len(groups), min(n, 3))
		}
		all := slices.Concat(groups...)
		slices.SortFunc(all, func(a, b file) int { return slices.Compare([]byte(a.path), []byte(b.path)) })
		if !slices.Equal(all, files) {
			t.Errorf("in %d groups: got %v, want %v", n, all, files)
		}
	}
}

func TestAnEmptyTreeIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := sources(t.TempDir()); err == nil {
		t.Error("got no error")
	}
}

func TestThePlanUsesEveryOutputOnce(t *testing.T) {
	t.Parallel()
	groups := split([]file{{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}, {"g", 1}, {"h", 1}, {"i", 1}, {"j", 1}}, 10)
	used, made := map[string]int{}, map[string]bool{}
	tasks := plan(groups, "/out")
	for _, task := range tasks {
		for _, in := range task.Inputs {
			used[in]++
			if task.Type == "reduce" && !made[in] {
				t.Errorf("%s reads %s, which no earlier task makes", task.ID, in)
			}
		}
		made[task.Output] = true
	}
	last := tasks[len(tasks)-1]
	for output := range made {
		want := 1
		if output == last.Output {
			want = 0
		}
		if used[output] != want {
			t.Errorf("%s is read %d times, want %d", output, used[output], want)
		}
	}
}

func TestDifferencesAreFoundOnBothSides(t *testing.T) {
	t.Parallel()
	want := map[string]uint64{"a": 1, "b": 2, "c": 3}
	if _, n := differences(map[string]uint64{"a": 1, "b": 2, "c": 3}, want); n != 0 {
		t.Errorf("equal counts: %d differences", n)
	}
	if some, n := differences(map[string]uint64{"a": 1, "b": 1, "d": 1}, want); n != 3 {
		t.Errorf("got %d differences (%v), want 3", n, some)
	}
}

func TestExecutionsAreReadFromTheLog(t *testing.T) {
	t.Parallel()
	got := map[string]int{}
	addExecutions(got, "7", `{"msg":"worker started"}
{"msg":"attempt ended","job_id":7,"task_id":"a","outcome":"OUTCOME_KIND_SUCCEEDED"}
{"msg":"attempt ended","job_id":7,"task_id":"b","outcome":"OUTCOME_KIND_RELEASED"}
{"msg":"attempt ended","job_id":7,"task_id":"b","outcome":"OUTCOME_KIND_FAILED"}
{"msg":"attempt ended","job_id":8,"task_id":"a","outcome":"OUTCOME_KIND_SUCCEEDED"}
panic: not a line of JSON
{"msg":"attempt ended","job_id":7,"task_id":"a","outcome":"OUTCOME_KIND_SUCCEEDED"}
`)
	if want := map[string]int{"a": 2, "b": 1}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNumbersAreWrittenForPeople(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := count(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
