//go:build mutant

package mutants_test

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dtask/dtask/test/mutants"
	"github.com/dtask/dtask/test/record"
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
				by, err := usual.catch(t.Context(), t.TempDir(), top, overlay, c)
				if err != nil {
					t.Fatal(err)
				}
				if by != "" {
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
