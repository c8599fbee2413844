//go:build mutant

package mutants_test

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/mutants"
	"github.com/dtask/dtask/test/record"
)

// checkerLimit ends a checker that hangs because of a mutant, which counts as caught.
const checkerLimit = 2 * time.Minute

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	notBuilt   = regexp.MustCompile(`(?m)\[(build|setup) failed\]`)
)

// TestCheckersCatch plants each bug and expects a checker to fail. With
// DTASK_MUTANTS=K/N it tests every N-th bug, starting with the K-th (K from 0).
func TestCheckersCatch(t *testing.T) {
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	run := record.Run{Suite: "mutants"}
	record.AtEnd(t, &run)
	for i, m := range mutants.All() {
		if !chosen(t, i) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			overlay, err := m.Overlay(top, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range m.Caught {
				if by, caught := catch(t, top, overlay, c); caught {
					t.Logf("caught by %s in %s", by, c.Package)
					run.Mutants = append(run.Mutants, m.Name)
					return
				}
			}
			t.Errorf("not caught: %s", m.Name)
		})
	}
	run.Seconds = time.Since(began).Seconds()
	t.Logf("%d planted bugs caught in %.0f s", len(run.Mutants), run.Seconds)
}

// chosen reports whether this run takes the i-th mutant.
func chosen(t *testing.T, i int) bool {
	t.Helper()
	part := cmp.Or(os.Getenv("DTASK_MUTANTS"), "0/1")
	first, of, ok := strings.Cut(part, "/")
	k, errK := strconv.Atoi(first)
	n, errN := strconv.Atoi(of)
	if !ok || errK != nil || errN != nil || n < 1 {
		t.Fatalf("invalid DTASK_MUTANTS %q: must be K/N, such as 0/3", part)
	}
	return i%n == k%n
}

// catch runs a checker on a mutant and returns which test failed.
func catch(t *testing.T, top, overlay string, c mutants.Checker) (by string, caught bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), checkerLimit)
	defer cancel()
	args := append([]string{"test", "-overlay", overlay, "-count=1", "-failfast", "-run", c.Run, c.Package}, c.Args...)
	run := exec.CommandContext(ctx, "go", args...)
	run.Dir = top
	run.WaitDelay = 10 * time.Second
	out, err := run.CombinedOutput()
	switch {
	case err == nil:
		return "", false
	case notBuilt.Match(out):
		t.Fatalf("the planted bug does not compile:\n%s", out)
	case ctx.Err() != nil:
		return "a hanging test", true
	}
	if m := failedTest.FindSubmatch(out); m != nil {
		return string(m[1]), true
	}
	if strings.Contains(string(out), "panic:") {
		return "a panic", true
	}
	t.Fatalf("the checker failed without a failed test:\n%s", out)
	return "", false
}
