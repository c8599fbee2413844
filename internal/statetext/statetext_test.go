package statetext_test

import (
	"testing"

	"github.com/dtask/dtask/internal/statetext"
)

func TestAStateReadsAsTheEndOfASentence(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		"blocked": "is blocked", "scheduled": "is scheduled", "pending": "is pending",
		"assigned": "is assigned", "running": "is running", "dead": "is dead",
		"completed": "has completed", "aggregated": "has completed", "failed": "has failed",
		"cancelled": "was cancelled", "lost": "was lost",
	} {
		if got := statetext.Predicate(state); got != want {
			t.Errorf("%s: got %q, want %q", state, got, want)
		}
	}
}

func TestATaskWhoseDependencyFailedIsNotSkipped(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]bool{
		"skipped: dependency test did not fail":    true,
		"skipped: dependency alarm was skipped":    true,
		"dependency test failed":                   false,
		"cancelled by the user: skipped: too slow": false,
	} {
		if got := statetext.Skipped(reason); got != want {
			t.Errorf("%q: got %v, want %v", reason, got, want)
		}
	}
}
