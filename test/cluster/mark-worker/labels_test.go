package main

import (
	"path/filepath"
	"testing"
)

func TestEachStartHasTheNextShift(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "work") // made by the first start
	for i, want := range []string{"early", "late", "night", "early", "late"} {
		if got, err := nextShift(dir, []string{"early", "late", "night"}); err != nil || got != want {
			t.Errorf("start %d: got %q, %v; want %q", i+1, got, err, want)
		}
	}
	if got, err := nextShift(dir, []string{"early"}); err != nil || got != "early" {
		t.Errorf("one shift: got %q, %v; want early", got, err)
	}
}
