package raftnode

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestOnlyRemainsOfDeletedSnapshotsAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, files := range map[string][]string{
		"9-100-5":   {"state.bin"},              // deleting it was interrupted: two newer ones are complete
		"10-150-1":  {},                         // same
		"10-200-1":  {"meta.json", "state.bin"}, // its name sorts before 9-…
		"12-300-1":  {"meta.json", "state.bin"},
		"12-400-1":  {"meta.json"}, // the newest: an operator must decide
		"2-3-4.tmp": {"meta.json", "state.bin"},
	} {
		folder := filepath.Join(dir, snapshotsDir, name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if err := os.WriteFile(filepath.Join(folder, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	removed, err := removeUnfinished(dir)
	if err != nil || removed != 3 {
		t.Errorf("removed %d, %v; want 3", removed, err)
	}
	left, err := snapshotNames(dir)
	slices.Sort(left)
	if want := []string{"10-200-1", "12-300-1", "12-400-1"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left: %v, %v; want %v", left, err, want)
	}
}
