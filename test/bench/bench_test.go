package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dtask/dtask/test/cluster"
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

func TestAPairOfBenchmarksHasItsDifference(t *testing.T) {
	t.Parallel()
	got := parseBenchmarks([]byte("BenchmarkNextWithLimits/2_limits-2 \t 1 \t 900 ns/op \t 362.5 ns-with-limits \t 290 ns-without-limits\n"))
	const name = "NextWithLimits/2_limits"
	want := []benchmark{{name, "ns-with-limits", 362.5}, {name, "ns-without-limits", 290}, {name, "ns-more", 72.5}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A benchmark that gets another name must not lose its target unnoticed.
func TestEveryTargetIsThatOfABenchmark(t *testing.T) {
	t.Parallel()
	root, err := cluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{table: &table{section: "parts"}}
	for f, to := range partTargets { // unordered: each is checked alone
		for _, name := range []string{f.name, to.against} {
			if name != "" && !isBenchmark(t, root, name) {
				t.Errorf("%q has a target or is part of one, and no benchmark has this name", name)
			}
		}
		b.table.add(f.name, f.unit, "", 1)
	}
	if err := b.haveTargets(); err != nil {
		t.Errorf("with all figures: %v", err)
	}
	b.table.Rows = b.table.Rows[1:]
	if err := b.haveTargets(); err == nil {
		t.Error("without one figure: got no error")
	}
}

// isBenchmark reports whether the tests of the package have a benchmark of this name.
func isBenchmark(t *testing.T, root, name string) bool {
	t.Helper()
	dir, rest, _ := strings.Cut(name, ": ")
	function, part, _ := strings.Cut(rest, "/")
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, file := range files {
		one, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(one)
	}
	return strings.Contains(text.String(), "func Benchmark"+function+"(") && (part == "" || strings.Contains(text.String(), strconv.Quote(part)))
}

// Full width is measured in loads from memory, whose row may come later.
func TestFullWidthIsComparedWithLoads(t *testing.T) {
	t.Parallel()
	b := &bench{table: &table{section: "parts"}}
	b.parts("scheduler", parseBenchmarks([]byte(`
BenchmarkNextWithQueues/100_queues_100_owners_1M_waiting-2 	 1 	 3 ns/op 	 2200 ns-with-queues 	 280 ns-without-queues
BenchmarkDependentLoads-2 	 1000 	 176 ns/op
`)))
	at := slices.IndexFunc(b.table.Rows, func(r row) bool { return r.Unit == "ns-with-queues" })
	if at < 0 {
		t.Fatalf("got %v", b.table.Rows)
	}
	r := b.table.Rows[at]
	if got, want := b.table.ratio(r), "12.5 x scheduler: DependentLoads"; got != want || !strings.HasSuffix(r.Setting, "target: at most 16 x") {
		t.Errorf("got the ratio %q in %q, want %q", got, r.Setting, want)
	}
}

func TestTheFiguresInADocumentAreReplaced(t *testing.T) {
	t.Parallel()
	made := &table{section: "throughput", Machine: machine{Cores: 2, System: "linux/amd64", Note: "Shared."}, Quick: true}
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
	for _, want := range []string{"before\n", "\nafter\n", "| tasks | 2,000 | 1,000 – 3,000 | tasks/s |", "Shared.", "A quick run"} {
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

// A run that fails after some sections must not take the figures of the others away, and
// those of the section in which it failed are not complete.
func TestARunThatFailedReplacesTheSectionsThatItMeasured(t *testing.T) {
	t.Parallel()
	all := &table{Machine: machine{Cores: 2, Note: "All."}}
	failed := &table{Machine: machine{Cores: 4, Note: "Failed."}, Partial: true, Failed: "shapes"}
	for _, name := range []string{yardstickSection, "throughput", "shapes", "large"} {
		all.section, failed.section = name, name
		all.add("figure of "+name, "s", "", 1)
		if name != "large" {
			failed.add("new figure of "+name, "s", "", 2)
		}
	}
	text := figuresBegin + "\n" + figuresEnd
	for _, one := range []*table{all, failed} {
		var err error
		if text, err = replace(text, one); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"| figure of yardsticks |", "| new figure of throughput |", "| figure of shapes |", "| figure of large |"} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "new figure of shapes") {
		t.Errorf("got the figures of a section that failed in\n%s", text)
	}
}

// The reader learns which figures a document lacks, until they are there.
func TestADocumentNamesTheSectionsThatItLacks(t *testing.T) {
	t.Parallel()
	text := figuresBegin + "\n" + figuresEnd
	one := func(name string) *table {
		made := &table{Partial: true, section: name, Machine: machine{Cores: 2, Note: strings.Repeat("A note. ", 20)}}
		made.add("figure of "+name, "s", "", 1)
		return made
	}
	last := ""
	for _, s := range sections {
		if s.name == apart {
			continue
		}
		var err error
		if text, err = replace(text, one(s.name)); err != nil {
			t.Fatal(err)
		}
		_, last, _ = strings.Cut(text, missingBegin)
		if strings.Contains(last, " "+s.name+",") || strings.Contains(last, " "+s.name+".") {
			t.Errorf("%s has figures, and is said to have none: %s", s.name, last)
		}
	}
	if last != "" {
		t.Errorf("all sections have figures, and the document ends with %q", last)
	}
	if n := strings.Count(text, "| figure of "); n != len(sections)-1 {
		t.Errorf("got %d figures, want one of each section", n)
	}
	text, err := replace(figuresBegin+"\n"+figuresEnd, one(apart))
	if err != nil || strings.Contains(text, missingBegin) {
		t.Errorf("a document of the section apart: %v\n%s", err, text)
	}
	text, err = replace(figuresBegin+"\n"+figuresEnd, one("tls"))
	if err != nil || !strings.Contains(text, missingBegin+"the sections throughput, ") {
		t.Errorf("a document of one section: %v\n%s", err, text)
	}
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(line) > maxColumns+1 && !strings.HasPrefix(line, "|") {
			t.Errorf("a line has more than %d columns: %s", maxColumns, line)
		}
	}
}

// A figure is documented with the command that measured it, without what is only of the
// machine.
func TestSomeSectionsHaveTheirCommand(t *testing.T) {
	t.Parallel()
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.String("only", "", "")
	flags.String("json", "", "")
	flags.Bool("quick", false, "")
	flags.Int("rounds", 0, "")
	if err := flags.Parse([]string{"-only", "tls,idle", "-json", "/home/me/tls.json", "-rounds=3", "-quick"}); err != nil {
		t.Fatal(err)
	}
	some := &table{section: "tls", Args: argsOf(flags), Partial: true}
	some.add("figure", "s", "", 1)
	if got, want := some.sections("tls"), "on 0 cores, `make bench ARGS='-only tls,idle -quick -rounds 3'`.\n"; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant %q in it", got, want)
	}
}

func TestARatioOfRoundsInTurnsHasAStandardError(t *testing.T) {
	t.Parallel()
	made := &table{section: "unused"}
	made.add("base", "tasks/s", "", 100, 200, 400, 800, 1600)
	made.compare("same", "tasks/s", "", "base", 50, 100, 200, 400, 800)
	made.compare("varies", "tasks/s", "", "base", 110, 180, 440, 720, 1760)
	made.compare("few", "tasks/s", "", "base", 100, 200, 300)
	// The logarithms of 1.1 and 0.9 are 0.0953 and -0.1054. The mean of the five ratios is
	// exp(0.0150), and the standard error of the logarithms is 0.0491.
	for i, want := range []string{"0.5 ± 0 x base", "1.02 ± 0.05 x base", "0.5 x base"} {
		if got := made.ratio(made.Rows[i+1]); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Two sections may have rows of the same name, such as the time until completions resume.
func TestARatioIsToTheRowOfItsOwnSection(t *testing.T) {
	t.Parallel()
	made := &table{section: "failover"}
	made.add("leader killed", "ms", "", 50)
	made.section = "features"
	made.add("leader killed", "ms", "", 200)
	made.compare("  with limits", "ms", "", "leader killed", 300)
	made.section = "large"
	made.compare("array job", "tasks/s", "", "leader killed", 100)
	if got, want := made.ratio(made.Rows[2]), "1.5 x leader killed"; got != want {
		t.Errorf("in its own section: got %q, want %q", got, want)
	}
	if got, want := made.ratio(made.Rows[3]), "2 x leader killed"; got != want {
		t.Errorf("in another section: got %q, want %q", got, want)
	}
}
