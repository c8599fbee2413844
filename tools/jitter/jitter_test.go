//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

// TestMain runs the program instead of the tests if the environment asks for it.
func TestMain(m *testing.M) {
	if os.Getenv("JITTER_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// setup writes the small module. It returns the options for it, and its lines that can
// sleep, other than those of a package that is named by -with.
func setup(t *testing.T) (o options, sleepers []string) {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/small.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range archive.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(f.Data), "\n") {
			if strings.HasSuffix(line, "// sleeps") {
				sleepers = append(sleepers, site{f.Name, i + 1}.String())
			}
		}
	}
	return options{dir: dir, pkg: ".", seed: 1, seeds: 1, oneIn: 1, times: 1, pause: time.Millisecond}, sleepers
}

// lineOf returns the site in which the small module has the text.
func lineOf(t *testing.T, o options, file, text string) site {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(o.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(strings.Split(string(src), "\n"), func(line string) bool { return strings.Contains(line, text) })
	if i < 0 {
		t.Fatalf("%s lacks %q", file, text)
	}
	return site{file, i + 1}
}

func TestEachStatementCanSleepAndNothingElse(t *testing.T) {
	t.Parallel()
	o, want := setup(t)
	o.with, o.run = ". ./internal/...", "TestOdd|TestX"
	tmp := t.TempDir()
	b, err := prepare(t.Context(), o, tmp)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range b.sites {
		got = append(got, s.String())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got the sites\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	plans, err := b.plans(o)
	if err != nil {
		t.Fatal(err)
	}
	if err = b.compile(t.Context(), o, tmp); err != nil {
		t.Fatal(err)
	}
	r, err := b.run(t.Context(), o, plans[0], tmp)
	if err != nil {
		t.Fatal(err)
	}
	if r.failed {
		t.Errorf("tests failed with a sleep at each line: %q %q", r.tests, r.messages)
	}
	for _, s := range []site{lineOf(t, o, "odd.go", "fallthrough"), lineOf(t, o, "odd.go", "end:"), lineOf(t, o, "internal/x/x.go", "return")} {
		if !slices.Contains(r.slept, s) {
			t.Errorf("%s has not slept, only %v", s, r.slept)
		}
	}
}

func TestASeedFindsARaceAndItsReportRepeatsIt(t *testing.T) {
	t.Parallel()
	o, _ := setup(t)
	o.oneIn, o.pause, o.run = 4, 3*time.Second, "^TestAsked$"
	racy, read := lineOf(t, o, "race.go", "Store"), lineOf(t, o, "outside_test.go", "Load")
	for !isPicked(o.seed, racy, o.oneIn) || isPicked(o.seed, read, o.oneIn) {
		o.seed++
	}
	if o.seed > 40 {
		t.Errorf("the first seed that picks a line of four and not another one is %d", o.seed)
	}
	var out bytes.Buffer
	err := jitter(t.Context(), o, &out)
	if err == nil || err.Error() != "1 of 1 runs failed" {
		t.Fatalf("got %v, want one failed run:\n%s", err, &out)
	}
	for _, want := range []string{
		": FAILED in ", "failed: TestAsked\n", "| outside_test.go:", ": answered before it is logged\n", "slept: " + racy.String() + "\n",
		" SEEDS=1 ONE_IN=4 SLEEP=3s TIMES=1 RUN='^TestAsked$$'\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &out)
		}
	}
}

func TestANamedSiteSleepsAlone(t *testing.T) {
	t.Parallel()
	o, _ := setup(t)
	racy := lineOf(t, o, "race.go", "Store")
	o.site, o.pause, o.seeds, o.run = "./"+racy.String(), 3*time.Second, 5, "Asked"
	var out bytes.Buffer
	if err := jitter(t.Context(), o, &out); err == nil || err.Error() != "1 of 1 runs failed" {
		t.Fatalf("got %v, want one failed run:\n%s", err, &out)
	}
	if got := regexp.MustCompile(`slept: .*`).FindAllString(out.String(), -1); !slices.Equal(got, []string{"slept: " + racy.String()}) {
		t.Errorf("got %q, want a sleep at %s", got, racy)
	}
	if want := "repeat: make jitter PKG=. SITE=./" + racy.String() + " "; !strings.Contains(out.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, &out)
	}
}

func TestAnErrorNamesWhatToDo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*options)
		want   []string
	}{
		"no package":       {func(o *options) { o.pkg = "" }, []string{"missing -pkg: name a package"}},
		"no seeds":         {func(o *options) { o.seeds, o.oneIn = 0, 0 }, []string{"invalid -seeds 0", "invalid -one-in 0"}},
		"unknown package":  {func(o *options) { o.pkg = "./nowhere" }, []string{`invalid -pkg "./nowhere"`, "directory not found"}},
		"several packages": {func(o *options) { o.pkg = "./..." }, []string{`invalid -pkg "./..."`, "matches 4 packages; name one"}},
		"no tests":         {func(o *options) { o.pkg = "./untested" }, []string{"no test files in ", "/untested; name a package with tests"}},
		"does not build":   {func(o *options) { o.pkg = "./broken" }, []string{"building the tests of ./broken", "go vet ./broken", "broken/broken.go:3:"}},
		"other module":     {func(o *options) { o.with = "fmt" }, []string{"invalid -with: fmt is not in module example.com/small"}},
		"no site":          {func(o *options) { o.site = "race.go" }, []string{`invalid -site "race.go": must be FILE:LINE`}},
		"unknown file":     {func(o *options) { o.site = "generated.go:6" }, []string{`unknown -site "generated.go:6"`, "its package with -pkg or -with"}},
		"unknown line":     {func(o *options) { o.site = "race.go:8" }, []string{`unknown -site "race.go:8"`, "the nearest line with one is race.go:11"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := setup(t)
			c.change(&o)
			err := jitter(t.Context(), o, t.Output())
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want an error with %q", err, want)
				}
			}
		})
	}
}

func TestAnInterruptLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	o, _ := setup(t)
	tmp := t.TempDir()
	cmd := exec.Command(os.Args[0], "-pkg", ".", "-run", "TestForever", "-site", lineOf(t, o, "outside_test.go", "time.Hour").String())
	cmd.Dir = o.dir
	cmd.Env = append(cmd.Environ(), "JITTER_MAIN=1", "TMPDIR="+tmp)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = cmd.Process.Signal(syscall.SIGINT)
			_ = cmd.Wait()
		}
	})
	// The log exists as soon as the tests run. The standard library may have to be built first.
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if logs, _ := filepath.Glob(filepath.Join(tmp, "jitter-*", "log")); len(logs) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no test runs after five minutes") // the program still writes its output
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	ended = true
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("got %v, want exit status 1", err)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if !strings.Contains(out.String(), "running the tests of .: interrupt") {
		t.Errorf("got the output %q", &out)
	}
}
