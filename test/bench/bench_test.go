package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheMedianOfAnEvenCountIsAMean(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(test.values); got != test.want {
			t.Errorf("%v: got %v, want %v", test.values, got, test.want)
		}
	}
}

func TestTheTableHasSpreadAndRatio(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	table := &table{section: "s"}
	table.add("yardstick", "/s", "", 1000)
	table.compare("measured", "tasks/s", "3 coordinators", "yardstick", 30_000, 20_000, 25_000)
	if err := table.print(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	want := []string{"measured", "25,000", "20,000", "30,000", "tasks/s", "25", "x", "yardstick", "3", "coordinators"}
	if got := strings.Fields(lines[3]); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBenchmarksAreRead(t *testing.T) {
	t.Parallel()
	got := parseBenchmarks([]byte(`goos: linux
BenchmarkApply-2   	 1000	  250.5 ns/op	  16 B/op	 1 allocs/op
BenchmarkHeap/wide-2   	 1	  5 ns/op	  181.2 B/task
PASS
`))
	want := []benchmark{{"Apply", "ns/op", 250.5}, {"Heap/wide", "B/task", 181.2}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheFiguresInADocumentAreReplaced(t *testing.T) {
	t.Parallel()
	made := &table{section: "throughput", Machine: machine{Cores: 2, System: "linux/amd64", Note: "It is shared."}, Quick: true}
	made.add("tasks", "tasks/s", "3 coordinators", 1000, 3000)
	path := filepath.Join(t.TempDir(), "build", "figures.json")
	if err := made.save(path); err != nil {
		t.Fatal(err)
	}
	read, err := loadTable(path)
	if err != nil {
		t.Fatal(err)
	}
	text := "before\n" + figuresBegin + "\nold\n" + figuresEnd + "\nafter\n"
	for range 2 { // what it made it can replace
		if text, err = replace(text, read); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"before\n", "\nafter\n", "| tasks | 2,000 | 1,000 – 3,000 | tasks/s |", "It is shared.", "A quick run"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q: missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "old") || strings.Count(text, "| tasks |") != 1 {
		t.Errorf("got old figures in\n%s", text)
	}
	if _, err := replace("no marks", read); err == nil {
		t.Error("document without marks: got no error")
	}
}

func TestSectionsAreChosenByName(t *testing.T) {
	t.Parallel()
	chosen, err := choose("latency, throughput")
	if err != nil || len(chosen) != 2 || chosen[0].name != "throughput" {
		t.Errorf("got %d sections, %v", len(chosen), err)
	}
	if _, err := choose("speed"); err == nil || !strings.Contains(err.Error(), "throughput") {
		t.Errorf("unknown section: got %v", err)
	}
	if all, err := choose(""); err != nil || len(all) != len(sections)-1 || slices.ContainsFunc(all, func(s section) bool { return s.name == apart }) {
		t.Errorf("no choice: got %d sections, %v", len(all), err)
	}
}

func TestALineIsFitted(t *testing.T) {
	t.Parallel()
	var points []point
	for _, x := range []float64{0.0001, 0.01, 0.1, 1} {
		points = append(points, point{x, 2 + 500*x})
	}
	if a, b := fit(points); a < 1.99 || a > 2.01 || b < 499 || b > 501 {
		t.Errorf("got %v + %v x, want 2 + 500 x", a, b)
	}
	if a, b := fit([]point{{1, 7}, {1, 7}}); a != 7 || b != 0 {
		t.Errorf("without variation: got %v + %v x, want 7", a, b)
	}
}

func TestLargeJobsAreValid(t *testing.T) {
	t.Parallel()
	if job, err := arrayed(1_000_000); err != nil || len(job.GetTasks()) != 1 {
		t.Errorf("array: got %d tasks, %v", len(job.GetTasks()), err)
	}
	job, err := listed("listed", 2_500)
	if err != nil {
		t.Fatal(err)
	}
	if got := job.GetTasks()[1_999].GetDependencies(); !slices.Equal(got, []uint32{998, 999}) {
		t.Errorf("last task of a level: got dependencies %v, want 998 and 999", got)
	}
}

func TestSomeSectionsAreReplacedInADocument(t *testing.T) {
	t.Parallel()
	all := &table{Machine: machine{Cores: 2, Note: "All."}}
	for _, name := range []string{yardstickSection, "throughput", "tls", "idle"} {
		all.section = name
		all.add("figure of "+name, "s", "", 1)
	}
	text, err := replace("before\n"+figuresBegin+"\n"+figuresEnd+"\nafter\n", all)
	if err != nil {
		t.Fatal(err)
	}
	some := &table{Machine: machine{Cores: 4, Note: "Some."}, Partial: true}
	for _, name := range []string{yardstickSection, "tls", "latency"} { // one is there, one is not
		some.section = name
		some.add("new figure of "+name, "s", "", 2)
	}
	for range 2 { // what it made it can replace
		if text, err = replace(text, some); err != nil {
			t.Fatal(err)
		}
	}
	last := 0
	for _, want := range []string{
		"before\n", "All.\n", "**yardsticks**", "| figure of yardsticks | 1 ", "| figure of throughput |", "**latency**\n\nMeasured", "Some.\n\n| what |",
		"new figure of latency", "**tls**", "new figure of tls | 2 |", "**idle**", "| figure of idle |", figuresEnd + "\nafter\n",
	} {
		at := strings.Index(text[last:], want)
		if at < 0 {
			t.Fatalf("missing %q in its place in\n%s", want, text)
		}
		last += at
	}
	if strings.Contains(text, "| figure of tls") || strings.Contains(text, "new figure of yardsticks") || strings.Count(text, "**tls**") != 1 {
		t.Errorf("got\n%s", text)
	}
}
