package mutants_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/mutants"
	"github.com/dtask/dtask/test/record"
)

// limits bound the runs of checkers, without the time to compile them. A checker that
// exceeds planted has caught the bug only if the same checker passes without the bug in a
// fraction of the time, right afterwards on the same machine. If it passes within clean and
// takes longer than the fraction, the machine is slow, and the checker gets longer.
type limits struct{ planted, clean time.Duration }

var usual = limits{planted: 2 * time.Minute, clean: 20 * time.Minute}

const (
	// hangFactor is how many times as long a checker takes with a planted bug, at least, if it
	// hangs because of it.
	hangFactor = 4
	// maxHangTries is how often the time of a checker is compared.
	maxHangTries = 3
)

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// catch runs a checker on a mutant and returns which test failed, or "". An error means
// that nothing is known: it does not compile, or the machine is too slow.
func (l limits) catch(ctx context.Context, dir, top, overlay string, c mutants.Checker) (by string, err error) {
	planted, err := compile(ctx, filepath.Join(dir, "planted"), top, c, "-overlay", overlay)
	if err != nil {
		return "", err
	}
	out, late, err := l.run(ctx, dir, planted, top, c)
	switch {
	case late:
		return "a hanging test", nil
	case err == nil:
		return "", nil
	}
	if errors.Is(err, errUnknown) {
		return "", err
	}
	if m := failedTest.FindSubmatch(out); m != nil {
		return string(m[1]), nil
	}
	if strings.Contains(string(out), "panic:") {
		return "a panic", nil
	}
	return "", fmt.Errorf("the checker failed without a failed test: %w\n%s", err, out)
}

// run runs a checker with the planted bug until it ends, or hangs because of the bug. Without
// an answer, the error is errUnknown.
func (l limits) run(ctx context.Context, dir, planted, top string, c mutants.Checker) (out []byte, hangs bool, err error) {
	limit := l.planted
	for range maxHangTries {
		out, late, err := check(ctx, planted, top, c, limit)
		if !late {
			return out, false, err
		}
		took, err := l.without(ctx, dir, top, c)
		if err != nil {
			return nil, false, err
		}
		if took*hangFactor <= limit {
			return out, true, nil
		}
		limit = took * hangFactor * 2
	}
	return nil, false, fmt.Errorf("%w: the checker takes more than %v with the planted bug, and was never %d times as fast without it", errUnknown, l.planted, hangFactor)
}

var errUnknown = errors.New("nothing is known")

// without returns how long a checker takes without the planted bug.
func (l limits) without(ctx context.Context, dir, top string, c mutants.Checker) (took time.Duration, err error) {
	clean, err := compile(ctx, filepath.Join(dir, "clean"), top, c)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	out, late, err := check(ctx, clean, top, c, l.clean)
	if late {
		return 0, fmt.Errorf("%w: the checker does not pass within %v without the planted bug", errUnknown, l.clean)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: the checker fails without the planted bug: %w\n%s", errUnknown, err, out)
	}
	return time.Since(began), nil
}

// compile compiles a checker into a program.
func compile(ctx context.Context, program, top string, c mutants.Checker, flags ...string) (path string, err error) {
	args := append([]string{"test", "-c", "-o", program}, flags...)
	build := exec.CommandContext(ctx, "go", append(args, c.Package)...)
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling the checker: %w\n%s", err, out)
	}
	return program, nil
}

// check runs a compiled checker in the directory of its package, as go test does, and
// returns whether it was ended because it was late. Nothing is recorded: a failure
// because of a planted bug is not one of the product.
func check(ctx context.Context, program, top string, c mutants.Checker, limit time.Duration) (out []byte, late bool, err error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := append([]string{"-test.paniconexit0", "-test.count=1", "-test.failfast", "-test.run=" + c.Run}, c.Args...)
	run := exec.CommandContext(limited, program, args...)
	run.Dir = filepath.Join(top, c.Package)
	run.Env = append(os.Environ(), record.Env+"=", record.StartedEnv+"=")
	run.WaitDelay = 10 * time.Second
	out, err = run.CombinedOutput()
	return out, err != nil && limited.Err() != nil && ctx.Err() == nil, err
}

// TestAHangCountsOnlyIfTheCheckerIsFastWithoutIt plants bugs in a module of one function.
func TestAHangCountsOnlyIfTheCheckerIsFastWithoutIt(t *testing.T) {
	t.Parallel()
	const second = "time.Sleep(time.Second); "
	for name, c := range map[string]struct {
		clean, planted string // the function's body
		limits         limits
		by, failure    string
	}{
		"a failing test":         {"return 1", "return 2", usual, "TestOne", ""},
		"a panic":                {"return 1", "go func() { panic(0) }(); select {}", usual, "a panic", ""},
		"not caught":             {"return 1", "return 3 - 2", usual, "", ""},
		"a hang":                 {"return 1", "time.Sleep(time.Hour); return 1", limits{4 * time.Second, 5 * time.Minute}, "a hanging test", ""},
		"a slow machine":         {second + "return 1", "time.Sleep(time.Hour); return 1", limits{time.Second, time.Second / 2}, "", "does not pass within"},
		"slow, but no hang":      {second + "return 1", second + second + "return 1", limits{time.Second / 2, 5 * time.Minute}, "", ""},
		"it fails without":       {"return 2", "time.Sleep(time.Hour); return 1", limits{time.Second, 5 * time.Minute}, "", "fails without the planted bug"},
		"it does not compile":    {"return 1", "return one", usual, "", "compiling the checker"},
		"it ends without a test": {"return 1", "os.Exit(3); return 1", usual, "", "without a failed test"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			source := func(body string) string {
				return "package one\n\nimport (\n\t\"os\"\n\t\"time\"\n)\n\nvar _, _ = os.Exit, time.Sleep\n\nfunc one() int { " + body + " }\n"
			}
			for file, text := range map[string]string{
				"go.mod": "module one\n", "one.go": source(c.clean),
				"one_test.go": "package one\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif one() != 1 {\n\t\tt.Error(1)\n\t}\n}\n",
			} {
				if err := os.WriteFile(filepath.Join(top, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m := mutants.Mutant{Name: name, Edits: []mutants.Edit{{File: "one.go", Old: source(c.clean), New: source(c.planted)}}}
			overlay, err := m.Overlay(top, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			by, err := c.limits.catch(t.Context(), t.TempDir(), top, overlay, mutants.Checker{Package: ".", Run: "TestOne"})
			if by != c.by || (err != nil) != (c.failure != "") || err != nil && !strings.Contains(err.Error(), c.failure) {
				t.Errorf("got %q, %v; want %q, %q", by, err, c.by, c.failure)
			}
		})
	}
}
